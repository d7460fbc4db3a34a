"""Each test has a database of its own, of the PostgreSQL that all share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.connect.postgres.server import Database, PostgresServer

_numbers = itertools.count(1)


@pytest.fixture
def database(shared_postgres: PostgresServer) -> Iterator[Database]:
    """An empty database, dropped with its slots after the test."""
    database = shared_postgres.create_database(f"test{next(_numbers)}")
    yield database
    database.drop()
