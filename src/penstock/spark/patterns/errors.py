"""What is wrong with the clauses of a pattern, and at which place of their text."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.spark.errors import SparkError


@dataclass(frozen=True, slots=True)
class Fragment:
    """The text of one clause, or of a part of it."""

    text: str
    origin: int = 0
    """Where it begins in the whole that the user wrote."""

    def part(self, start: int, end: int) -> Fragment:
        return Fragment(self.text[start:end], self.origin + start)


class BadPattern(SparkError):
    """A clause that cannot be run. `offset` is a place in the user's whole text."""

    def __init__(self, message: str, fragment: Fragment, at: int = 0) -> None:
        self.reason = message
        self.fragment = fragment
        self.offset = fragment.origin + at
        super().__init__(f"{message} (in `{fragment.text.strip()}`)")
