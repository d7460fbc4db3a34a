"""The exceptions of PEP 249, and the mapping of the server's errors to them."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError


class Warning(Exception):
    """Never raised: messages in addition to a result are in `Cursor.messages`."""


class Error(PenstockError):
    """The base class of the others."""


class InterfaceError(Error):
    """Invalid use of the cursor or connection."""


class DatabaseError(Error):
    """The server rejected a statement. `line` and `column` are the position, if known."""

    line: int | None = None
    column: int | None = None


class DataError(DatabaseError):
    """A value that does not match its type."""


class OperationalError(DatabaseError):
    """The server or its cluster does not respond: try again."""


class IntegrityError(DatabaseError):
    """Never raised: there are no constraints."""


class InternalError(DatabaseError):
    """A statement failed with an unexpected error."""


class ProgrammingError(DatabaseError):
    """A statement that is invalid, names something that does not exist, or is not allowed."""


class NotSupportedError(DatabaseError):
    """Transactions over several statements do not exist."""


_KINDS: dict[str, type[DatabaseError]] = {
    "Unavailable": OperationalError,
    "Internal": InternalError,
    "TooLarge": DataError,
}


def error_of(line: dict[str, Any]) -> DatabaseError:
    """The exception for a line `{"error": …, "message": …}`."""
    error = _KINDS.get(line["error"], ProgrammingError)(str(line.get("message", line["error"])))
    error.line, error.column = line.get("line"), line.get("column")
    return error
