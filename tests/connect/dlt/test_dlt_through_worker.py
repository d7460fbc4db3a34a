"""A dlt resource to a topic and from there to DuckDB, by a worker."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tests.connect.conftest import Topics, Worker, until

WAIT_SECONDS = 200.0  # the library takes seconds of processor time to start
PLAIN = {"value.converter": "json", "value.converter.schemas.enable": "false", "key.converter": "json"}


@pytest.mark.timeout(800)
@pytest.mark.promise(
    "connect",
    "dlt: records become rows of any destination; with write_disposition=merge each row is there once",
)
def test_a_resource_goes_through_a_topic_to_duckdb(
    worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "target.duckdb"
    worker.put(
        f"{name}-in",
        {
            **PLAIN,
            "connector.class": "penstock.connect.connectors.dlt:DltSource",
            "resource": "dlt_resources:invoices",
            "arguments": '{"count": 250}',
            "topic": name,
            "poll.interval.ms": "3600000",
        },
    )
    (first, *_) = topics.read(name, 250)
    assert first.value() == b'{"id":0,"day":"2026-01-01","lines":[{"sku":"s0"}]}'
    worker.put(
        f"{name}-out",
        {
            **PLAIN,
            "connector.class": "penstock.connect.connectors.dlt:DltSink",
            "topics": name,
            "destination": "duckdb",
            "destination.arguments": f'{{"credentials": "{path}"}}',
            "table.name.format": "invoices",
            "flush.size": "100",
        },
    )

    def committed() -> bool:
        found = worker.http.get(f"/connectors/{name}-out/offsets").json()["offsets"]
        return [each["offset"]["kafka_offset"] for each in found] == [250]

    # Not by looking into the file: DuckDB's lock would keep the sink out.
    until(committed, "the offsets are committed", lambda: str(worker.status(f"{name}-out")), WAIT_SECONDS)
    with duckdb.connect(str(path), read_only=True) as connection:
        found = connection.execute("SELECT id, _kafka_offset FROM kafka.invoices ORDER BY 1").fetchall()
    assert found == [(number, number) for number in range(250)]
    for each in ("in", "out"):
        worker.http.delete(f"/connectors/{name}-{each}")
