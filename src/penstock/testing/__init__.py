"""A real Penstock broker for tests: a context manager and a pytest fixture.

`PenstockBroker` runs a broker in a process of its own; `penstock.testing.plugin` gives it to tests
as the fixture `penstock`. The names are loaded on first use, because pytest imports this package
in every run, also in those that never ask for a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.broker import PenstockBroker
    from penstock.testing.client import ConsumedRecord, WireClient

__all__ = ["ConsumedRecord", "PenstockBroker", "WireClient"]


def __getattr__(name: str) -> Any:
    if name == "PenstockBroker":
        from penstock.testing.broker import PenstockBroker

        return PenstockBroker
    if name in ("ConsumedRecord", "WireClient"):
        from penstock.testing import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
