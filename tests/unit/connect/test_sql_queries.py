"""What a SQL source asks: never for rows of a moment that may get more of them."""

from __future__ import annotations

import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy
from sqlalchemy.dialects import mysql, postgresql

from penstock.connect.connectors.sql.catalog import Column, Table
from penstock.connect.connectors.sql.database import Database
from penstock.connect.connectors.sql.queries import Position, TableQuery

NOW = datetime.datetime(2026, 1, 2, 23, 30, 5, 123456, tzinfo=datetime.UTC)


@pytest.mark.promise(
    "connect",
    "SQL: a row that is inserted within the same second as a row that was already read is read, too",
)
@pytest.mark.parametrize(
    ("url", "kind", "zone", "bound"),
    [
        ("mysql://localhost/d", mysql.DATETIME(), "UTC", "2026-01-02 23:30:05"),
        ("mysql://localhost/d", mysql.TIMESTAMP(fsp=3), "UTC", "2026-01-02 23:30:05.123000"),
        ("mysql://localhost/d", mysql.DATETIME(fsp=6), "UTC", "2026-01-02 23:30:05.123456"),
        ("postgresql://localhost/d", postgresql.TIMESTAMP(), "UTC", "2026-01-02 23:30:05.123456"),
        ("postgresql://localhost/d", postgresql.TIMESTAMP(precision=0), "UTC", "2026-01-02 23:30:05"),
        ("postgresql://localhost/d", sqlalchemy.Date(), "UTC", "2026-01-02 00:00:00"),
        ("postgresql://localhost/d", sqlalchemy.Date(), "Europe/Berlin", "2026-01-03 00:00:00"),
        ("sqlite://", sqlalchemy.DateTime(), "UTC", "2026-01-02 23:30:05.000"),
    ],
)
def test_rows_of_a_moment_that_has_not_ended_wait(url: str, kind: Any, zone: str, bound: str) -> None:
    table = Table("orders", None, (Column("changed", kind, False),), ())
    query = TableQuery(
        Database({"connection.url": url}),
        table,
        query=None,
        incrementing=None,
        timestamps=("changed",),
        zone=ZoneInfo(zone),
    )
    (value,) = query.question(Position(), NOW, None).values
    assert str(value) == bound
