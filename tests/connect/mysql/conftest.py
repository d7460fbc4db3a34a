"""Each test has a database of its own, of the MariaDB with a binlog that all share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.connect.sql.mariadb import MariaDb, binaries

_numbers = itertools.count(1)
BINLOG = (
    "--log-bin=mariadb-bin", "--binlog-format=ROW", "--binlog-row-image=FULL", "--binlog-row-metadata=FULL",
    "--server-id=1", "--character-set-server=utf8mb4",
)  # fmt: skip


class Database:
    """One database of a server, seen by an ordinary client."""

    def __init__(self, server: MariaDb, name: str) -> None:
        self.server, self.name = server, name

    def execute(self, *statements: str) -> None:
        connection = self.server.connect(self.name)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        finally:
            connection.close()

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        connection = self.server.connect(self.name)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()


def started(*options: str) -> Iterator[MariaDb]:
    if binaries() is None:
        pytest.skip("MariaDB's server is not installed (Debian and Ubuntu: apt install mariadb-server)")
    server = MariaDb(*options)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def binlog_mariadb() -> Iterator[MariaDb]:
    yield from started(*BINLOG)


@pytest.fixture
def database(binlog_mariadb: MariaDb) -> Iterator[Database]:
    """An empty database, dropped after the test."""
    name = f"test{next(_numbers)}"
    for statement in (f"CREATE DATABASE {name}", f"DROP DATABASE {name}"):
        connection = binlog_mariadb.connect()  # a test may restart the server
        connection.cursor().execute(statement)
        connection.close()
        if statement.startswith("CREATE"):
            yield Database(binlog_mariadb, name)
