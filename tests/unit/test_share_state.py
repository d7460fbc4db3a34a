"""What lasts of share partitions: Kafka's records, replay, fencing, snapshots; and share sessions."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.coordinator import Outcome, StateRecord, partition_for
from penstock.errors import (
    ApiError,
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
    WireError,
)
from penstock.groups.share import state_records as records
from penstock.groups.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from penstock.groups.share.sessions import ShareSessions
from penstock.groups.share.settings import ShareSettings
from penstock.groups.share.state import ShareStateShard
from penstock.groups.share.state_records import SharePartitionKey

TOPIC = UUID(int=7)
KEY = SharePartitionKey("g", TOPIC, 3)
NOW = 1_700_000_000_000


class Host:
    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.settings = ShareSettings(updates_per_snapshot=updates_per_snapshot)
        self.shard = ShareStateShard(self.settings)
        self.log: list[StateRecord] = []

    def apply(self, out: Outcome) -> ApiError | None:
        for record in out.records:
            self.log.append(record)
            self.shard.replay(record, timestamp=NOW, producer=None)
        response = out.replies[0].response
        return response if isinstance(response, ApiError) else None

    def write(
        self, *batches: StateBatch, start: int = -1, state: int = 0, leader: int = 0
    ) -> ApiError | None:
        return self.apply(self.shard.write(KEY, state, leader, start, batches, "t", NOW))

    def replayed(self) -> ShareStateShard:
        shard = ShareStateShard(self.settings)
        for record in self.log:
            shard.replay(record, timestamp=NOW, producer=None)
        return shard


def test_what_was_written_is_there_after_a_replay() -> None:
    host = Host(updates_per_snapshot=3)
    host.apply(host.shard.initialize(KEY, 0, 10, "t", NOW))
    for offset in range(10, 30, 2):
        assert (
            host.write(StateBatch(offset, offset + 1, ACKNOWLEDGED if offset % 4 else AVAILABLE, 1)) is None
        )
    host.write(StateBatch(20, 20, ACKNOWLEDGED, 2), start=16)
    state = host.shard.states[KEY]
    assert host.replayed().states[KEY] == state
    assert state.start_offset == 16 and state.batches[0].first == 16
    assert sum(record.key[1] == records.SNAPSHOT for record in host.log) >= 3


@pytest.mark.promise("share groups", "Invalid requests get Kafka's errors and change nothing")
def test_old_leaders_and_old_beginnings_are_fenced() -> None:
    host = Host()
    assert isinstance(host.write(), InvalidRequest)
    host.apply(host.shard.initialize(KEY, 1, 0, "t", NOW))
    assert host.write(state=1, leader=5) is None
    assert isinstance(host.write(state=1, leader=4), FencedLeaderEpoch)
    assert isinstance(host.write(state=0, leader=5), FencedStateEpoch)
    assert isinstance(host.apply(host.shard.initialize(KEY, 0, 0, "t", NOW)), FencedStateEpoch)


def test_a_snapshot_of_everything_makes_the_log_before_it_needless() -> None:
    host = Host()
    host.apply(host.shard.initialize(KEY, 0, 0, "t", NOW))
    host.write(StateBatch(0, 4, AVAILABLE, 1))
    del host.log[:]
    host.apply(host.shard.snapshot_all("t", NOW))
    replayed, known = host.replayed().states[KEY], host.shard.states[KEY]
    assert replayed == known


def test_deleted_state_is_gone() -> None:
    host = Host()
    host.apply(host.shard.initialize(KEY, 0, 0, "t", NOW))
    host.apply(host.shard.delete([KEY, KEY._replace(partition=4)], "t"))
    assert not host.shard.states and not host.replayed().states


@pytest.mark.promise("share groups", "The share coordinator's records are byte for byte Kafka's")
def test_the_records_are_kafkas_byte_for_byte() -> None:
    snapshot = records.Snapshot(1, 2, 3, 4, 5, 6, (StateBatch(7, 8, AVAILABLE, 9),))
    record = records.snapshot_record(KEY, snapshot)
    assert record.key == bytes.fromhex("0000 0001 67" + TOPIC.hex + "00000003")
    assert record.value == bytes.fromhex(
        "0000 00000001 00000002 00000003 0000000000000004 0000000000000005 0000000000000006"
        "02 0000000000000007 0000000000000008 00 0009 00 00"
    )
    assert records.read_snapshot(record.value) == snapshot
    update = records.Update(1, 2, -1, ())
    record = records.update_record(KEY, update)
    assert record.key[:2] == b"\x00\x01"
    assert record.value == bytes.fromhex("0000 00000001 00000002 ffffffffffffffff 01 00")
    assert records.read_update(record.value) == update
    assert records.decode_key(record.key) == (records.UPDATE, KEY)


@pytest.mark.promise("share groups", "The share coordinator's records are byte for byte Kafka's")
def test_the_state_lies_in_the_partition_that_kafka_would_choose() -> None:
    assert KEY.coordinator_key == "g:AAAAAAAAAAAAAAAAAAAABw:3"
    assert partition_for(KEY.coordinator_key, 50) == 11


@pytest.mark.parametrize(
    "value", [b"", b"\x00\x00", b"\x00\x01" + b"\x00" * 60, b"\x00\x00" + b"\x00" * 36 + b"\x03"]
)
def test_records_that_are_none_are_refused(value: bytes) -> None:
    with pytest.raises((WireError, IndexError)):
        records.read_snapshot(value)


def test_a_share_session_goes_on_epoch_by_epoch() -> None:
    sessions = ShareSessions(2)
    with pytest.raises(ShareSessionNotFound):
        sessions.go_on("g", "m", 1, "c")
    session = sessions.open("g", "m", "c")
    session.update([(TOPIC, 0), (TOPIC, 1)], [])
    assert sessions.go_on("g", "m", 1, "c") is session
    with pytest.raises(InvalidShareSessionEpoch):
        sessions.go_on("g", "m", 1, "c")
    assert sessions.go_on("g", "m", 2, "c").epoch == 3
    assert session.in_turn() == [(TOPIC, 1), (TOPIC, 0)]
    sessions.open("g", "n", "d")
    sessions.open("g", "m", "c")
    with pytest.raises(ShareSessionLimitReached):
        sessions.open("g", "o", "d")
    assert [one.member_id for one in sessions.of_connection("d")] == ["n"]
    assert sessions.close("g", "n") is not None
    sessions.open("g", "o", "d")
    session.epoch = 2**31 - 1
    sessions._sessions["g", "m"].epoch = 2**31 - 1
    assert sessions.go_on("g", "m", 2**31 - 1, "c").epoch == 1
