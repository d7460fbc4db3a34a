"""A text in which `${variables}` were replaced, and that knows where each of its characters came from."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a text that was made of another one."""

    start: int
    """In the made text."""
    origin: int
    """In the text that it was made of."""
    copied: bool
    """Character by character; otherwise it stands for what was at `origin`."""


class Pieces:
    """From offsets in a made text to offsets in the one it was made of."""

    def __init__(self, pieces: list[Piece]) -> None:
        self._starts = [piece.start for piece in pieces]
        self._pieces = pieces

    def origin(self, offset: int) -> int:
        if not self._pieces:
            return offset
        piece = self._pieces[max(0, bisect_right(self._starts, offset) - 1)]
        return piece.origin + (offset - piece.start) if piece.copied else piece.origin


class Expanded(str):
    """The text of a statement after the variables are put in. Messages point into `original`."""

    original: str
    pieces: Pieces

    @classmethod
    def of(cls, text: str, original: str, pieces: list[Piece]) -> Expanded:
        made = cls(text)
        made.original = original
        made.pieces = Pieces(pieces)
        return made
