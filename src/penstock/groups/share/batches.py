"""The delivery states of offsets, and runs of offsets with the same state."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# The numbers are those in the log.
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
DYING = 3
"""Spent or rejected, and not yet in the dead-letter topic. Never in the log: there it is available, with the
delivery count at its limit, so that who loads it knows that it is not to be delivered again."""
REJECTED_COUNT = 1 << 14
"""More than any limit of deliveries: in the log, added to the count of what was rejected and is dying."""

TERMINAL = frozenset((ACKNOWLEDGED, ARCHIVED))


class StateBatch(NamedTuple):
    """The offsets from `first` to `last`, both included."""

    first: int
    last: int
    state: int
    delivery_count: int


def overlay(old: Sequence[StateBatch], new: Iterable[StateBatch], start: int) -> tuple[StateBatch, ...]:
    """`old` overwritten by `new`, from offset `start` on. Neither has overlapping runs; `old` is sorted."""
    over = sorted(new)
    lasts = [batch.last for batch in over]
    pieces = list(over)
    for batch in old:
        first, last, state, count = batch
        index = bisect_left(lasts, first)
        while index < len(over) and over[index].first <= last:
            if over[index].first > first:
                pieces.append(StateBatch(first, over[index].first - 1, state, count))
            first = over[index].last + 1
            index += 1
        if first <= last:
            pieces.append(StateBatch(first, last, state, count) if first != batch.first else batch)
    pieces.sort()
    return tuple(merged(_from(start, pieces)))


def _from(start: int, batches: Iterable[StateBatch]) -> Iterable[StateBatch]:
    for batch in batches:
        if batch.first >= start:
            yield batch
        elif batch.last >= start:
            yield batch._replace(first=start)


def merged(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Merges neighbours with the same state; the delivery count of completed ones does not matter."""
    found: list[StateBatch] = []
    for batch in batches:
        if found:
            before = found[-1]
            if (
                before.last + 1 == batch.first
                and before.state == batch.state
                and (before.delivery_count == batch.delivery_count or batch.state in TERMINAL)
            ):
                found[-1] = StateBatch(
                    before.first, batch.last, batch.state, max(before.delivery_count, batch.delivery_count)
                )
                continue
        found.append(batch)
    return found
