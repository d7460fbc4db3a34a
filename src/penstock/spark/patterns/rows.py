"""Runs the matcher over rows in Arrow: the partitions of a bucket, their rows in order, their matches.

Rows are passed and stored as Arrow messages, packed by bucket: Spark moves a few large values instead of many
rows. The state of the partitions is a pickle of plain values; the unpickler creates no other objects.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.spark.patterns.clauses import Plan
from penstock.spark.patterns.matcher import Match, Matcher, PatternPartition
from penstock.spark.patterns.registers import Register

if TYPE_CHECKING:
    import pyarrow as pa

TIME, HOLDS, BUCKET, PACKED = "time", "holds", "bucket", "rows"
"""Columns: microseconds; the conditions that hold, a bit for each; the number of the bucket; packed rows."""
FORMAT = 1
"""Of the state. Another number makes queries of an earlier one ask for a rebuild."""

States = dict[Any, tuple[tuple[Any, ...], tuple[Any, ...]]]
"""By the key of a partition: what the matcher saves, and the last rows for PREV."""
Output = tuple[Any, ...]


class PatternEngine:
    """The matcher for the partitions of a bucket."""

    def __init__(self, plan: Plan, keys: int, orders: int) -> None:
        """`keys`: how many columns form the key; `orders`: how many further columns define the order."""
        program, self._alone = plan.program()
        self._matcher = Matcher(program)
        self._plan = plan
        self._before, self._most_before = plan.before, plan.most_before
        self._keys = [f"k{at}" for at in range(keys)]
        self._columns = [f"c{at}" for at in range(len(plan.kinds))]
        self._order = [(name, "ascending") for name in (TIME, *(f"o{at}" for at in range(orders)))]
        self._outputs = plan.output_registers()
        self._shown = [
            _converted(register, program.automaton.variables, plan.kind_of(register))
            for register in self._outputs
        ]
        self._updates = [register.updater() for register in self._outputs]

    def run(
        self, states: States, table: pa.Table | None, passed: int, *, finished: bool = False
    ) -> Iterator[Output]:
        """Adds rows to the partitions; all rows up to `passed` have arrived then. Changes `states`."""
        open_: dict[Any, PatternPartition] = {}
        if table is not None and table.num_rows:
            yield from self._take(states, open_, table)
        for key in list(states) if finished or self._plan.within is not None else ():
            # Those whose time limit has passed, even without a new row.
            partition = open_.get(key)
            if partition is None:
                (_, rows, *_), _ = states[key]
                if not rows or not (finished or rows[0][0] + self._plan.within <= passed):
                    continue
                partition = open_[key] = PatternPartition(self._matcher, states[key][0])
            found = partition.finish() if finished else partition.passed(passed)
            for match in found:
                yield from self._output(key, match)
        for key, partition in open_.items():
            recent = states[key][1]
            if partition.idle and not recent and not (self._plan.numbered and partition.number):
                del states[key]
            else:
                states[key] = (partition.saved(), recent)

    def deadline(self, states: States) -> int | None:
        """When the earliest time limit of a partition ends."""
        within = self._plan.within
        if within is None:
            return None
        return min((rows[0][0] + within for (_, rows, *_), _ in states.values() if rows), default=None)

    def _take(self, states: States, open_: dict[Any, PatternPartition], table: pa.Table) -> Iterator[Output]:
        table = table.sort_by(self._order)
        lists = [table.column(name).to_pylist() for name in self._keys]
        keys = lists[0] if len(lists) == 1 else list(zip(*lists, strict=True)) or [()] * table.num_rows
        values = [table.column(name).to_pylist() for name in self._columns]
        rows = zip(*values, strict=True) if values else iter([()] * table.num_rows)
        matcher, extended = self._matcher, bool(self._plan.before or self._alone)
        for key, time, holds, row in zip(
            keys, table.column(TIME).to_pylist(), table.column(HOLDS).to_pylist(), rows, strict=True
        ):
            partition = open_.get(key)
            if partition is None:
                saved = states.get(key)
                partition = open_[key] = PatternPartition(matcher, saved[0] if saved is not None else None)
                if saved is None:
                    states[key] = (_NEW, ())
            if extended:
                holds, row = self._extended(states, key, holds, row)
            for match in partition.push((time, holds, row)):
                yield from self._output(key, match)

    def _extended(
        self, states: States, key: Any, holds: int, row: tuple[Any, ...]
    ) -> tuple[int, tuple[Any, ...]]:
        """A row with the columns of previous rows, and with the conditions that use these."""
        saved, recent = states[key]
        whole = row
        if self._before:
            there = len(recent)
            whole += tuple(
                recent[there - back][column] if back <= there else None for column, back in self._before
            )
            states[key] = (saved, (*recent, row)[-self._most_before :])
        for variable, condition in self._alone:
            if condition(whole, ()) is not True:
                holds &= ~(1 << variable)
        return holds, whole

    # -- output

    def _output(self, key: Any, match: Match) -> Iterator[Output]:
        registers = self._outputs
        held = [each.start() for each in registers]
        plan, running = self._plan, []
        for variable, (_, _, values) in match.rows:
            for at, register in enumerate(registers):
                if register.concerns(variable):
                    held[at] = self._updates[at](held[at], values, variable)
            if plan.all_rows:
                running.append((values, tuple(held)))
        last = self._values(held, match)
        if not plan.all_rows:
            yield (*(key if len(self._keys) != 1 else (key,)), *last)
            return
        for values, then in running:
            now = self._values(then, match)
            measures = (
                end if register.final else value
                for register, value, end in zip(registers, now, last, strict=True)
            )
            yield (*(values[at] for at in plan.shown), *measures)

    def _values(self, held: Sequence[Any], match: Match) -> tuple[Any, ...]:
        return tuple(
            match.number if register.kind == "match_number" else convert(register.value(one))
            for register, convert, one in zip(self._outputs, self._shown, held, strict=True)
        )


_NEW = (0, (), (), 0, 0)


def _converted(register: Register, variables: Sequence[str], kind: str) -> Callable[[Any], Any]:
    """The value of a register in the type of its column."""
    if register.kind == "classifier":
        return lambda label: None if label is None else variables[label]
    if register.kind == "sum" and kind == "int":
        # Spark's sums of integers wrap around.
        return lambda value: None if value is None else (value + (1 << 63)) % (1 << 64) - (1 << 63)
    return lambda value: value


# Rows as bytes


def pack(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[tuple[int, bytes]]:
    """The rows of each bucket as one value; the column of the bucket is left out."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not batch.num_rows:
        return
    numbers = batch.column(batch.schema.get_field_index(BUCKET))
    order = pc.sort_indices(numbers)
    ordered = numbers.take(order).to_numpy(zero_copy_only=False)
    columns = [batch.column(batch.schema.get_field_index(name)).take(order) for name in schema.names]
    rows = pa.RecordBatch.from_arrays(
        [column.cast(kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
    )
    starts = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), batch.num_rows]
    for start, end in pairwise(starts):
        yield int(ordered[start]), packed(rows.slice(start, end - start))


def packed(batch: pa.RecordBatch) -> bytes:
    return bytes(batch.serialize().to_pybytes())


def unpacked(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.ipc.read_record_batch(pa.py_buffer(data), schema)


# The state as bytes


class _Plain(pickle.Unpickler):
    """Allows only plain values and decimals, so that a manipulated checkpoint cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("decimal", "Decimal"), ("_decimal", "Decimal")):
            return Decimal
        if module == "datetime" and name in ("datetime", "date", "timedelta", "timezone"):
            import datetime

            return getattr(datetime, name)
        raise pickle.UnpicklingError(f"the state of a pattern has no {module}.{name}")


def states_to_bytes(states: States) -> bytes:
    return pickle.dumps((FORMAT, states), protocol=5)


def states_of_bytes(data: bytes | None) -> States:
    if data is None:
        return {}
    number, states = _Plain(io.BytesIO(data)).load()
    if number != FORMAT:
        raise ValueError(f"the state of this pattern has the format {number}, and {FORMAT} is read here")
    found: States = states
    return found
