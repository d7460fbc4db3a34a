"""A project with connectors beside its flows: `pipeline run` starts both, `pipeline status` shows both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from penstock.pipelines.project.database_template import make_database_project
from penstock.testing import PenstockBroker
from tests.connect import conftest as connect
from tests.connect.postgres import conftest as postgres
from tests.spark.test_pipeline_process import penstock, running, wait_for

pytestmark = pytest.mark.timeout(600)
shared_postgres, database = connect.shared_postgres, postgres.database


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[connect.Workers]:
    started = connect.Workers(tmp_path)
    yield started
    started.close()


def rows(project: Path, table: str) -> list[tuple[Any, ...]]:
    """Of a materialized view, by the files of its newest version."""
    import pyarrow.parquet as pq

    written = (project / "storage" / "tables" / table).rglob("_SUCCESS")
    newest = max((mark.parent for mark in written), key=lambda place: place.stat().st_mtime_ns, default=None)
    if newest is None:
        return []
    try:
        tables = [pq.read_table(path) for path in newest.glob("*.parquet")]
    except OSError:
        return []  # replaced meanwhile
    return sorted(tuple(row.values()) for each in tables for row in each.to_pylist())


@pytest.mark.promise(
    "pipelines",
    "`pipeline init --from postgres` creates a project whose connector `run` starts together with its "
    "flows, and `status` shows both",
)
def test_a_database_table_flows_into_tables(
    database: Any,
    workers: connect.Workers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer text, amount numeric(10, 2))",
        "INSERT INTO orders VALUES (1, 'ann', 10.5), (2, 'bob', 20), (3, 'ann', 30)",
    )
    make_database_project(tmp_path, "shop", "postgres")
    project = tmp_path / "shop"
    file = project / "connectors" / "shop.json"
    config = json.loads(file.read_text())
    config |= {
        "database.port": database.server.port,
        "database.user": "penstock",
        "database.dbname": database.name,
    }
    monkeypatch.setenv("SHOP_PASSWORD", "secret")
    with PenstockBroker(connect.BROKER) as broker:
        monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)
        worker = workers.start(broker.bootstrap)
        file.write_text(json.dumps({**config, "database.hostname": ""}))
        refused = penstock("run", str(project), "--connect", worker.url, check=False)
        assert refused.returncode == 1 and "database.hostname" in refused.stderr

        file.write_text(json.dumps(config))
        with running(project, "--connect", worker.url, "--refresh-every", "1"):

            def customers() -> Any:
                return {row[0]: row[1:] for row in rows(project, "customers")}

            wait_for(lambda: customers() == {"ann": (2, 40.5), "bob": (1, 20.0)})
            database.execute("UPDATE orders SET amount = 25 WHERE id = 2", "DELETE FROM orders WHERE id = 3")
            wait_for(lambda: customers() == {"ann": (1, 10.5), "bob": (1, 25.0)})

            def shown() -> Any:
                found = json.loads(penstock("status", str(project), "--json", check=False).stdout)
                return found if found["state"] == "running" else None

            found = wait_for(shown)
            assert {flow["name"] for flow in found["flows"]} >= {"order_changes", "orders", "customers"}
            (connector,) = found["connectors"]
            assert (connector["name"], connector["state"], connector["tasks"]) == (
                "shop",
                "RUNNING",
                ["RUNNING"],
            )
            table = penstock("status", str(project)).stdout
            assert "order_changes" in table and "connectors at" in table and "RUNNING" in table
            worker.kill()
            away = penstock("status", str(project), check=False)
            assert away.returncode == 1 and "no Connect worker answers" in away.stderr
            penstock("stop", str(project))
