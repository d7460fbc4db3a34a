"""One PostgreSQL for all tests of this directory; each test has a database of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.connect.postgres.server import Database, PostgresServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[PostgresServer]:
    """Started once for the tests of a pytest process. A test that stops it starts it again."""
    from tests.connect.postgres.server import PostgresServer, binaries

    if binaries() is None:
        pytest.skip("PostgreSQL's server is not installed (Debian and Ubuntu: apt install postgresql)")
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def database(shared_postgres: PostgresServer) -> Iterator[Database]:
    """An empty database, dropped with its slots after the test."""
    database = shared_postgres.create_database(f"test{next(_numbers)}")
    yield database
    database.drop()
