"""Log lines for changed partitions: one line for each kind of change, however many partitions change.
Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from penstock.controller.elections import PartitionChange
from penstock.metadata.image import NO_LEADER
from penstock.metadata.partition_names import some_of


def summaries(changes: Iterable[PartitionChange]) -> Iterator[tuple[int, str]]:
    """Log levels and lines. If a broker fails there is one line for each new leader, not one for each
    partition."""
    kinds: dict[tuple[int, str], list[str]] = {}
    for change in changes:
        for kind in _kinds(change):
            kinds.setdefault(kind, []).append(f"{change.topic}-{change.new.index}")
    for (level, what), names in kinds.items():
        count = f"{len(names)} partition{'s' if len(names) > 1 else ''}"
        yield level, f"{what} for {count}: {some_of(names)}"


def _kinds(change: PartitionChange) -> Iterator[tuple[int, str]]:
    old, new = change.old, change.new
    if new.leader == old.leader:
        pass
    elif new.leader == NO_LEADER:
        yield logging.WARNING, f"no leader (broker {old.leader} is offline)"
    elif new.leader not in old.isr:
        yield logging.WARNING, f"unclean leader election of broker {new.leader}, which may lose records,"
    else:
        before = "none" if old.leader == NO_LEADER else f"broker {old.leader}"
        yield logging.INFO, f"new leader broker {new.leader} (was {before})"
    for replica in set(old.isr) - set(new.isr):
        yield logging.INFO, f"shrinking ISR by broker {replica}"
    if old.replicas != new.replicas:
        if new.adding or new.removing:
            target = [replica for replica in new.replicas if replica not in new.removing]
            yield logging.INFO, f"reassignment to brokers {_numbers(target)} started"
        else:
            yield logging.INFO, f"reassignment to brokers {_numbers(new.replicas)} completed"


def _numbers(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
