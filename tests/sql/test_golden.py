"""Every golden file, against a server: statements of SQL, and what comes of them."""

from __future__ import annotations

import pytest

from penstock.testing import PenstockBroker
from tests.registry.conftest import RegistryProcess
from tests.sql import golden
from tests.sql.serving import SqlClient, SqlServer

FILES = sorted(golden.DIRECTORY.glob("*.test"))


@pytest.mark.promise(
    "sql",
    "CREATE OR REPLACE is rejected if it changes the input of a stateful query (a window, a computed "
    "key, a Python function), unless it says `state='rebuild'`, which computes everything again (golden "
    "files `replace`)",
)
@pytest.mark.promise(
    "sql",
    "Every statement in the reference does what the page shows, and the page has every statement in all "
    "its variants",
)
@pytest.mark.promise(
    "sql",
    "Schemas may change while a query runs; a record that cannot be decoded becomes a dead letter, and "
    "the query continues (golden files `evolving_schemas`, `poison`)",
)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_statements_do_what_their_golden_file_says(
    path: golden.Path,
    server: SqlServer,
    sql: SqlClient,
    sql_broker: PenstockBroker,
    sql_registry: RegistryProcess,
) -> None:
    before = running(sql)
    try:
        golden.Runner(sql, sql_broker, sql_registry.url).run(golden.read(path))
    finally:
        # What is left running would take the cores of the files that follow.
        for query in running(sql) - before:
            sql.run(f"TERMINATE {query};")


def running(sql: SqlClient) -> set[str]:
    return {query["id"] for query in sql.http.get("/queries").json()}
