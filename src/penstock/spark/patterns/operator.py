"""The matcher in Spark's transformWithState: rows wait until the watermark has passed them, and are then
matched in order.

Many partitions share a bucket, which is the key of Spark's state, so that Spark's cost per key arises per
bucket instead of per partition. Waiting rows are kept in runs, one for each batch, which are only read when
the watermark passes their first row. A timer of the bucket fires then, or when the time limit of a current
match ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.spark.patterns.clauses import Plan
from penstock.spark.patterns.rows import (
    BUCKET,
    FORMAT,
    PACKED,
    TIME,
    PatternEngine,
    pack,
    packed,
    states_of_bytes,
    states_to_bytes,
    unpacked,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row

BUCKETS = 64
"""Of all partitions: never another number, as it decides where the state of one is."""
_NO_TIMER = -1
_NOTHING_PASSED = -(1 << 63)
_HEAD = "passed bigint, late bigint, timer bigint, next bigint, runs string"


class Packing:
    """For mapInArrow: packs rows."""

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = arrow_schema(self._schema)
        for batch in batches:
            found = list(pack(batch, schema))
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([number for number, _ in found], pa.int32()),
                    pa.array([rows for _, rows in found], pa.binary()),
                ],
                names=[BUCKET, PACKED],
            )


class Whole:
    """For applyInArrow: processes all rows of a bucket at once, in a batch query."""

    def __init__(self, plan: str, keys: int, orders: int, output: str) -> None:
        self._plan = plan
        self._keys = keys
        self._orders = orders
        self._output = output

    def __call__(self, table: pa.Table) -> pa.Table:
        import pyarrow as pa

        engine = PatternEngine(Plan.from_json(self._plan), self._keys, self._orders)
        found = list(engine.run({}, table, 0, finished=True))
        schema = arrow_schema(self._output)
        columns = list(zip(*found, strict=True)) or [()] * len(schema)
        return pa.Table.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)],
            schema=schema,
        )


def arrow_schema(schema: str) -> pa.Schema:
    """Arrow's form of Spark's schema, which is JSON."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    return to_arrow_schema(StructType.fromJson(json.loads(schema)), timezone="UTC")


class Patterns(StatefulProcessor):
    """All fields are plain values: they show whether the state of an earlier query fits."""

    def __init__(self, plan: str, schema: str, keys: int, orders: int, output: tuple[str, ...]) -> None:
        """`schema`: of the rows, as JSON; `output`: the columns of what comes out."""
        self._plan = plan
        self._schema = schema
        self._output = output
        self._keys = keys
        self._orders = orders
        self._format = FORMAT
        self._buckets = BUCKETS

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._head = handle.getValueState("head", _HEAD)
        self._waiting = handle.getMapState("waiting", "run bigint", "rows binary")
        self._matching = handle.getValueState("matching", "partitions binary")
        self._engine = PatternEngine(Plan.from_json(self._plan), self._keys, self._orders)
        self._arrow = arrow_schema(self._schema)

    def _read_head(self) -> tuple[int, int, int, int, list[tuple[int, int]]]:
        found = self._head.get()
        if found is None:
            return _NOTHING_PASSED, 0, _NO_TIMER, 0, []
        passed, late, timer, next_, runs = found
        return passed, late, timer, next_, [(number, first) for number, first in json.loads(runs)]

    def _write_head(
        self, passed: int, late: int, timer: int, next_: int, runs: list[tuple[int, int]]
    ) -> None:
        self._head.update((passed, late, timer, next_, json.dumps(runs)))

    def _set_timer(self, timer: int, wanted: int | None) -> int:
        """One timer for the bucket, at the first millisecond at which there is work."""
        moment = _NO_TIMER if wanted is None else -(-wanted // 1000)
        if moment != timer:
            if timer != _NO_TIMER:
                self._handle.deleteTimer(timer)
            if moment != _NO_TIMER:
                self._handle.registerTimer(moment)
        return moment

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any = None) -> Iterator[Row]:
        """Stores waiting rows. Rows before the matched time are late, and only counted."""
        import pyarrow as pa
        import pyarrow.compute as pc

        passed, late, timer, next_, runs = self._read_head()
        table = pa.Table.from_batches(
            [unpacked(bytes(row[PACKED]), self._arrow) for row in rows], self._arrow
        )
        if passed != _NOTHING_PASSED:
            there = table.num_rows
            table = table.filter(pc.greater(table.column(TIME), passed))
            late += there - table.num_rows
        if table.num_rows:
            first = int(pc.min(table.column(TIME)).as_py())
            self._waiting.updateValue((next_,), (_one(table),))
            runs.append((next_, first))
            next_ += 1
            if timer == _NO_TIMER or -(-first // 1000) < timer:
                timer = self._set_timer(timer, first)
        self._write_head(passed, late, timer, next_, runs)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """The watermark has passed waiting rows, or the time limit of a match."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyspark.sql import Row

        _, late, timer, next_, runs = self._read_head()
        passed = timerValues.getCurrentWatermarkInMs() * 1000
        kept = [(number, first) for number, first in runs if first > passed]
        due = [number for number, first in runs if first <= passed]
        table: pa.Table | None = None
        if due:
            table = pa.Table.from_batches([self._run(number) for number in due], self._arrow)
            for number in due:
                self._waiting.removeKey((number,))
            come = pc.less_equal(table.column(TIME), passed)
            rest = table.filter(pc.invert(come))
            table = table.filter(come)
            if rest.num_rows:
                self._waiting.updateValue((next_,), (_one(rest),))
                kept.append((next_, int(pc.min(rest.column(TIME)).as_py())))
                next_ += 1
        made = Row(*self._output)
        before = self._matching.get()
        states = states_of_bytes(bytes(before[0]) if before is not None else None)
        for found in self._engine.run(states, table, passed):
            yield made(*found)
        if states:
            self._matching.update((states_to_bytes(states),))
        elif before is not None:
            self._matching.clear()
        moments = [first for _, first in kept]
        deadline = self._engine.deadline(states)
        wanted = min(moments if deadline is None else [*moments, deadline], default=None)
        # Spark deletes a timer that has fired.
        fired = timer == expiredTimerInfo.getExpiryTimeInMs()
        timer = self._set_timer(_NO_TIMER if fired else timer, wanted)
        self._write_head(passed, late, timer, next_, kept)

    def _run(self, number: int) -> pa.RecordBatch:
        found = self._waiting.getValue((number,))
        assert found is not None
        return unpacked(bytes(found[0]), self._arrow)

    def close(self) -> None:
        pass


def _one(table: pa.Table) -> bytes:
    """The rows of a table, packed."""
    return packed(table.combine_chunks().to_batches()[0])
