"""Nexmark: the queries 0 to 8 of `examples/sql/nexmark.sql` give what a plain batch computation gives."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.sql import nexmark
from penstock.testing import PenstockBroker
from tests.sql import nexmark_batch
from tests.sql.serving import SqlClient

FILE = Path(__file__).parents[2] / "examples" / "sql" / "nexmark.sql"
EVENTS = 6000
PER_SECOND = 150
"""So that they span 40 seconds, some windows of each query."""
WAIT_SECONDS = 200.0
Value = dict[str, Any]
Row = tuple[Any, ...]


def milliseconds(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp() * 1000)


def window(value: Value) -> tuple[int, int]:
    return milliseconds(value["window_start"]), milliseconds(value["window_end"])


# How the rows of the batch computation are read from the values of a topic.
ROWS: dict[str, Callable[[Value], Row]] = {
    "q0": lambda v: (v["auction"], v["bidder"], v["price"], v["channel"], v["date_time"]),
    "q1": lambda v: (v["auction"], v["bidder"], round(v["price"] * 1000), v["date_time"]),
    "q2": lambda v: (v["auction"], v["price"]),
    "q3": lambda v: (v["name"], v["city"], v["state"], v["auction"]),
    "q4": lambda v: (v["category"], v["average"]),
    "q5": lambda v: (*window(v), v["auction"], v["bids"]),
    "q6": lambda v: (v["auction"], v["seller"], v["average"]),
    "q7": lambda v: (*window(v), v["price"], v["auction"], v["bidder"]),
    "q8": lambda v: (v["id"], v["name"], v["since"], v["auctions"]),
}


def sections() -> dict[str, str]:
    """The statements of each query; those before the first, which the others share, under ``."""
    pieces = re.split(r"^-- Query (\d).*$", FILE.read_text(), flags=re.MULTILINE)
    return {"": pieces[0]} | {f"q{number}": text for number, text in zip(pieces[1::2], pieces[2::2])}


def values(broker: PenstockBroker, topic: str, *, table: bool) -> list[Value]:
    records = broker.consume(topic, isolation="read_committed", timeout=30)
    if table:
        newest = {record.key: record.value for record in records}
        return [json.loads(value) for value in newest.values() if value is not None]
    return [json.loads(record.value) for record in records if record.value is not None]


def close(one: Row, other: Row) -> bool:
    return len(one) == len(other) and all(
        a == pytest.approx(b, rel=1e-9) if isinstance(a, float) else a == b for a, b in zip(one, other)
    )


@pytest.fixture(scope="module")
def events(sql_broker: PenstockBroker) -> nexmark.Events:
    nexmark.produce(sql_broker.bootstrap, EVENTS, partitions=2, seed=17, per_second=PER_SECOND)
    return nexmark.whole(EVENTS, seed=17, per_second=PER_SECOND)


# Query 6 reads a table that query 4 makes, so they run together.
@pytest.mark.promise("sql", "Nexmark's queries 0 to 8 give the same results as a batch computation in Python")
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "queries", [("q0", "q1", "q2"), ("q3",), ("q4", "q6"), ("q5", "q7"), ("q8",)], ids="-".join
)
def test_a_nexmark_query_gives_what_a_batch_computation_gives(
    queries: tuple[str, ...], sql: SqlClient, sql_broker: PenstockBroker, events: nexmark.Events
) -> None:
    statements = sections()
    shared = statements[""].replace("CREATE STREAM", "CREATE STREAM IF NOT EXISTS")
    sql.ok(shared + "".join(statements[query] for query in queries))
    try:
        for query in queries:
            await_result(query, nexmark_batch.QUERIES[query](events), sql_broker, sql)
    finally:
        sql.run("TERMINATE ALL;")


def await_result(query: str, expected: list[Row], broker: PenstockBroker, sql: SqlClient) -> None:
    table = f"CREATE TABLE {query} " in FILE.read_text()
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        asked = time.monotonic()
        found = sorted(map(ROWS[query], values(broker, query, table=table)))
        if len(found) == len(expected) and all(map(close, found, expected)):
            return
        # A stream is never taken back: more rows than expected are an error at once.
        if time.monotonic() > deadline or (not table and len(found) > len(expected)):
            wrong = [pair for pair in zip(found, expected) if not close(*pair)][:3]
            states = sql.http.get("/queries").json()
            raise AssertionError(f"{query}: {len(found)} rows, not {len(expected)}: {wrong}; {states}")
        # As long again as reading took: the cores are for the query that is awaited.
        time.sleep(max(0.1, time.monotonic() - asked))
