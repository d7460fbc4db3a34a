"""What `penstock pipeline` shows of a status and its events."""

from __future__ import annotations

import io
from typing import Any

from penstock.cli.pipelines.view import COLUMNS, LiveTable, event_lines, problems, row

PROGRESS = {
    "input_rows_per_second": 9.87, "processed_rows_per_second": 12.34, "state_bytes": 2048,
    "batch_id": 7, "batch_seconds": 0.25, "state_rows": 15, "lag": 3,
    "watermark": "2026-01-01T00:00:05.000Z", "sources": [],
}  # fmt: skip
STATUS: dict[str, Any] = {
    "pipeline": "shop",
    "state": "degraded",
    "file_error": "a.sql:3: no",
    "pending": [{"flow": "c", "action": "rebuild", "reasons": ["its state changed"]}],
    "flows": [
        {"name": "a", "target": "t", "kind": "sink", "state": "running", "restarts": 0, "progress": PROGRESS},
        {"name": "b", "target": "u", "kind": "sink", "state": "failed", "restarts": 2, "retry_in": 4.0,
         "error": "NoSuchTopic: x", "progress": None},
        {"name": "c", "target": "v", "kind": "sink", "state": "held", "restarts": 0, "hold": ["x"],
         "progress": None},
    ],
}  # fmt: skip


def test_a_flow_is_one_row_of_numbers():
    cells = dict(zip(COLUMNS, row(STATUS["flows"][0]), strict=True))
    assert cells == {
        "flow": "a", "into": "t (sink)", "state": "running", "in/s": 9.9, "rows/s": 12.3, "batch": 7,
        "took": "0.25 s", "watermark": "2026-01-01 00:00:05.000", "state rows": 15, "state size": "2.0 KiB",
        "lag": 3, "restarts": None,
    }  # fmt: skip
    assert row(STATUS["flows"][1])[2] == "failed, again in 4 s"
    assert row(STATUS["flows"][2])[2] == "change pending"


def test_what_a_person_should_look_at_is_said_in_lines():
    assert problems(STATUS) == [
        "the files have an error; the last good version runs on: a.sql:3: no",
        "b: NoSuchTopic: x",
        "pending until `penstock pipeline apply`: rebuild c: its state changed",
    ]


def test_a_plan_says_what_is_applied_and_what_waits():
    changes = [
        {"flow": "a", "action": "keep", "reasons": [], "applied": True},
        {"flow": "b", "action": "rebuild", "reasons": ["its sources changed"], "applied": False},
    ]
    assert event_lines({"event": "plan", "changes": changes}) == [
        "plan:",
        "  keep a",
        "  rebuild b: its sources changed   <- pending until `penstock pipeline apply`",
    ]


def test_a_failure_is_one_line_with_the_time_of_the_next_try():
    event = {"event": "failed", "flow": "b", "error": "NoSuchTopic: x", "retry_in": 0.8}
    assert event_lines(event) == ["b failed: NoSuchTopic: x; again in 0.8 s"]


def test_the_live_table_shows_flows_problems_and_events():
    out = io.StringIO()
    with LiveTable(out, lambda: STATUS) as live:
        live.event({"event": "started", "flow": "a"})
    shown = out.getvalue()
    for text in ("shop: degraded", "NoSuchTopic: x", "rebuild c", "a runs"):
        assert text in shown
