"""A share partition: which records are acquired by which member, and which are completed.

Pure: takes reads of the log and the current time, returns changes to write. Offsets from `start_offset` to
`end_offset` are in flight, in runs with the same state; earlier ones are completed, later ones not fetched
yet. A durable change is planned, written by the host, and then committed, or cancelled if the write failed.
Until then its records keep their state and cannot be changed otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.errors import InvalidRecordState, InvalidRequest
from penstock.groups.share.acknowledgements import RELEASE, RENEW, Acknowledgement
from penstock.groups.share.batches import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    DYING,
    REJECTED_COUNT,
    TERMINAL,
    StateBatch,
    merged,
)
from penstock.groups.share.in_flight import NOBODY, REJECTED, SPENT, InFlight, Run
from penstock.groups.share.state_records import UNCHANGED


class BatchSpan(NamedTuple):
    """The offsets of a record batch that was read; control batches and aborted ones are not deliverable."""

    first: int
    last: int
    deliverable: bool = True


class Acquired(NamedTuple):
    first: int
    last: int
    delivery_count: int


class DeadLetter(NamedTuple):
    first: int
    last: int
    delivery_count: int
    reason: str


class Plan:
    """A planned change, and what must be written for it."""

    __slots__ = ("changes", "start_offset")

    def __init__(self) -> None:
        self.changes: list[tuple[StateBatch, str]] = []  # with the reason, if it is archived
        self.start_offset = UNCHANGED

    def __bool__(self) -> bool:
        return bool(self.changes)

    def batches(self, limit: int) -> list[StateBatch]:
        """The states in the log: a record to be archived is available there, without deliveries left."""
        found = []
        for batch, reason in self.changes:
            if batch.last < self.start_offset:
                continue  # shown by the start offset
            if batch.state == DYING:
                count = batch.delivery_count
                count = count + REJECTED_COUNT if reason == REJECTED else max(count, limit)
                batch = StateBatch(batch.first, batch.last, AVAILABLE, count)
            found.append(batch)
        return merged(found)


class SharePartition(InFlight):
    def __init__(
        self,
        start_offset: int,
        batches: Iterable[StateBatch] = (),
        *,
        delivery_count_limit: int = 5,
        max_record_locks: int = 2_000,
    ) -> None:
        super().__init__(start_offset)
        self.dead_letters = False
        """Whether what is spent or rejected dies, before it is archived."""
        self._limit = delivery_count_limit
        self._max_locks = max_record_locks
        for batch in batches:
            self._load(batch)
        self._advance()

    def _load(self, batch: StateBatch) -> None:
        first = max(batch.first, self.start_offset)
        if batch.last < first:
            return
        if first > self.end_offset:
            # Unknown, so not delivered.
            self._append(Run(self.end_offset, first - 1, AVAILABLE, 0))
        run = Run(first, batch.last, AVAILABLE, batch.delivery_count)
        if batch.state in TERMINAL:
            run.state = batch.state
        elif run.count >= REJECTED_COUNT:
            run.state, run.reason = DYING, REJECTED
            run.count -= REJECTED_COUNT
        elif run.count >= self._limit:
            run.state = DYING
        self._append(run)

    # questions

    def wants(self, upper_bound: int) -> int | None:
        """The offset to read from for the next acquisition; None if nothing can be acquired now."""
        if self._may_have_available:
            for run in self._runs:
                if run.state == AVAILABLE and not run.planned:
                    return run.first if run.first < upper_bound else None
            self._may_have_available = False
        if self.end_offset < min(upper_bound, self.start_offset + self._max_locks):
            return self.end_offset
        return None

    def has_acquired(self) -> bool:
        return any(run.state in (ACQUIRED, DYING) for run in self._runs)

    def dying(self) -> list[DeadLetter]:
        """The records for the dead-letter topic that are not being archived yet."""
        return [
            DeadLetter(run.first, run.last, run.count, run.reason)
            for run in self._runs
            if run.state == DYING and not run.planned
        ]

    def lag(self, upper_bound: int) -> int:
        """The number of offsets that are not completed."""
        done = sum(run.last - run.first + 1 for run in self._runs if run.state in TERMINAL)
        return max(upper_bound - self.start_offset - done, 0)

    def next_deadline(self) -> int | None:
        return min((run.deadline for run in self._runs if run.state == ACQUIRED), default=None)

    # acquiring

    def acquire(
        self,
        member: str,
        spans: Iterable[BatchSpan],
        fetch_offset: int,
        max_records: int,
        deadline: int,
        *,
        exact: bool = False,
    ) -> tuple[list[Acquired], list[StateBatch]]:
        """Acquires available records for the member, of the batches read from `fetch_offset` on.

        Acquires whole batches until `max_records` is reached or exceeded; with `exact`, never more. Returns
        the acquired records, and what must be written: delivery counts, and offsets without records.
        """
        acquired: list[Acquired] = []
        written: list[StateBatch] = []
        position = max(fetch_offset, self.start_offset)
        bound = self.start_offset + self._max_locks
        left = max_records
        for span in spans:
            if left <= 0 or position >= bound:
                break
            if span.last < position:
                continue
            if span.first > position:
                self._fill(position, min(span.first, bound) - 1, written)
                position = span.first
                if position >= bound:
                    break
            last = min(span.last, bound - 1)
            if not span.deliverable:
                self._fill(position, last, written)
            else:
                left = self._take(member, position, last, left, deadline, exact, acquired, written)
            position = last + 1
        self._advance()
        return _joined(acquired), merged(sorted(written))

    def _fill(self, first: int, last: int, written: list[StateBatch]) -> None:
        """These offsets have no records to deliver."""
        for run in list(self._cut(first, last)):
            if run.state == AVAILABLE and not run.planned:
                run.state = ARCHIVED
                written.append(StateBatch(run.first, run.last, ARCHIVED, run.count))
        first = max(first, self.end_offset)
        if first == self.end_offset and first <= last:
            written.append(StateBatch(first, last, ARCHIVED, 0))
            self._append(Run(first, last, ARCHIVED, 0))

    def _take(
        self,
        member: str,
        first: int,
        last: int,
        left: int,
        deadline: int,
        exact: bool,
        acquired: list[Acquired],
        written: list[StateBatch],
    ) -> int:
        at = first
        while at <= last and (left > 0 or not exact):
            if at >= self.end_offset:
                stop = last if not exact else min(last, at + left - 1)
                run = Run(at, stop, AVAILABLE, 0)
                self._append(run)
                run = self._runs[self._index(at)]
            run = self._runs[self._index(at)]
            stop = min(run.last, last)
            if run.state == AVAILABLE and not run.planned:
                if exact:
                    stop = min(stop, at + left - 1)
                [run] = self._cut(at, stop)
                run.state, run.member, run.deadline = ACQUIRED, member, deadline
                run.count += 1
                acquired.append(Acquired(run.first, run.last, run.count))
                written.append(StateBatch(run.first, run.last, AVAILABLE, run.count))
                left -= stop - at + 1
                self._merge(self._index(at))
            at = stop + 1
        return left

    # acknowledging and releasing

    def acknowledge(self, member: str, batches: Iterable[Acknowledgement], renewed_until: int) -> Plan:
        """Raises, without changes, if this member cannot acknowledge one of the batches."""
        pieces: list[tuple[int, int, int]] = []
        for batch in batches:
            pieces += self._pieces(member, batch)
        plan = Plan()
        for first, last, type_ in pieces:
            for run in list(self._cut(first, last)):
                if type_ == RENEW:
                    run.deadline = renewed_until
                else:
                    self._plan(plan, run, type_)
        return self._planned(plan)

    def _pieces(self, member: str, batch: Acknowledgement) -> list[tuple[int, int, int]]:
        if batch.last < self.start_offset:
            return []  # before the log start offset, or a retry: completed in any case
        if batch.first >= self.end_offset:
            raise InvalidRecordState(
                "Batch record not found. The first offset in request is past acquired records."
            )
        if batch.last >= self.end_offset:
            raise InvalidRequest(
                "Batch record not found. The last offset in request is past acquired records."
            )
        first = max(batch.first, self.start_offset)
        for index in range(self._index(first), len(self._runs)):
            run = self._runs[index]
            if run.first > batch.last:
                break
            if run.state != ACQUIRED or run.planned:
                raise InvalidRecordState(
                    "The batch cannot be acknowledged. The batch is not in the acquired state."
                )
            if run.member != member:
                raise InvalidRecordState("Member is not the owner of batch record")
        if len(batch.types) == 1:
            return [(first, batch.last, batch.types[0])]
        return [(one, last, type_) for one, last, type_ in batch.by_type() if last >= self.start_offset]

    def _plan(self, plan: Plan, run: Run, type_: int) -> None:
        count, reason = run.count, ""
        match type_:
            case 1:
                state = ACKNOWLEDGED
            case 2 if count < self._limit:
                state = AVAILABLE
            case 2:
                state, reason = (DYING, SPENT) if self.dead_letters else (ARCHIVED, "")
            case 3:
                state, reason = (DYING, REJECTED) if self.dead_letters else (ARCHIVED, "")
            case _:
                state = ARCHIVED
        run.planned = True
        plan.changes.append((StateBatch(run.first, run.last, state, count), reason))

    def release(self, member: str, *, undelivered: bool = False) -> Plan:
        """Releases all records of the member. `undelivered`: it closed its session cleanly and did not
        process them, so the delivery does not count.
        """
        plan = Plan()
        for run in self._runs:
            if run.state == ACQUIRED and run.member == member and not run.planned:
                if undelivered:
                    run.planned = True
                    batch = StateBatch(run.first, run.last, AVAILABLE, max(run.count - 1, 0))
                    plan.changes.append((batch, ""))
                else:
                    self._plan(plan, run, RELEASE)
        return self._planned(plan)

    def on_time(self, now_ms: int) -> Plan:
        """Releases locks that have timed out."""
        plan = Plan()
        for run in self._runs:
            if run.state == ACQUIRED and run.deadline <= now_ms and not run.planned:
                self._plan(plan, run, RELEASE)
        return self._planned(plan)

    def dead_lettered(self, letter: DeadLetter) -> Plan:
        """The record is in the dead-letter topic."""
        plan = Plan()
        for run in list(self._cut(letter.first, letter.last)):
            if run.state == DYING and not run.planned:
                run.planned = True
                plan.changes.append((StateBatch(run.first, run.last, ARCHIVED, run.count), ""))
        return self._planned(plan)

    def written(self, plan: Plan) -> list[StateBatch]:
        return plan.batches(self._limit)

    def _planned(self, plan: Plan) -> Plan:
        """The change, with the start offset after it."""
        plan.changes.sort()
        states = {batch.first: batch.state for batch, _ in plan.changes}
        start = self.start_offset
        for run in self._runs:
            if (states.get(run.first, run.state) if run.planned else run.state) not in TERMINAL:
                break
            start = run.last + 1
        if start != self.start_offset:
            plan.start_offset = start
        return plan

    def commit(self, plan: Plan) -> None:
        """The planned change was written."""
        for batch, reason in plan.changes:
            for run in list(self._cut(batch.first, batch.last)):
                run.planned = False
                run.state, run.count = batch.state, batch.delivery_count
                run.member, run.deadline, run.reason = NOBODY, 0, reason or SPENT
                if run.state == AVAILABLE:
                    self._may_have_available = True
        for batch, _ in plan.changes:
            if batch.last >= self.start_offset:
                self._merge(self._index(max(batch.first, self.start_offset)))
        self._advance()

    def cancel(self, plan: Plan) -> None:
        """The planned change could not be written."""
        for batch, _ in plan.changes:
            for run in list(self._cut(batch.first, batch.last)):
                run.planned = False

    # the log

    def log_starts_at(self, offset: int) -> bool:
        """Records before this offset were deleted. Returns whether that changed anything."""
        if offset <= self.start_offset:
            return False
        list(self._cut(self.start_offset, offset - 1))
        self._runs = [run for run in self._runs if run.first >= offset]
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)
        self._advance()
        return True

    def check(self) -> None:
        """Checks the invariants; for tests."""
        at = self.start_offset
        for run in self._runs:
            assert run.first == at <= run.last, (run, at)
            at = run.last + 1
            assert (run.member != NOBODY) == (run.state == ACQUIRED), run
            assert run.count <= self._limit or run.state in TERMINAL | {DYING}, run
        assert at == self.end_offset, (at, self.end_offset)
        assert self.end_offset - self.start_offset <= self._max_locks or not self._runs


def _joined(acquired: list[Acquired]) -> list[Acquired]:
    found: list[Acquired] = []
    for one in acquired:
        if found and found[-1].last + 1 == one.first and found[-1].delivery_count == one.delivery_count:
            found[-1] = Acquired(found[-1].first, one.last, one.delivery_count)
        else:
            found.append(one)
    return found
