"""Kafka topics in Spark: the data source, the exactly-once sink, and what streams need beside them.

Spark's Python workers import this package for every task, so names are loaded when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.sessions import session
    from penstock.spark.source import PenstockDataSource

_HOMES = {
    "session": "penstock.spark.sessions",
    "PenstockDataSource": "penstock.spark.source",
}

__all__ = ["session", "PenstockDataSource"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
