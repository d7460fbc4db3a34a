"""Resources that the tests read: a table that grows, pages, an API that is away."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from typing import Any

import dlt
import pyarrow

ROWS: list[dict[str, Any]] = []
UPDATED: Any = dlt.sources.incremental("updated", initial_value=0)
AWAY: list[Exception] = []
READ: list[int] = []


@dlt.resource(primary_key="id")
def changed(after: int = 0, updated: Any = UPDATED) -> Iterator[Any]:
    """Rows as an API has them: those since the cursor, not in its order, in pages."""
    rows = [row for row in ROWS if row["updated"] >= updated.last_value and row["id"] > after]
    for start in range(0, len(rows), 10):
        READ.append(start)
        yield rows[start : start + 10]
        if AWAY:
            raise AWAY.pop()


@dlt.resource
def types() -> Iterator[Any]:
    yield {"day": datetime.date(2026, 1, 2), "price": decimal.Decimal("1.50"), "deep": {"list": [1, None]}}
    yield pyarrow.table({"n": list(range(3))})


@dlt.resource
def endless() -> Iterator[Any]:
    number = 0
    while True:
        READ.append(number)
        yield {"n": number}
        number += 1


@dlt.resource
def hoards() -> Iterator[Any]:
    dlt.current.resource_state()["seen"] = "x" * 1_000_000
    yield {"n": 1}


def no_resource() -> int:
    return 1


@dlt.resource(primary_key="id")
def invoices(count: int) -> Iterator[Any]:
    for number in range(count):
        yield {"id": number, "day": datetime.date(2026, 1, 1 + number % 28), "lines": [{"sku": f"s{number}"}]}
