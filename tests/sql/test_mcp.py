"""SQL of a language model, through `penstock mcp` and a real SQL server."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.testing import PenstockBroker
from tests.mcp_server.asking import Asked, Refused, ask
from tests.sql.serving import SqlServer

pytestmark = pytest.mark.timeout(300)


async def run(asked: Asked, statements: str, limit: int = 50) -> list[dict[str, Any]]:
    answer = await asked("run_sql", statements=statements, limit=limit, seconds=120)
    return list(answer["results"])


@pytest.mark.promise(
    "operations", "`penstock mcp` changes nothing unless it is started with `--allow-writes`"
)
def test_a_language_model_reads_with_sql_and_writes_only_if_that_is_allowed(
    sql_broker: PenstockBroker, server: SqlServer
) -> None:
    where = ("--bootstrap", sql_broker.bootstrap, "--sql", server.url)
    create = "CREATE STREAM mcp_seen (id STRING KEY, n INT) WITH (format = 'json', partitions = 1)"

    async def writing(asked: Asked) -> None:
        assert (await asked.tools())["run_sql"] is False
        await run(asked, create)
        await run(asked, "INSERT INTO mcp_seen VALUES ('a', 1), ('b', 2)")

    async def reading(asked: Asked) -> None:
        assert (await asked.tools())["run_sql"] is True
        for statement in (create, "DROP STREAM mcp_seen", "SHOW TABLES; DROP STREAM mcp_seen"):
            with pytest.raises(Refused, match=r"read-only.*--allow-writes"):
                await run(asked, statement)
        (answer,) = await run(asked, "SELECT id, n FROM mcp_seen ORDER BY n")
        assert (answer["columns"], answer["rows"]) == (["id", "n"], [["a", 1], ["b", 2]])
        (shown,) = await run(asked, "SHOW STREAMS")
        assert any(row[0] == "mcp_seen" for row in shown["rows"])
        failed = (await run(asked, "SELECT nothing FROM mcp_seen"))[-1]
        assert "nothing" in failed["message"]
        (cut,) = await run(asked, "SELECT id FROM mcp_seen", limit=1)
        assert len(cut["rows"]) == 1 and cut["complete"] is False

    ask(writing, *where, "--allow-writes")
    ask(reading, *where)
