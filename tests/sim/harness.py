"""A world in one thread for a coordinator's shard: a clock, a network that fails, a log that lasts, crashes.

Everything that happens comes from one seeded generator, so a seed is a schedule and a failing one can be run
again. Clients are written as callbacks: `call` sends a request through the network and may or may not bring
its answer back. After every event the invariants are checked.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.coordinator import Outcome, Producer, Shard, StateRecord
from penstock.errors import ApiError, CoordinatorNotAvailable

S = TypeVar("S", bound=Shard)

START = 1_700_000_000_000

OnReply = Callable[[Any], None]
"""Called with the answer, with the ApiError in its place, or with None where the answer did not come."""


@dataclass
class Faults:
    """How often each thing goes wrong, of 1. All of them are off in `calm`."""

    drop: float = 0.05
    duplicate: float = 0.05
    slow: float = 0.1
    write_fails: float = 0.02
    normal_ms: int = 20
    slow_ms: int = 15_000
    request_timeout_ms: int = 30_000

    @classmethod
    def calm(cls) -> Faults:
        return cls(drop=0, duplicate=0, slow=0, write_fails=0)


class Logged:
    """An entry of the log: a record, or the marker of a transaction's end."""

    __slots__ = ("committed", "producer", "record", "timestamp")

    def __init__(
        self, record: StateRecord | None, timestamp: int, producer: Producer | None, committed: bool = False
    ) -> None:
        self.record = record
        self.timestamp = timestamp
        self.producer = producer
        self.committed = committed


class Simulation(Generic[S]):
    def __init__(
        self, seed: int, make_shard: Callable[[random.Random], S], faults: Faults | None = None
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now = START
        self.faults = faults or Faults()
        self.log: list[Logged] = []
        self.invariants: list[Callable[[], None]] = []
        self.on_applied: list[Callable[[Any, Any], None]] = []
        """Called with token and response when the coordinator answers, before the network has it."""
        self.history: list[str] = []
        self.waiting: dict[int, OnReply] = {}
        """Requests that the coordinator has taken and not answered."""
        self._make_shard = make_shard
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._stepped = False
        self._tokens = itertools.count(1)
        self.shard: S | None = None
        self.start()

    # time

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + int(delay_ms), next(self._numbers), action))

    def run(self, for_ms: int) -> None:
        end = self.now + for_ms
        while True:
            due = self._events[0][0] if self._events else end + 1
            deadline = None if self.shard is None else self.shard.next_deadline()
            if deadline is not None and deadline <= min(due, end):
                self.now = max(self.now, deadline)
                assert self.shard is not None
                self._apply(self.shard.on_time(self.now))
            elif due <= end:
                self.now = max(self.now, due)
                heapq.heappop(self._events)[2]()
            else:
                break
            self.check()
        self.now = end

    def check(self) -> None:
        """Only the coordinator's steps can break a promise; what clients and the network do alone cannot."""
        if self._stepped:
            self._stepped = False
            for invariant in self.invariants:
                invariant()

    def note(self, text: str) -> None:
        """For the story of a failing seed."""
        self.history.append(f"{(self.now - START) / 1000:9.3f} {text}")

    # the coordinator

    def start(self) -> None:
        shard = self._make_shard(self.rng)
        replay(shard, self.log)
        self.shard = shard
        self._apply(shard.on_time(self.now))

    def crash(self, down_ms: int) -> None:
        """kill -9: waiting requests end with their connections; what is in the log is all there is."""
        if self.shard is None:
            return
        self.note("coordinator crashes")
        self.shard = None
        lost, self.waiting = self.waiting, {}
        for on_reply in lost.values():
            self.after(1, lambda on_reply=on_reply: on_reply(None))  # type: ignore[misc]
        self.after(down_ms, self.start)

    def _apply(self, outcome: Outcome, *, may_fail: bool = False) -> None:
        assert self.shard is not None
        self._stepped = True
        replies = outcome.replies
        if outcome.records:
            if may_fail and self.rng.random() < self.faults.write_fails:
                self.note("a write fails")
                failure = CoordinatorNotAvailable()
                replies = [reply._replace(response=failure) for reply in replies]
            else:
                for record in outcome.records:
                    self.log.append(Logged(record, self.now, outcome.producer))
                    self.shard.replay(record, timestamp=self.now, producer=outcome.producer)
        for token, response in replies:
            on_reply = self.waiting.pop(token, None)
            assert on_reply is not None, f"token {token} is answered twice"
            for seen in self.on_applied:
                seen(token, response)
            on_reply(response)

    def end_transaction(self, producer: Producer, committed: bool) -> None:
        assert self.shard is not None
        self._stepped = True
        self.log.append(Logged(None, self.now, producer, committed))
        self.shard.replay_marker(producer, committed)

    # the network

    def call(self, step: Callable[[S, Any, int], Outcome], on_reply: OnReply) -> None:
        """Send a request. `on_reply` is called once: with the answer, or with None after the timeout."""
        done = False

        def finish(response: Any) -> None:
            nonlocal done
            if not done:
                done = True
                on_reply(response)

        def answered(response: Any) -> None:
            if response is None or self._chance(self.faults.drop):
                self.after(self._delay(), lambda: finish(None))  # the connection breaks
            else:
                self.after(self._delay(), lambda: finish(response))

        def arrive() -> None:
            if self.shard is None:
                self.after(self._delay(), lambda: finish(None))
                return
            token = next(self._tokens)
            self.waiting[token] = answered
            self._apply(step(self.shard, token, self.now), may_fail=True)

        copies = 2 if self._chance(self.faults.duplicate) else 1
        for _ in range(copies):
            if not self._chance(self.faults.drop):
                self.after(self._delay(), arrive)
        self.after(self.faults.request_timeout_ms, lambda: finish(None))

    def _chance(self, of_one: float) -> bool:
        return of_one > 0 and self.rng.random() < of_one

    def _delay(self) -> float:
        faults = self.faults
        return self.rng.random() * (faults.slow_ms if self._chance(faults.slow) else faults.normal_ms)


def replay(shard: Shard, log: Iterable[Logged]) -> None:
    for entry in log:
        if entry.record is None:
            assert entry.producer is not None
            shard.replay_marker(entry.producer, entry.committed)
        else:
            shard.replay(entry.record, timestamp=entry.timestamp, producer=entry.producer)


def run_seeds(seeds: Iterable[int], schedule: Callable[[int], Simulation[Any]], keep: list[Any]) -> None:
    """Run a schedule for each seed; a failure names its seed and tells the end of its story.

    `schedule` puts the simulation into `keep` as soon as it has made it.
    """
    for seed in seeds:
        keep.clear()
        try:
            schedule(seed)
        except (AssertionError, ApiError, KeyError, ValueError, TypeError, AttributeError) as error:
            story = "\n".join(keep[0].history[-60:]) if keep else ""
            raise AssertionError(
                f"seed {seed} fails: {error!r}\n{story}\nrun it again: pytest tests/sim --seed {seed}"
            ) from error
