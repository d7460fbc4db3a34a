"""Producers, a network that loses and repeats, coordinators that die: one seeded schedule of transactions.

Every producer runs one transaction after another on some of the partitions. What it sends may arrive late,
twice or never, and so may the answers; it gives up and goes on as clients do (abort, new epoch). Some share a
transactional id with another producer and become its zombie, or are fenced by it. `World.check` says what
must hold whatever happened.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from penstock.errors import (
    ApiError,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    NotEnoughReplicas,
    TransactionCoordinatorFenced,
)
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.shard import WriteMarkers
from penstock.transactions.state import AT_REST, PREPARED, State, Transaction
from tests.sim.txn_host import TxnHost

PARTITIONS = (("a", 0), ("a", 1), ("b", 0))
_RETRIABLE = (ConcurrentTransactions, CoordinatorLoadInProgress, CoordinatorNotAvailable, NotEnoughReplicas)
_LAST_ENDTXN_V1, _ENDTXN_V2 = 4, 5


class Lost(Exception):
    """No answer came in time."""


class Fenced(Exception):
    """This producer is done for: an error that a client treats as fatal."""


class Attempt(NamedTuple):
    """One transaction of one producer, as the producer knows it."""

    producer: int
    number: int


class Fate(NamedTuple):
    """What a producer was told about its transaction, and the values that it knows to be written."""

    attempt: Attempt
    told: str  # "committed", "aborted" or "" when it never learned
    values: tuple[Any, ...]


Steps = Generator[Callable[[], Any] | int, Any, Any]
"""A producer: it yields requests and gets the answers, or ApiErrors and Lost; or milliseconds of pause."""


class World:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.trouble = rng.choice((0.0, 0.02, 0.1, 0.3))
        settings = TransactionSettings(transactional_id_expiration_ms=10**9, retry_ms=100)
        self.host = TxnHost(PARTITIONS, settings, defer=self._send_markers)
        self.host.on_append = self._appended
        self.history: dict[str, list[Transaction]] = {}
        self.owner: dict[str, int] = {}
        self.requesting = -1
        self.fates: list[Fate] = []
        # Before version 2, a copy of EndTxn that comes late ends the next transaction: what KIP-890 is about.
        self._never_twice: set[Callable[[], Any]] = set()
        self.finished = 0
        self.producers = rng.randint(1, 4)
        for number in range(self.producers):
            shared = number > 0 and rng.random() < 0.5
            transactional_id = "t0" if shared else f"t{number}"
            start = rng.randrange(400) if shared else 0
            self.at(start, lambda n=number, t=transactional_id: self._start(n, t))

    # time

    def at(self, delay: int, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.host.now + delay, self._count, what))

    def run(self) -> None:
        """Trouble first; then peace, in which everything must come to its end."""
        crashes = [self.rng.randrange(3_000) for _ in range(self.rng.randrange(4))]
        for when in crashes:
            self.at(when, self.host.restart)
        for when in [self.rng.randrange(3_000) for _ in range(self.rng.randrange(3))]:
            self.at(when, self._full_disk)
        self.at(4_000, self._peace)
        while self._events:
            when, _, what = heapq.heappop(self._events)
            self._advance_to(when)
            what()
        self._advance_to(self.host.now + 60_000)
        while self._events:
            when, _, what = heapq.heappop(self._events)
            self._advance_to(when)
            what()

    def _advance_to(self, when: int) -> None:
        while True:
            deadline = self.host.shard.next_deadline()
            if deadline is None or deadline > when:
                break
            self.host.now = max(self.host.now, deadline)
            self.host.apply(self.host.shard.on_time(self.host.now))
            while self._events and self._events[0][0] <= self.host.now:
                heapq.heappop(self._events)[2]()
        self.host.now = max(self.host.now, when)

    def _peace(self) -> None:
        self.trouble = 0.0

    def _full_disk(self) -> None:
        self.host.fail_appends += self.rng.randrange(3)

    def _trouble(self) -> bool:
        return self.rng.random() < self.trouble

    def _delay(self) -> int:
        return self.rng.randrange(400) if self._trouble() else self.rng.randrange(4)

    # the coordinator's side

    def _send_markers(self, markers: WriteMarkers) -> None:
        """Each partition gets its marker at a time of its own, even when the coordinator has died since."""
        for partition in sorted(markers.partitions):
            self.at(self._delay(), lambda p=partition: self._mark(markers, p))
        if not markers.partitions:
            self.at(0, lambda: self._written(markers, []))

    def _mark(self, markers: WriteMarkers, partition: tuple[str, int]) -> None:
        if markers.coordinator_epoch == self.host.epoch and not self.host.shard.wants(markers):
            return  # a repetition, or a decision that was never written
        known = self.history.get(markers.transactional_id, [])
        if not any(
            one.state in PREPARED and (one.producer_id, one.producer_epoch) == markers[1:3] for one in known
        ):
            return  # as above, of a coordinator that has died
        try:
            self.host.partitions[partition].mark(markers)
        except (TransactionCoordinatorFenced, InvalidProducerEpoch):
            assert markers.coordinator_epoch < self.host.epoch, "a marker comes too late"
            return
        self._written(markers, [partition])

    def _written(self, markers: WriteMarkers, partitions: list[tuple[str, int]]) -> None:
        if markers.coordinator_epoch != self.host.epoch or self._trouble():
            return
        self.host.apply(self.host.shard.markers_written(markers, partitions, self.host.now))

    def _appended(self, transactional_id: str, new: Transaction | None) -> None:
        assert new is not None
        history = self.history.setdefault(transactional_id, [])
        if history:
            old = history[-1]
            before, after = (old.producer_id, old.producer_epoch), (new.producer_id, new.producer_epoch)
            assert after >= before, f"{transactional_id}: the epoch went from {before} back to {after}"
            assert new.state in _NEXT[old.state], f"{transactional_id}: {old.state.name} to {new.state.name}"
            if new.state in PREPARED or (new.state == old.state == State.ONGOING):
                assert new.partitions >= old.partitions
        if new.state == State.EMPTY:
            self.owner[transactional_id] = self.requesting
        elif new.state in (State.ONGOING, State.PREPARE_COMMIT):
            assert self.owner[transactional_id] == self.requesting, "a zombie went on"
        history.append(new)

    # the producers' side

    def _start(self, number: int, transactional_id: str) -> None:
        version = self.rng.choice((0, 2))
        steps = self._life(number, transactional_id, version)
        self._go_on(number, steps, None, None)

    def _go_on(self, number: int, steps: Steps, answer: Any, error: Exception | None) -> None:
        try:
            request = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration:
            self.finished += 1
            return
        if isinstance(request, int):
            self.at(request, lambda: self._go_on(number, steps, None, None))
        else:
            self._request(number, steps, request)

    def _request(self, number: int, steps: Steps, request: Callable[[], Any]) -> None:
        """Send it; the first answer that arrives in time is the one that counts."""
        open_ = [True]

        def answered(answer: Any, error: Exception | None) -> None:
            if open_[0]:
                open_[0] = False
                self._go_on(number, steps, answer, error)

        def arrives() -> None:
            self.requesting = number
            answer, error = None, None
            try:
                answer = request()
            except ApiError as failure:
                error = failure
            finally:
                self.requesting = -1
            if not self._trouble():
                self.at(self._delay(), lambda: answered(answer, error))

        for _ in range(2 if self._trouble() and request not in self._never_twice else 1):
            if not self._trouble():
                self.at(self._delay(), arrives)
        self.at(600, lambda: answered(None, Lost()))

    def _retrying(self, request: Callable[[], Any], tries: int = 60) -> Steps:
        """As clients do for the coordinator's requests: again, while there is no answer but "not now"."""
        for _ in range(tries):
            try:
                return (yield request)
            except (Lost, *_RETRIABLE):
                yield 20
        raise Fenced

    def _life(self, number: int, transactional_id: str, version: int) -> Steps:
        rng, host = self.rng, self.host
        try:
            timeout = rng.choice((300, 1_500, 60_000))
            producer = yield from self._retrying(lambda: host.init(transactional_id, timeout))
            sequences: dict[Any, int] = {}
            for attempt in range(rng.randint(1, 5)):
                producer, sequences = yield from self._transaction(
                    Attempt(number, attempt), transactional_id, version, producer, sequences
                )
        except (ApiError, Fenced):
            return

    def _transaction(
        self, attempt: Attempt, transactional_id: str, version: int, producer: Any, sequences: dict[Any, int]
    ) -> Steps:
        rng, host = self.rng, self.host
        written: list[Any] = []
        fate = ""
        try:
            commit, failed = rng.random() < 0.7, False
            for partition in rng.sample(PARTITIONS, rng.randint(1, 3)):
                if version == 0:
                    yield from self._retrying(lambda p=partition: host.add(transactional_id, producer, p))
                for _ in range(rng.randint(1, 2)):
                    sequence = sequences.get(partition, 0)
                    value = (attempt, partition, sequence, len(written))
                    request = lambda p=partition, s=sequence, v=value: host.produce(  # noqa: E731
                        transactional_id, producer, p, s, v, version
                    )
                    try:
                        yield from self._retrying(request, tries=3)
                    except Fenced:
                        failed = True  # no answer: it may be written, or still arrive
                        break
                    sequences[partition] = sequence + 1
                    written.append((partition, value))
                if failed:
                    break
            if rng.random() < 0.1:
                yield rng.randrange(2_500)
            commit = commit and not failed
            if version == 2:
                ended = yield from self._retrying(
                    lambda: host.end(transactional_id, producer, commit, _ENDTXN_V2)
                )
                fate = "committed" if commit else "aborted"
                return ended, {}
            end = lambda: host.end(transactional_id, producer, commit, _LAST_ENDTXN_V1)  # noqa: E731
            self._never_twice.add(end)
            yield from self._retrying(end)
            fate = "committed" if commit else "aborted"
            if failed:
                # Something may still be under way with this epoch (KIP-360).
                producer = yield from self._retrying(lambda: host.init(transactional_id, 60_000, producer))
                return producer, {}
            return producer, sequences
        finally:
            self.fates.append(Fate(attempt, fate, tuple(written)))

    # what must hold

    def check(self) -> None:
        assert self.finished == self.producers, "a producer still waits"
        for transactional_id, known in self.host.shard.transactions.items():
            assert known.state in AT_REST, f"{transactional_id} did not end: {known}"
        for partition, model in self.host.partitions.items():
            hanging = [pid for pid, producer in model.producers.items() if producer.open]
            assert not hanging, f"{partition}: transactions of {hanging} hang"
        seen = {partition: model.committed() for partition, model in self.host.partitions.items()}
        for partition, values in seen.items():
            assert len(set(values)) == len(values), f"{partition}: a record twice"
        for fate in self.fates:
            visible = {
                (key, value) for key, values in seen.items() for value in values if value[0] == fate.attempt
            }
            if fate.told == "committed":
                assert visible == set(fate.values), f"{fate.attempt} was committed and shows {visible}"
            elif fate.told == "aborted":
                assert not visible, f"{fate.attempt} was aborted and shows {visible}"
            else:
                assert not visible or visible == set(fate.values), f"{fate.attempt} is torn: {visible}"


_NEXT = {
    State.EMPTY: {State.EMPTY, State.ONGOING, State.COMPLETE_ABORT},
    State.ONGOING: {State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT},
    State.PREPARE_COMMIT: {State.COMPLETE_COMMIT},
    State.PREPARE_ABORT: {State.COMPLETE_ABORT},
    State.COMPLETE_COMMIT: {State.EMPTY, State.ONGOING, State.COMPLETE_ABORT},
    State.COMPLETE_ABORT: {State.EMPTY, State.ONGOING, State.COMPLETE_ABORT},
}
