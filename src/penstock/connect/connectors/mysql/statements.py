"""Classifies statements in the binlog: transactions and DDL. Row changes are events of their own. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Begin:
    pass


@dataclass(frozen=True, slots=True)
class Commit:
    """Also a rollback: the rows that are in the binlog before it are in tables without transactions."""


@dataclass(frozen=True, slots=True)
class Truncate:
    database: str
    table: str


@dataclass(frozen=True, slots=True)
class SchemaChange:
    verb: str
    """CREATE, ALTER, DROP or RENAME."""
    database: str
    table: str | None
    """None where the statement is about a database or an index, or names several tables."""


@dataclass(frozen=True, slots=True)
class RowStatement:
    """A row change logged as a statement: the rows themselves are not in the binlog."""

    verb: str


@dataclass(frozen=True, slots=True)
class Other:
    pass


Statement = Begin | Commit | Truncate | SchemaChange | RowStatement | Other

_COMMENTS = re.compile(r"(?:\s+|/\*(?![!M]).*?\*/|--[^\n]*\n|#[^\n]*\n)+", re.DOTALL)
_NAME = r"(?:`((?:[^`]|``)+)`|\"((?:[^\"]|\"\")+)\"|([\w$\x80-\uffff]+))"
_TABLE = re.compile(rf"{_NAME}\s*(?:\.\s*{_NAME})?", re.UNICODE)
_TRUNCATE = re.compile(r"TRUNCATE\s+(?:TABLE\s+)?", re.IGNORECASE)
_EMPTIED = re.compile(r"DELETE\s+FROM\s+", re.IGNORECASE)
_DDL = re.compile(
    r"(CREATE|ALTER|DROP|RENAME)\s+(?:OR\s+REPLACE\s+)?(?:(?:ONLINE|OFFLINE|IGNORE|UNIQUE|FULLTEXT|SPATIAL)\s+)*"
    r"(TABLES?|DATABASE|SCHEMA|INDEX)\b\s*(?:IF\s+(?:NOT\s+)?EXISTS\s+)?",
    re.IGNORECASE,
)
_ROWS = re.compile(r"(INSERT|UPDATE|DELETE|REPLACE|LOAD)\b", re.IGNORECASE)


def classified(text: str, database: str) -> Statement:
    """`database` is the current one."""
    found = _COMMENTS.match(text)
    text = text[found.end() :] if found else text
    word = text[:16].upper().rstrip(" ;")
    if word == "BEGIN" or word.startswith(("START TRANSACTIO", "XA START")):
        return Begin()
    if word in ("COMMIT", "ROLLBACK"):
        return Commit()
    for emptied, whole in ((_TRUNCATE, False), (_EMPTIED, True)):
        if start := emptied.match(text):
            named = _table(text, start.end(), database)
            # After a restart the server empties tables of the MEMORY engine with a DELETE.
            if named and (not whole or not _rest(text, named[2])):
                return Truncate(named[0], named[1])
    if ddl := _DDL.match(text):
        verb, kind = ddl[1].upper(), ddl[2].upper()
        named = _table(text, ddl.end(), database)
        if kind in ("DATABASE", "SCHEMA"):
            return SchemaChange(verb, named[1] if named else database, None)
        if kind == "INDEX" or named is None:
            return SchemaChange(verb, database, None)
        several = verb in ("DROP", "RENAME") and "," in text[named[2] :]
        return SchemaChange(verb, named[0], None if several else named[1])
    if rows := _ROWS.match(text):
        return RowStatement(rows[1].upper())
    return Other()


def _table(text: str, at: int, database: str) -> tuple[str, str, int] | None:
    """Database and table of a name, and where it ends."""
    found = _TABLE.match(text, at)
    if not found:
        return None
    first = _plain(found[1], found[2], found[3])
    second = _plain(found[4], found[5], found[6])
    return (first, second, found.end()) if second else (database, first, found.end())


def _plain(quoted: str | None, ansi: str | None, bare: str | None) -> str:
    if quoted is not None:
        return quoted.replace("``", "`")
    return ansi.replace('""', '"') if ansi is not None else bare or ""


def _rest(text: str, at: int) -> str:
    return _COMMENTS.sub("", text[at:]).strip(" ;")
