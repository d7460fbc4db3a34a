"""Small helpers on ordinary DataFrames for what Spark's streaming API lacks.

    attempt, divert           a function that may fail, and a dead-letter topic for what it failed on
    count_windows             windows of N records
    match_recognize           patterns over several records, as SQL's MATCH_RECOGNIZE finds them
    late_to_topic             late records go to a topic instead of being dropped
    table                     a compacted topic as a table that changes
    state, stateful_operators the state of a running query
    batches_to_topics         for foreachBatch: update mode into topics, exactly once

Everything else is in Spark: docs/streams.md has the list. Names are loaded on first use, as in
penstock.spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.streams.batches import batches_to_topics
    from penstock.spark.streams.counting import count_windows
    from penstock.spark.streams.dead_letters import attempt, divert
    from penstock.spark.streams.inspecting import state, stateful_operators
    from penstock.spark.streams.late import late_to_topic
    from penstock.spark.streams.patterns import match_recognize
    from penstock.spark.streams.tables import table

_HOMES = {
    "attempt": "dead_letters",
    "batches_to_topics": "batches",
    "count_windows": "counting",
    "divert": "dead_letters",
    "late_to_topic": "late",
    "match_recognize": "patterns",
    "state": "inspecting",
    "stateful_operators": "inspecting",
    "table": "tables",
}

__all__ = [
    "attempt",
    "batches_to_topics",
    "count_windows",
    "divert",
    "late_to_topic",
    "match_recognize",
    "state",
    "stateful_operators",
    "table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
