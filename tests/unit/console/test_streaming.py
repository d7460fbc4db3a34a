"""Streaming queries as the console sees them: of a SQL server, of pipelines, and by their progress alone."""

from __future__ import annotations

from penstock.console.reads.pipelines import Pipeline
from penstock.console.reads.streaming import SQL, of_flow, of_progress, of_sql

PROGRESS = {
    "id": "1", "name": "shop.f", "pipeline": "shop", "timestamp": "2024-01-01T00:00:00.000Z", "batch_id": 4,
    "input_rows_per_second": 9.0, "processed_rows_per_second": 12.0, "batch_seconds": 0.5, "state_rows": 3,
    "state_bytes": 99, "lag": 2, "watermark": "2024-01-01T00:00:00.000Z",
    "sources": [{"description": "S", "end_offset": {"in": {"0": 5}}, "latest_offset": {"in": {"0": 7}}}],
}  # fmt: skip


def test_a_sql_query_has_the_topics_of_its_relations():
    relations = {
        "s": {"name": "s", "topic": "orders"},
        "lake": {"name": "lake", "topic": None, "path": "/tables/lake"},
        "out": {"name": "out", "topic": None, "path": "/tables/out"},
    }
    found = {
        "id": "q1", "state": "RUNNING", "error": None, "failures": 1, "statement": "INSERT", "writes": "out",
        "reads": ["lake", "s", "implicit"], "input rows per second": 9.0, "rows per second": 12.0, "lag": 2,
        "bytes of state": 99, "offsets": [{"source": "S", "end": {"orders": {"0": 5}}, "latest": None}],
    }  # fmt: skip
    query = of_sql(found, relations)
    assert (query.key, query.reads, query.tables) == ((SQL, "q1"), ("orders", "implicit"), ("/tables/lake",))
    assert (query.writes, query.target, query.groups) == ((), "/tables/out", ("penstock-q1",))
    assert (query.input_rate, query.rate, query.lag, query.state_bytes) == (9.0, 12.0, 2, 99)
    assert (query.offsets[0].end, query.offsets[0].latest) == ('{"orders": {"0": 5}}', "-")


def test_a_flow_of_an_earlier_version_has_the_topics_of_its_progress():
    flow = {"name": "f", "state": "running", "target": "t", "kind": "sink", "progress": PROGRESS}
    query = of_flow(Pipeline("shop", "/shop", "running", None, (flow,)), flow)
    assert (query.key, query.reads, query.target) == (("shop", "f"), ("in",), "t")
    assert (query.batch, query.rate, query.state_rows, query.state_bytes) == (4, 12.0, 3, 99)


def test_a_query_elsewhere_is_known_by_its_progress_and_cannot_be_steered():
    then = 1_704_067_200.0
    query = of_progress(PROGRESS, then + 10)
    assert (query.key, query.state, query.steered, query.reads) == (("shop", "f"), "running", False, ("in",))
    assert query.groups == ("penstock-shop.f",)
    assert of_progress(PROGRESS, then + 100).state == "no progress"
    assert of_progress({**PROGRESS, "pipeline": "sql", "name": "q"}, then).key == (SQL, "q")
    assert of_progress({"id": "7"}, then).key == ("Spark", "7")
