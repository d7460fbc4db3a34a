"""Errors in the clauses of a pattern, with their position in the text."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.spark.errors import SparkError


@dataclass(frozen=True, slots=True)
class Fragment:
    """The text of one clause, or of a part of it."""

    text: str
    origin: int = 0
    """Its offset in the user's whole text."""

    def part(self, start: int, end: int) -> Fragment:
        return Fragment(self.text[start:end], self.origin + start)


class BadPattern(SparkError):
    """An invalid clause. `offset` is a position in the user's whole text."""

    def __init__(self, message: str, fragment: Fragment, at: int = 0) -> None:
        self.reason = message
        self.fragment = fragment
        self.offset = fragment.origin + at
        super().__init__(f"{message} (in `{fragment.text.strip()}`)")
