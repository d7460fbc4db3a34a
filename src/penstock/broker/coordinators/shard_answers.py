"""The responses of one shard that wait for replication: sent in order, when everything they depend on is
replicated.

A response depends on all that the shard knew when it decided, even if the decision itself wrote no record. If
that is not replicated in time the response is COORDINATOR_NOT_AVAILABLE, as in Kafka's coordinators. The
decision stays valid and may be replicated later; only then are its actions performed. When the partition gets
another leader or leader epoch, the remaining responses fail: the records may have been truncated, and the
high watermark may be about other records.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from penstock.coordinator import Outcome, Reply
from penstock.errors import ApiError, CoordinatorNotAvailable
from penstock.replication.delayed import DelayedOperation, DelayedOperations, Key
from penstock.replication.partition import Partition

_NEVER = float("inf")


@dataclass(slots=True)
class _Decided:
    """An outcome whose replies and actions wait until the log is replicated up to `offset`."""

    offset: int
    outcome: Outcome
    deadline: float  # of the replies, by the loop's clock


class Answers(DelayedOperation):
    """`follow_up` sends an outcome's replies and performs its actions, which may lead to new decisions.
    `on_lost` is called when the partition has another leader or leader epoch."""

    __slots__ = ("_delayed", "_epoch", "_follow_up", "_loop", "_on_lost", "_partition", "_waiting", "busy")

    def __init__(
        self,
        partition: Partition,
        epoch: int,
        loop: asyncio.AbstractEventLoop,
        delayed: DelayedOperations,
        follow_up: Callable[[Outcome], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._partition = partition
        self._epoch = epoch
        self._loop = loop
        self._delayed = delayed
        self._follow_up = follow_up
        self._on_lost = on_lost
        self._waiting: deque[_Decided] = deque()  # by offset
        self.waiting = False  # as a delayed operation, for the first of them
        self.busy = False
        """A decision is being written, or actions are being performed: new outcomes wait until that is
        done."""

    def put(self, outcome: Outcome, offset: int, timeout_ms: int) -> None:
        """Send the outcome's replies when the log is replicated up to `offset`."""
        if not outcome.records and outcome.actions and self._waiting:
            # An action that is already queued need not be performed twice.
            queued = [action for decided in self._waiting for action in decided.outcome.actions]
            outcome.actions = [action for action in outcome.actions if action not in queued]
        if outcome.replies or outcome.actions:
            self._waiting.append(_Decided(offset, outcome, self._loop.time() + timeout_ms / 1000))

    def settle(self) -> None:
        """Send the replies that are replicated, in order; fail those that are late; wait for the rest."""
        if self.busy or not self._waiting:
            return
        partition = self._partition
        if not partition.is_leader or partition.image.leader_epoch != self._epoch:
            self._on_lost()
            return
        first = self._waiting[0]
        self.busy = True
        try:
            while self._waiting and partition.is_replicated(self._waiting[0].offset):
                self._follow_up(self._waiting.popleft().outcome)
        finally:
            self.busy = False
        if not self.waiting or not self._waiting or self._waiting[0] is not first:
            self._expire()
            self._watch()

    def _expire(self) -> None:
        """Fail the replies that have timed out; their clients retry."""
        now = self._loop.time()
        late = [decided for decided in self._waiting if decided.deadline <= now]
        if not late:
            return
        topic, index = self._partition.key
        error = CoordinatorNotAvailable(f"{topic}-{index}: its records were not replicated in time")
        for decided in late:
            fail(decided.outcome, error)
            decided.outcome.replies = []
            decided.deadline = _NEVER
        self._waiting = deque(one for one in self._waiting if one.outcome.replies or one.outcome.actions)

    def _watch(self) -> None:
        self._delayed.remove(self)
        if self._waiting:
            deadline = min(decided.deadline for decided in self._waiting)
            left = None if deadline == _NEVER else max(0.0, deadline - self._loop.time()) * 1000
            self._delayed.watch(self, (self._partition.key,), left)

    def close(self, error: ApiError) -> None:
        """Fail all waiting replies with `error`."""
        self._delayed.remove(self)
        waiting, self._waiting = self._waiting, deque()
        for decided in waiting:
            fail(decided.outcome, error)

    # as a DelayedOperation

    def is_satisfied(self, key: Key) -> bool:
        partition = self._partition
        if not partition.is_leader or partition.image.leader_epoch != self._epoch:
            return True
        return partition.is_replicated(self._waiting[0].offset)

    def complete(self, expired: bool) -> None:
        self.settle()


def send(replies: list[Reply]) -> None:
    for token, response in replies:
        if token.done():
            continue  # the client has disconnected
        if isinstance(response, ApiError):
            token.set_exception(response)
        else:
            token.set_result(response)


def fail(outcome: Outcome, error: ApiError) -> None:
    send([Reply(reply.token, error) for reply in outcome.replies])
