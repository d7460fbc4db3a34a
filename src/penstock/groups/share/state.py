"""The durable state of share partitions, in one partition of `__share_group_state`.

A `Shard`: writes produce records, and replayed records build the state. Partition leaders keep the in-flight
records and write changes here. They are fenced by the leader epoch, and by the state epoch, which is raised
when the offsets are altered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.coordinator import Outcome, Producer, Reply, StateRecord
from penstock.errors import ApiError, FencedLeaderEpoch, FencedStateEpoch, InvalidRequest
from penstock.groups.share import state_records as records
from penstock.groups.share.batches import StateBatch, overlay
from penstock.groups.share.settings import ShareSettings
from penstock.groups.share.state_records import UNCHANGED, SharePartitionKey, Snapshot, Update
from penstock.wire.message import Message

log = logging.getLogger(__name__)

UNINITIALIZED = -1
"""As a start offset: it is for the partition's leader to choose one."""


@dataclass(frozen=True, slots=True)
class ShareState:
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    create_timestamp: int
    batches: tuple[StateBatch, ...] = ()
    updates: int = 0
    """The number of updates since the snapshot."""


class ShareStateShard:
    def __init__(self, settings: ShareSettings) -> None:
        self._settings = settings
        self.states: dict[SharePartitionKey, ShareState] = {}

    # replaying

    def replay(self, record: StateRecord, *, timestamp: int, producer: Producer | None) -> None:
        kind, key = records.decode_key(record.key)
        if record.value is None:
            self.states.pop(key, None)
        elif kind == records.SNAPSHOT:
            found = records.read_snapshot(record.value)
            self.states[key] = ShareState(
                found.snapshot_epoch,
                found.state_epoch,
                found.leader_epoch,
                found.start_offset,
                found.create_timestamp,
                overlay((), found.batches, found.start_offset),
            )
        elif kind == records.UPDATE:
            self._update(key, records.read_update(record.value))
        else:
            log.warning("skipped a record with unknown key version %d", kind)

    def _update(self, key: SharePartitionKey, update: Update) -> None:
        state = self.states.get(key)
        if state is None:
            return  # its snapshot was deleted, and the state with it
        start = state.start_offset if update.start_offset == UNCHANGED else update.start_offset
        self.states[key] = replace(
            state,
            leader_epoch=max(state.leader_epoch, update.leader_epoch),
            start_offset=start,
            batches=overlay(state.batches, update.batches, start),
            updates=state.updates + 1,
        )

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """There are no transactions in this topic."""

    # time and offsets

    def next_deadline(self) -> int | None:
        return None

    def on_time(self, now_ms: int) -> Outcome:
        return Outcome()

    def resign(self, error: ApiError) -> list[Reply]:
        self.states.clear()
        return []

    # requests

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, token: Any, now_ms: int
    ) -> Outcome:
        """Initializes the state, unless a newer epoch did already. Without a start offset, existing state is
        kept.
        """
        known = self.states.get(key)
        if known is not None and state_epoch < known.state_epoch:
            return _refused(token, FencedStateEpoch(f"the state epoch is {known.state_epoch}"))
        if known is not None and state_epoch == known.state_epoch and start_offset == UNINITIALIZED:
            return _written(token, [])
        snapshot = Snapshot(
            snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=0 if known is None else known.leader_epoch,
            start_offset=start_offset,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
            batches=(),
        )
        return _written(token, [records.snapshot_record(key, snapshot)])

    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        token: Any,
        now_ms: int,
    ) -> Outcome:
        """A change by the partition's leader; a start offset of -1 means "unchanged"."""
        state = self.states.get(key)
        if state is None:
            return _refused(token, InvalidRequest("this share partition has no state"))
        if leader_epoch < state.leader_epoch:
            return _refused(token, FencedLeaderEpoch(f"the leader epoch is {state.leader_epoch}"))
        if state_epoch != state.state_epoch:
            return _refused(token, FencedStateEpoch(f"the state epoch is {state.state_epoch}"))
        if state.updates < self._settings.updates_per_snapshot:
            update = Update(state.snapshot_epoch, leader_epoch, start_offset, tuple(batches))
            return _written(token, [records.update_record(key, update)])
        start = state.start_offset if start_offset == UNCHANGED else start_offset
        whole = overlay(state.batches, batches, start)
        changed = replace(state, leader_epoch=leader_epoch, start_offset=start, batches=whole)
        return _written(token, [_snapshot(key, changed, now_ms)])

    def read(self, key: SharePartitionKey, leader_epoch: int, token: Any) -> Outcome:
        """Reads the state for a leader with its epoch, which fences leaders with older epochs. -1 does not
        fence.
        """
        state = self.states.get(key)
        if state is None:
            return _refused(token, InvalidRequest("this share partition has no state"))
        if 0 <= leader_epoch < state.leader_epoch:
            return _refused(token, FencedLeaderEpoch(f"the leader epoch is {state.leader_epoch}"))
        written = []
        if leader_epoch > state.leader_epoch:
            fence = Update(state.snapshot_epoch, leader_epoch, UNCHANGED, ())
            written.append(records.update_record(key, fence))
        answer = Message(
            error_code=0,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[
                Message(first_offset=first, last_offset=last, delivery_state=delivery, delivery_count=count)
                for first, last, delivery, count in state.batches
            ],
        )
        return Outcome(records=written, replies=[Reply(token, answer)])

    def summary(self, key: SharePartitionKey, token: Any) -> Outcome:
        state = self.states.get(key)
        answer = Message(
            error_code=0,
            state_epoch=-1 if state is None else state.state_epoch,
            leader_epoch=-1 if state is None else state.leader_epoch,
            start_offset=-1 if state is None else state.start_offset,
        )
        return Outcome(replies=[Reply(token, answer)])

    def delete(self, keys: Iterable[SharePartitionKey], token: Any) -> Outcome:
        gone = [key for key in keys if key in self.states]
        return _written(token, [record for key in gone for record in records.tombstones(key)])

    def keys(self, wanted: Callable[[SharePartitionKey], bool]) -> list[SharePartitionKey]:
        return [key for key in self.states if wanted(key)]

    def snapshot_all(self, token: Any, now_ms: int) -> Outcome:
        """Writes snapshots of all states: earlier records in the log are then not needed any more."""
        out = _written(token, [_snapshot(key, state, now_ms) for key, state in self.states.items()])
        out.divide()
        return out


def _snapshot(key: SharePartitionKey, state: ShareState, now_ms: int) -> StateRecord:
    snapshot = Snapshot(
        snapshot_epoch=state.snapshot_epoch + 1,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        create_timestamp=state.create_timestamp,
        write_timestamp=now_ms,
        batches=state.batches,
    )
    return records.snapshot_record(key, snapshot)


def _written(token: Any, written: list[StateRecord]) -> Outcome:
    return Outcome(records=written, replies=[Reply(token, Message(error_code=0))])


def _refused(token: Any, error: ApiError) -> Outcome:
    return Outcome(replies=[Reply(token, error)])
