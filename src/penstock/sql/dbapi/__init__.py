"""A SQL server for Python programs: the interface of PEP 249 (DB-API 2.0).

    from penstock.sql import dbapi

    with dbapi.connect("http://127.0.0.1:8088") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT region, n FROM totals WHERE region = %(region)s", {"region": "north"})
        rows = cursor.fetchall()

A cursor with `SELECT … EMIT CHANGES` gives rows as records come, and closing it ends the query.
`create_engine("penstock://127.0.0.1:8088")` of SQLAlchemy uses it, and so pandas and BI tools do.
"""

from __future__ import annotations

from penstock.sql.dbapi.connection import Connection, Cursor, connect
from penstock.sql.dbapi.errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)
from penstock.sql.dbapi.values import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)

apilevel = "2.0"
threadsafety = 1
"""Threads may share the module, and no connections."""
paramstyle = "pyformat"

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]
