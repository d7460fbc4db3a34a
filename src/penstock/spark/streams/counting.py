"""Windows of N records, which Spark lacks: with transformWithState, whose records are in RocksDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.spark.errors import BadOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.types import StructType


def count_windows(
    records: DataFrame,
    key: str | Sequence[str],
    size: int,
    advance: int | None = None,
    *,
    order_by: Sequence[str] = ("offset",),
) -> DataFrame:
    """One row for every `size` records of a key: the key, `window` (0, 1, …) and the array `records`.

    With `advance`, every so many records the last `size` of them; without it, windows do not overlap. Records
    of one batch are taken in the order of `order_by`, by default the source's column `offset`: as they are in
    their partition. A window that is not full waits, however long. What is wanted of a window is said in SQL:
    `aggregate(records, …)`, `array_max(records.amount)`.
    """
    from pyspark.sql.types import ArrayType, LongType, StructType

    keys = [key] if isinstance(key, str) else list(key)
    step = size if advance is None else advance
    if not 1 <= step <= size:
        raise BadOption(f"count_windows: size={size} and advance={advance}; advance must be from 1 to size")
    for name in (*keys, *order_by):
        if name not in records.columns:
            raise BadOption(
                f"count_windows: there is no column {name} among {', '.join(records.columns)}."
                " Keep it in the select before, or give other columns as order_by"
            )
    result = StructType([records.schema[name] for name in keys])
    result = result.add("window", LongType()).add("records", ArrayType(records.schema))
    processor = _CountWindows(records.schema, tuple(keys), size, step, tuple(order_by))
    return records.groupBy(*keys).transformWithState(processor, result, "Append", "None")


class _CountWindows(StatefulProcessor):
    """For each key the records of the window that is not full yet, and how many windows there have been."""

    def __init__(
        self, schema: StructType, keys: tuple[str, ...], size: int, step: int, order_by: tuple[str, ...]
    ) -> None:
        self._schema = schema
        self._keys = keys
        self._size = size
        self._step = step
        self._order_by = order_by

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._waiting = handle.getListState("waiting", self._schema)
        self._windows = handle.getValueState("windows", "number bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any = None) -> Iterator[Row]:
        from pyspark.sql import Row

        came = list(rows)
        if self._order_by:
            came.sort(key=lambda row: tuple((row[name] is not None, row[name]) for name in self._order_by))
        held: list[Any] = list(self._waiting.get()) if self._waiting.exists() else []
        before = self._windows.get()
        first = number = 0 if before is None else before[0]
        for row in came:
            held.append(row)
            if len(held) == self._size:
                yield Row(**dict(zip(self._keys, key)), window=number, records=[tuple(one) for one in held])
                number += 1
                del held[: self._step]
        if held:
            self._waiting.put([tuple(one) for one in held])
        else:
            self._waiting.clear()
        if number != first:
            self._windows.update((number,))

    def close(self) -> None:
        pass
