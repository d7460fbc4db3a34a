"""Binlog events in the connector's terms: created by `stream`, processed by `changes`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.connect.connectors.mysql.column_types import MySqlColumn

Row = list[Any]


@dataclass(frozen=True, slots=True)
class Place:
    """The position of an event. `end` is where the next one starts; both are 0 for events outside of
    files.
    """

    file: str
    pos: int
    end: int
    seconds: int
    """When the statement began."""
    server_id: int
    """Of the server where the change was made."""


@dataclass(frozen=True, slots=True)
class Rotated:
    """Reading continues in another file."""

    file: str
    pos: int


@dataclass(frozen=True, slots=True)
class Gtid:
    """Comes before a transaction or, if `standalone`, a single statement."""

    gtid: str
    standalone: bool


@dataclass(frozen=True, slots=True)
class TableDescribed:
    """The columns of a table for the next events, until a statement or another file follows."""

    id: int
    database: str
    table: str
    columns: tuple[MySqlColumn, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowsChanged:
    """`rows` decodes them: pairs of the row before and after the change, either of which may be None."""

    table_id: int
    rows: Callable[[], list[tuple[Row | None, Row | None]]]


@dataclass(frozen=True, slots=True)
class Executed:
    """A statement that is in the binlog as text."""

    database: str
    text: str
    thread: int


@dataclass(frozen=True, slots=True)
class Committed:
    pass


@dataclass(frozen=True, slots=True)
class Idle:
    """The server has sent everything."""


Event = Rotated | Gtid | TableDescribed | RowsChanged | Executed | Committed | Idle
