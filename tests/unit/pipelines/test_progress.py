"""Spark's progress JSON becomes the numbers that people watch."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from penstock.spark.progress import QueryProgress, Watch, _serve_metrics, lag_between
from penstock.web.metrics import MetricsSettings

PROGRESS: dict[str, Any] = {
    "id": "8", "runId": "9", "name": "shop.counts", "timestamp": "2026-01-01T00:00:00.000Z", "batchId": 7,
    "batchDuration": 250, "durationMs": {"triggerExecution": 250, "addBatch": 200}, "numInputRows": 100,
    "inputRowsPerSecond": 400.0, "processedRowsPerSecond": "NaN",
    "eventTime": {"watermark": "2026-01-01T00:00:05.000Z", "max": "2026-01-01T00:00:15.000Z"},
    "stateOperators": [
        {"numRowsTotal": 10, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 5, "memoryUsedBytes": 500},
    ],
    "sources": [
        {
            "description": "penstock", "numInputRows": 100,
            "startOffset": '{"orders":{"0":1}}', "endOffset": '{"orders":{"0":40,"1":60}}',
            "latestOffset": '{"orders":{"0":50,"1":60,"2":5}}',
        }
    ],
    "sink": {"description": "x", "numOutputRows": -1},
}  # fmt: skip


@pytest.mark.promise("pipelines", "Progress is exported as metrics with the pipeline and the flow as labels")
def test_all_that_is_watched_is_in_it():
    progress = QueryProgress.from_json(PROGRESS)
    assert (progress.batch_id, progress.input_rows, progress.batch_seconds) == (7, 100, 0.25)
    assert (progress.input_rows_per_second, progress.processed_rows_per_second) == (400.0, 0.0)
    assert (progress.state_rows, progress.state_bytes, progress.late_rows) == (15, 1500, 2)
    assert progress.watermark == "2026-01-01T00:00:05.000Z"
    assert progress.watermark_seconds == 1767225605.0
    assert progress.output_rows is None
    assert progress.lag == 15
    assert progress.sources[0].end_offset == {"orders": {"0": 40, "1": 60}}
    assert json.loads(json.dumps(progress.to_json()))["sources"][0]["lag"] == 15


def test_a_watermark_that_has_not_moved_is_none():
    progress = QueryProgress.from_json({**PROGRESS, "eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}})
    assert (progress.watermark, progress.watermark_seconds) == (None, None)


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        ({"t": {"0": 5}}, {"t": {"0": 5}}, 0),
        ({"t": {"0": 9}}, {"t": {"0": 5}}, 0),
        (None, {"t": {"0": 5}}, None),
        ({"t": {"0": 5}}, None, None),
        (5, 7, None),
        ({"logOffset": 3}, {"logOffset": 4}, None),
        ({"t": 3}, {"t": {"0": 4}}, None),
    ],
)
def test_lag_is_told_only_where_offsets_are_kafkas(end: Any, latest: Any, lag: int | None):
    assert lag_between(end, latest) == lag


@pytest.mark.promise("pipelines", "Progress is exported as metrics with the pipeline and the flow as labels")
def test_metrics_have_the_pipeline_and_the_flow_as_labels():
    watching = Watch("shop", None)
    server = _serve_metrics(watching, MetricsSettings(0))
    try:
        watching.progressed(QueryProgress.from_json(PROGRESS))
        watching.progressed(QueryProgress.from_json(PROGRESS))
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        assert 'penstock_query_lag_records{flow="counts",pipeline="shop"} 15.0' in text
        assert 'penstock_query_input_rows_total{flow="counts",pipeline="shop"} 200.0' in text
        assert 'penstock_query_running{flow="counts",pipeline="shop"} 1.0' in text
        watching.finished("8", None)
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=30) as answer:
            assert 'penstock_query_running{flow="counts",pipeline="shop"} 0.0' in answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
