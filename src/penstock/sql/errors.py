"""What is wrong with a statement, and where in its text.

PenstockError
└── SqlError            the statement cannot be carried out; a line and a column where one is to blame
    ├── BadSyntax       it cannot be read
    ├── Unknown         it names a stream, column, function, query or topic that does not exist
    ├── Clash           types or columns do not fit together
    ├── Exists          the name is taken
    ├── StateLost       a replacement would discard state without permission
    ├── NotAllowed      it brings code, and the server was not started to run any
    └── Unavailable     the cluster, the registry or the leading server does not answer now
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.errors import PenstockError
from penstock.sql.language.lexer.texts import Expanded


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the text that the user gave; both count from 1."""

    line: int
    column: int

    @classmethod
    def of(cls, text: str, offset: int) -> Place:
        """Of a text with variables put in: the place in the text that the user wrote."""
        if isinstance(text, Expanded):
            offset = text.pieces.origin(offset)
            text = text.original
        offset = min(offset, len(text))
        return cls(text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1)


class SqlError(PenstockError):
    """`str()` has all of it in a line: `line 2, column 8: no column `regon`; did you mean `region`?`."""

    def __init__(self, message: str, place: Place | None = None) -> None:
        self.message = message
        self.place = place
        super().__init__(message if place is None else f"line {place.line}, column {place.column}: {message}")

    def as_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"error": type(self).__name__, "message": self.message}
        if self.place is not None:
            fields |= {"line": self.place.line, "column": self.place.column}
        return fields


class BadSyntax(SqlError):
    pass


class Unknown(SqlError):
    pass


class Clash(SqlError):
    pass


class Exists(SqlError):
    pass


class StateLost(SqlError):
    pass


class NotAllowed(SqlError):
    pass


class Unavailable(SqlError):
    pass


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean `region`?`, or nothing if none of the known names is near."""
    folded = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.6)
    return f"; did you mean `{folded[near[0]]}`?" if near else ""
