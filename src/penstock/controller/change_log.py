"""What the log says of changed partitions: one line for each kind of change, however many there are. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from penstock.controller.elections import PartitionChange
from penstock.metadata.image import NO_LEADER

_NAMED = 3
"""So many partitions are named; the others are counted."""


def summaries(changes: Iterable[PartitionChange]) -> Iterator[tuple[int, str]]:
    """Levels and lines: a broker that dies costs a line for each successor, not one for each partition."""
    kinds: dict[tuple[int, str], list[str]] = {}
    for change in changes:
        for kind in _kinds(change):
            kinds.setdefault(kind, []).append(f"{change.topic}-{change.new.index}")
    for (level, what), names in kinds.items():
        count = f"{len(names)} partition{'s' if len(names) > 1 else ''}"
        yield level, f"{count} {what}: {some_of(names)}"


def some_of(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _kinds(change: PartitionChange) -> Iterator[tuple[int, str]]:
    old, new = change.old, change.new
    if new.leader == old.leader:
        pass
    elif new.leader == NO_LEADER:
        yield logging.WARNING, f"led by nobody any more, broker {old.leader} is gone"
    elif new.leader not in old.isr:
        yield logging.WARNING, f"led by broker {new.leader}, which was not in sync: records may be lost"
    else:
        before = "nobody" if old.leader == NO_LEADER else f"broker {old.leader}"
        yield logging.INFO, f"led by broker {new.leader}, no longer by {before}"
    for replica in set(old.isr) - set(new.isr):
        yield logging.INFO, f"without broker {replica} in sync"
    if old.replicas != new.replicas:
        if new.adding or new.removing:
            target = [replica for replica in new.replicas if replica not in new.removing]
            yield logging.INFO, f"on the way to brokers {_numbers(target)}"
        else:
            yield logging.INFO, f"on brokers {_numbers(new.replicas)} now"


def _numbers(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
