"""Judges of single steps inside the brokers: what no client can see, or only by much luck.

While `watched` is open, logs are checked with their files right after what changes their segments, a high
watermark may move only where enough replicas are in sync, and each answer of a coordinator comes in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from penstock.broker.coordinators.shard_answers import Answers
from penstock.coordinator import Outcome
from penstock.log.check import InvariantViolated
from penstock.log.partition_log import PartitionLog
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


def _checked(loop: SimLoop, change: Callable[..., Any]) -> Callable[..., Any]:
    def changing(log: PartitionLog, *args: Any, **more: Any) -> Any:
        result = change(log, *args, **more)
        if log.failed is None and not getattr(log.fs, "is_full", False):
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


@contextmanager
def watched(loop: SimLoop) -> Iterator[Deadlines]:
    """All topics of the simulation have three replicas, so that `min.insync.replicas` is what counts."""
    deadlines = Deadlines(loop)
    put = Answers.put

    def putting(self: Answers, outcome: Outcome, offset: int, timeout_ms: int) -> None:
        # The timeout is the host's: what is put is judged by the settings.
        deadlines.owe(self, outcome, timeout_ms)
        put(self, outcome, offset, timeout_ms)

    with ExitStack() as stack:
        for name in ("truncate_to", "finish_swap", "_drop_segments"):
            stack.enter_context(patch.object(PartitionLog, name, _checked(loop, getattr(PartitionLog, name))))
        for name in ("append", "_advance"):
            stack.enter_context(patch.object(Partition, name, _moving(loop, getattr(Partition, name))))
        stack.enter_context(patch.object(Answers, "put", putting))
        yield deadlines
