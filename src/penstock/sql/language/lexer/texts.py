"""A text in which `${variables}` were replaced, with the origin of each character."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a text that was derived from another text."""

    start: int
    """The range in the derived text."""
    origin: int
    """The range in the original text."""
    copied: bool
    """Copied character by character; otherwise a replacement of the text at `origin`."""


class Pieces:
    """Maps offsets in a derived text to offsets in the original."""

    def __init__(self, pieces: list[Piece]) -> None:
        self._starts = [piece.start for piece in pieces]
        self._pieces = pieces

    def origin(self, offset: int) -> int:
        if not self._pieces:
            return offset
        piece = self._pieces[max(0, bisect_right(self._starts, offset) - 1)]
        return piece.origin + (offset - piece.start) if piece.copied else piece.origin


class Expanded(str):
    """The text of a statement with its variables replaced. Messages refer to positions in `original`."""

    original: str
    pieces: Pieces

    @classmethod
    def of(cls, text: str, original: str, pieces: list[Piece]) -> Expanded:
        made = cls(text)
        made.original = original
        made.pieces = Pieces(pieces)
        return made
