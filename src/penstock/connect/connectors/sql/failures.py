"""Classifies a database's errors: of the server, of the login, or of the statement and its values.

A server error is temporary: the same statement may succeed later. A login error is permanent, and would
affect every record. Any other error belongs to the record that is written.
"""

from __future__ import annotations

import enum
from typing import Any

from sqlalchemy import exc


class Fault(enum.Enum):
    SERVER = enum.auto()
    """The server is unavailable, full, read-only or out of connections; a lock, a deadlock."""
    LOGIN = enum.auto()
    """The user may not do this."""
    RECORD = enum.auto()


# SQLSTATE, by class and by code.
_POSTGRES_SERVER = (
    "08",  # connection exception
    "40",  # transaction rollback: serialization, deadlock
    "53",  # insufficient resources: disk full, too many connections
    "57",  # operator intervention: shutdown, timeout of a statement
    "58",  # system error: I/O
    "25006",  # read-only transaction
    "25P03",  # idle in transaction for too long
    "55006",  # object in use
    "55P03",  # lock not available
)
_POSTGRES_LOGIN = (
    "28",  # invalid authorization
    "42501",  # insufficient privilege
)
_MYSQL_SERVER = frozenset({
    1021,  # disk full
    1040, 1129, 1203, 1226,  # too many connections, host blocked, limits of a user
    1053,  # shutdown
    1114,  # table full
    1158, 1159, 1160, 1161,  # network
    1205, 1213,  # lock wait, deadlock
    1290, 1792, 1836,  # read-only
    1317, 1927, 1969, 3024,  # query or connection killed, statement timeout
    2002, 2003, 2006, 2013, 2055,  # server gone or lost
})  # fmt: skip
_MYSQL_LOGIN = frozenset({
    1044, 1045, 1698,  # access to the database or for the user denied
    1142, 1143, 1227, 1370, 1410,  # privilege for a table, a column, an operation, a routine, a grant
})  # fmt: skip
_SQLITE_SERVER = ("locked", "busy", "unable to open", "disk I/O", "is full")


def fault_of(error: exc.DBAPIError, dialect: str) -> Fault:
    if error.connection_invalidated:
        return Fault.SERVER
    original: Any = error.orig
    match dialect:
        case "sqlite":
            return _sqlite(str(original))
        case "mysql":
            return _mysql(original.args[0] if getattr(original, "args", None) else None)
        case "duckdb":
            return _duckdb(type(original).__name__)
    return _postgres(error, getattr(original, "pgcode", None))


def _sqlite(text: str) -> Fault:
    if any(word in text for word in _SQLITE_SERVER):
        return Fault.SERVER
    return Fault.LOGIN if "readonly database" in text else Fault.RECORD


def _mysql(code: Any) -> Fault:
    if code in _MYSQL_SERVER:
        return Fault.SERVER
    return Fault.LOGIN if code in _MYSQL_LOGIN else Fault.RECORD


def _duckdb(name: str) -> Fault:
    if name in ("IOException", "TransactionException"):
        return Fault.SERVER
    return Fault.LOGIN if name == "PermissionException" else Fault.RECORD


def _postgres(error: exc.DBAPIError, code: str | None) -> Fault:
    if code is None:  # the driver's own: it cannot connect, or lost the connection
        server = isinstance(error, (exc.OperationalError, exc.InterfaceError))
        return Fault.SERVER if server else Fault.RECORD
    if code.startswith(_POSTGRES_SERVER):
        return Fault.SERVER
    return Fault.LOGIN if code.startswith(_POSTGRES_LOGIN) else Fault.RECORD
