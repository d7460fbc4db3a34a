"""The exceptions of PEP 249, and which of them an answer of the server is."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError


class Warning(Exception):
    """Never raised: what a statement has to say beside its result is in `Cursor.messages`."""


class Error(PenstockError):
    """The base of all others."""


class InterfaceError(Error):
    """The cursor or connection is used in a way that it does not have."""


class DatabaseError(Error):
    """The server refused a statement. `line` and `column` say where, if they are known."""

    line: int | None = None
    column: int | None = None


class DataError(DatabaseError):
    """A value that is not one of its type."""


class OperationalError(DatabaseError):
    """The server or its cluster does not answer now: try again."""


class IntegrityError(DatabaseError):
    """Never raised: there are no constraints."""


class InternalError(DatabaseError):
    """A statement failed in a way that the server does not know."""


class ProgrammingError(DatabaseError):
    """A statement that is wrong, names what is not there, or is not allowed."""


class NotSupportedError(DatabaseError):
    """There are no transactions over several statements."""


_KINDS: dict[str, type[DatabaseError]] = {
    "Unavailable": OperationalError,
    "Internal": InternalError,
    "TooLarge": DataError,
}


def error_of(line: dict[str, Any]) -> DatabaseError:
    """Of a line `{"error": …, "message": …}`."""
    error = _KINDS.get(line["error"], ProgrammingError)(str(line.get("message", line["error"])))
    error.line, error.column = line.get("line"), line.get("column")
    return error
