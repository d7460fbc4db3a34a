"""Judges of single steps inside the brokers: what no client can see, or only by much luck.

While `watched` is open, logs are checked with their files right after what changes their segments, what a
step has changed is checked after it, a high watermark may move only where enough replicas are in sync, and
each answer of a coordinator comes in time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from penstock.broker.coordinators.shard_answers import Answers
from penstock.coordinator import Outcome
from penstock.log.check import InvariantViolated
from penstock.log.checkpoint import RECOVERY_POINTS, parse_checkpoint
from penstock.log.partition_log import PartitionLog
from penstock.replication.follower.truncations import Truncations
from penstock.replication.partition import Partition
from tests.sim.brokers.loop import PROCESS, Process, SimLoop

_SLACK_S = 1.0


class _Due(NamedTuple):
    tokens: list[Any]
    at: float
    process: Process
    what: str


class Deadlines:
    """The answers that coordinators owe, and when."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._due: list[_Due] = []

    def owe(self, answers: Answers, outcome: Outcome, timeout_ms: float) -> None:
        tokens = [reply.token for reply in outcome.replies if not reply.token.done()]
        if tokens:
            topic, index = answers._partition.key
            what = f"{PROCESS.get()}: an answer of {topic}-{index} is not sent in {timeout_ms / 1000:g} s"
            self._due.append(_Due(tokens, self._loop.now + timeout_ms / 1000, PROCESS.get(), what))

    def check(self) -> None:
        """A process that stands still answers later."""
        now = self._loop.now
        left = []
        for one in self._due:
            if not one.process.alive or all(token.done() for token in one.tokens):
                continue
            if now > max(one.at, one.process.stopped_until) + _SLACK_S:
                self._loop.failures.append(one.what)
            else:
                left.append(one)
        self._due = left


class Touched:
    """The partitions and logs that have changed since they were last taken, with the process that did it."""

    def __init__(self) -> None:
        self._found: dict[tuple[Process, PartitionLog], None] = {}

    def take(self) -> Iterable[tuple[Process, PartitionLog]]:
        if not self._found:
            return ()  # as after most steps
        found, self._found = self._found, {}
        return found

    def add(self, log: PartitionLog) -> None:
        self._found[PROCESS.get(), log] = None

    def patches(self) -> Iterator[Any]:
        """Whatever sets an attribute of a log or a partition; and what changes only what they refer to."""

        def of_log(log: PartitionLog, name: str, value: object) -> None:
            object.__setattr__(log, name, value)
            self.add(log)

        def of_partition(one: Partition, name: str, value: object) -> None:
            object.__setattr__(one, name, value)
            log = getattr(one, "log", None)
            if log is not None:
                self.add(log)

        def noting(change: Callable[..., Any]) -> Callable[..., Any]:
            def changing(one: Partition, *args: Any, **more: Any) -> Any:
                self.add(one.log)
                return change(one, *args, **more)

            return changing

        yield patch.object(PartitionLog, "__setattr__", of_log)
        yield patch.object(Partition, "__setattr__", of_partition)
        for name in ("follower_fetched", "follower_rested"):
            yield patch.object(Partition, name, noting(getattr(Partition, name)))


def _checked(loop: SimLoop, change: Callable[..., Any]) -> Callable[..., Any]:
    def changing(log: PartitionLog, *args: Any, **more: Any) -> Any:
        result = change(log, *args, **more)
        if log.failed is None:
            try:
                log.check()
            except InvariantViolated as error:
                loop.failures.append(f"{PROCESS.get()}: after {change.__name__}: {error}")
        return result

    return changing


def _moving(loop: SimLoop, move: Callable[..., Any]) -> Callable[..., Any]:
    def moving(one: Partition, *args: Any, **more: Any) -> Any:
        before = one.log.high_watermark
        result = move(one, *args, **more)
        image, needed = one.image, one.log.config.min_insync_replicas
        if one.is_leader and before < one.log.high_watermark and len(image.isr) < needed:
            loop.failures.append(
                f"{PROCESS.get()}: the high watermark of {one.key} moves from {before} to"
                f" {one.log.high_watermark}, {needed} replicas are needed, in sync are {image.isr}"
            )
        return result

    return moving


def _settling(loop: SimLoop, settle: Callable[..., Any]) -> Callable[..., Any]:
    """Before the next append the recovery point on disk is not above what a truncation has left."""

    async def settling(self: Truncations, log: PartitionLog) -> None:
        await settle(self, log)
        path = os.path.join(os.path.dirname(log.directory), RECOVERY_POINTS)
        if not log.is_settled or log.closed or not os.path.exists(path):
            return
        with open(path, "rb") as file:
            rows = parse_checkpoint(file.read(), 3)
        for topic, index, offset in rows:
            if (topic, int(index)) == (log.topic, log.partition) and int(offset) > log.log_end_offset:
                loop.failures.append(
                    f"{PROCESS.get()}: {topic}-{index} ends at {log.log_end_offset} after a truncation, its"
                    f" recovery point on disk is {offset}"
                )

    return settling


class Watch(NamedTuple):
    deadlines: Deadlines
    touched: Touched


@contextmanager
def watched(loop: SimLoop, cleaned: Callable[[PartitionLog], None]) -> Iterator[Watch]:
    """All topics of the simulation have three replicas, so that `min.insync.replicas` is what counts.

    `cleaned` is called when compaction has changed a log.
    """
    deadlines, touched = Deadlines(loop), Touched()
    put = Answers.put

    def putting(self: Answers, outcome: Outcome, offset: int, timeout_ms: int) -> None:
        # The timeout is the host's: what is put is judged by the settings.
        deadlines.owe(self, outcome, timeout_ms)
        put(self, outcome, offset, timeout_ms)

    with ExitStack() as stack:
        for name in ("truncate_to", "finish_swap", "_drop_segments"):
            stack.enter_context(patch.object(PartitionLog, name, _checked(loop, getattr(PartitionLog, name))))
        swap = PartitionLog.finish_swap

        def swapping(log: PartitionLog, *args: Any) -> None:
            swap(log, *args)
            cleaned(log)

        stack.enter_context(patch.object(PartitionLog, "finish_swap", swapping))
        for name in ("append", "_advance"):
            stack.enter_context(patch.object(Partition, name, _moving(loop, getattr(Partition, name))))
        stack.enter_context(patch.object(Answers, "put", putting))
        stack.enter_context(patch.object(Truncations, "_settle", _settling(loop, Truncations._settle)))
        for one in touched.patches():
            stack.enter_context(one)
        yield Watch(deadlines, touched)
