"""The tokens of a query with their nesting in brackets, on which the parsing of clauses is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from penstock.sql.errors import BadSyntax, Place
from penstock.sql.language.statements import Span
from penstock.sqltext.tokens import Token

QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES")
"""With which a query can begin."""

_DEEPEST = 60
_OPENING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Clause:
    """From `start` to before `end`, as token indexes."""

    kind: str
    """`SELECT`, `FROM`, `WHERE`, `GROUP`, … in capitals; TUMBLING, HOPPING, SESSION for those windows."""
    start: int
    content: int
    """The range after the keywords of the clause."""
    end: int


def match_brackets(text: str, tokens: list[Token], start: int, end: int) -> dict[int, int]:
    """Maps the index of each opening bracket to that of its closing one."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for at in range(start, end):
        token = tokens[at]
        if token.kind != "symbol" or token.text not in "()[]{}":
            continue
        if token.text in _OPENING:
            if len(opened) == _DEEPEST:
                raise BadSyntax(
                    f"more than {_DEEPEST} brackets inside each other", Place.of(text, token.start)
                )
            opened.append(at)
        elif not opened:
            raise BadSyntax(f"this {token.text} closes nothing", Place.of(text, token.start))
        elif (expected := _OPENING[tokens[opened[-1]].text]) != token.text:
            raise BadSyntax(f"expected {expected}, not `{token.text}`", Place.of(text, token.start))
        else:
            pairs[opened.pop()] = at
    if opened:
        token = tokens[opened[-1]]
        raise BadSyntax(f"this {token.text} is never closed", Place.of(text, token.start))
    return pairs


class Words:
    """`tokens[start:end]`, with its brackets matched."""

    def __init__(self, text: str, tokens: list[Token], start: int, end: int) -> None:
        self.text = text
        self.tokens = tokens
        self.start = start
        self.end = end
        self.pairs = match_brackets(text, tokens, start, end)

    def word(self, at: int) -> str:
        """In capitals; empty if it is not a word, or out of range."""
        return self.tokens[at].upper if self.start <= at < self.end else ""

    def is_symbol(self, at: int, symbol: str) -> bool:
        return self.start <= at < self.end and self.tokens[at].is_symbol(symbol)

    def after(self, at: int) -> int:
        """The index after this word, or after the closing bracket if one opens here."""
        return self.pairs[at] + 1 if at in self.pairs else at + 1

    def may_be_keyword(self, at: int) -> bool:
        """Whether it is a keyword: not a field (`a.limit`) and not an alias (`AS limit`)."""
        return not self.is_symbol(at - 1, ".") and self.word(at - 1) != "AS"

    def opens_query(self, at: int) -> bool:
        """Whether a bracket with a query is here."""
        if not self.is_symbol(at, "("):
            return False
        while self.is_symbol(at, "("):
            at += 1
        return self.word(at) in QUERY_WORDS and (self.word(at) == "VALUES" or not self.is_symbol(at + 1, "("))

    def items(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts between commas, ignoring those in brackets."""
        items: list[tuple[int, int]] = []
        first = at = start
        while at < end:
            if self.tokens[at].is_symbol(","):
                items.append((first, at))
                first = at + 1
            at = self.after(at)
        items.append((first, end))
        return [(a, b) for a, b in items if a < b]

    def span(self, first: int, after: int) -> Span:
        """The span from the word at `first` to the one before `after`; an empty span between them if there is
        none.
        """
        end = self.tokens[after - 1].end
        return (self.tokens[first].start if first < after else end), end

    def fail(self, at: int, message: str) -> NoReturn:
        offset = self.tokens[at].start if at < self.end else self.tokens[self.end - 1].end
        raise BadSyntax(message, Place.of(self.text, offset))
