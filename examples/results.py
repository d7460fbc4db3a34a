"""What the examples do with a record: a row in an SQLite database, which survives kill -9."""

from __future__ import annotations

import sqlite3


def open_results(path: str, *statements: str) -> sqlite3.Connection:
    """The database; every statement is a transaction of its own, unless BEGIN says otherwise."""
    database = sqlite3.connect(path, isolation_level=None, timeout=30)
    database.execute("PRAGMA journal_mode=WAL")
    for statement in statements:
        database.execute(statement)
    return database
