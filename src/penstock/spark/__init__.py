"""Kafka topics in Spark: the data source, the exactly-once sink, and helpers for streams.

Spark's Python workers import this package for every task, so names are loaded when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.sessions import session
    from penstock.spark.source.data_source import PenstockDataSource

_HOMES = {
    "session": "penstock.spark.sessions",
    "PenstockDataSource": "penstock.spark.source.data_source",
}
_MODULES = ("delta", "streams")

__all__ = ["session", "PenstockDataSource"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    try:
        import pyspark  # noqa: F401 - the names below need it sooner or later: say so at once

        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        from penstock.errors import MissingExtra

        missing = MissingExtra(f"penstock.spark.{name}", error.name, "spark")
        raise ModuleNotFoundError(str(missing), name=error.name) from None
