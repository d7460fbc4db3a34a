"""Real databases of four kinds: a test gets one that is empty."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.pool import NullPool

from tests.connect.sql.mariadb import MariaDb, binaries

_numbers = itertools.count(1)
KINDS = ("sqlite", "postgresql", "mariadb", "duckdb")


class Target:
    """One database, seen by an ordinary client."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.url = kind, url
        driver = {"postgresql": "postgresql+psycopg2", "mariadb": "mariadb+pymysql"}.get(kind, kind)
        self._engine = sqlalchemy.create_engine(
            sqlalchemy.make_url(url).set(drivername=driver), poolclass=NullPool
        )

    def execute(self, *statements: str) -> None:
        with self._engine.begin() as connection:
            for statement in statements:
                connection.execution_options(no_parameters=True).exec_driver_sql(statement)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with self._engine.connect() as connection:
            plain = connection.execution_options(no_parameters=True)
            return [tuple(row) for row in plain.exec_driver_sql(statement)]

    def quoted(self, name: str) -> str:
        return self._engine.dialect.identifier_preparer.quote_identifier(name)


@pytest.fixture(scope="session")
def shared_mariadb() -> Iterator[MariaDb]:
    if binaries() is None:
        pytest.skip("MariaDB's server is not installed (Debian and Ubuntu: apt install mariadb-server)")
    server = MariaDb()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """An empty database of each kind."""
    kind, name = request.param, f"sql{next(_numbers)}"
    if kind == "postgresql":
        server = request.getfixturevalue("shared_postgres")
        database = server.create_database(name)
        yield Target(kind, f"postgresql://penstock@127.0.0.1:{server.port}/{name}")
        database.drop()
    elif kind == "mariadb":
        server = request.getfixturevalue("shared_mariadb")
        connection = server.connect()
        connection.cursor().execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        yield Target(kind, f"mariadb://root@127.0.0.1:{server.port}/{name}")
        connection.cursor().execute(f"DROP DATABASE {name}")
        connection.close()
    else:
        yield Target(kind, f"{kind}:///{tmp_path}/{name}.db")
