"""Who may append and read, and how far."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.config import BrokerConfig, resolve_topic
from penstock.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    PolicyViolation,
    UnknownLeaderEpoch,
)
from penstock.fs import REAL_FS
from penstock.log.recovery.loading import open_log
from penstock.metadata.image import PartitionImage
from penstock.replication.partition import Partition, high_watermark
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.fetch import FetchPartition

CLOCK = ManualClock()


def batch(count: int = 1) -> bytearray:
    now = CLOCK.now_ms()
    records = [Record(i, now, None, b"v" * 10, (), i, 0) for i in range(count)]
    return bytearray(build_batch(records))


def partition(
    tmp_path: Path, image: PartitionImage | None = None, *, broker: int = 1, **overrides: str
) -> tuple[Partition, list[object]]:
    config = resolve_topic(
        BrokerConfig.parse({}), {name.replace("_", "."): value for name, value in overrides.items()}
    )
    image = image or PartitionImage(0, 1, 5, (1,), (1,))
    path = tmp_path / f"t-{image.index}"
    log = open_log(str(path), "t", image.index, uuid.uuid4(), config, CLOCK, REAL_FS, clean=True)
    changes: list[object] = []
    return Partition(image, log, broker, changes.append), changes


def wanted(offset: int, epoch: int = -1, last_epoch: int = -1, max_bytes: int = 1 << 20) -> FetchPartition:
    return FetchPartition(0, epoch, offset, last_epoch, -1, max_bytes)


def test_the_high_watermark_is_the_least_end_of_the_in_sync_replicas() -> None:
    assert high_watermark((1, 2, 3), {1: 10, 2: 7, 3: 9}) == 7
    assert high_watermark((1, 3), {1: 10, 2: 7, 3: 9}) == 9
    assert high_watermark((1, 2), {1: 10}) == 0


@pytest.mark.promise(
    "topics",
    "acks=all is acknowledged when both replication and fsync (`flush.messages`) are done, in either "
    "order, and never for a leader epoch that has ended: then the response is NOT_LEADER_OR_FOLLOWER at "
    "once, with the new leader",
)
def test_a_refused_change_of_the_in_sync_replicas_wakes_who_waited_for_it(tmp_path: Path) -> None:
    one, changes = partition(tmp_path, PartitionImage(0, 1, 5, (1, 2), (1,)))
    one.ask_for_isr((1, 2))  # it counts as soon as it is asked for
    data = batch(3)
    one.append(data, 0, len(data), -1)
    assert not one.is_replicated(2)
    changes.clear()
    one.isr_refused()
    assert one.is_replicated(2)
    assert changes == [one.key]


def test_alone_in_sync_an_append_is_readable_at_once_and_told(tmp_path: Path) -> None:
    one, changes = partition(tmp_path)
    data = batch(3)
    info = one.append(data, 0, len(data), 1)
    assert (info.base_offset, info.last_offset) == (0, 2)
    assert one.log.high_watermark == 3
    assert one.is_replicated(2)
    assert changes == [("t", 0)]
    result = one.fetch(wanted(0), 1 << 20, True, 0, -1)
    assert sum(len(piece) for piece in result.slices) == len(data)  # type: ignore[arg-type]


def test_with_a_follower_the_high_watermark_waits_for_its_fetch(tmp_path: Path) -> None:
    one, changes = partition(tmp_path, PartitionImage(0, 1, 5, (1, 2), (1, 2)))
    data = batch(3)
    one.append(data, 0, len(data), -1)
    assert one.log.high_watermark == 0
    assert not one.is_replicated(2)
    assert one.fetch(wanted(0), 1 << 20, True, 0, -1).slices == []
    assert one.fetch(wanted(0), 1 << 20, True, 0, 2).slices != []
    changes.clear()
    one.fetch(wanted(3), 1 << 20, True, 0, 2)
    assert one.log.high_watermark == 3
    assert changes == [("t", 0)]


def test_a_broker_that_is_no_replica_may_not_follow(tmp_path: Path) -> None:
    one, _ = partition(tmp_path)
    with pytest.raises(NotLeaderOrFollower):
        one.fetch(wanted(0), 100, True, 0, 7)


@pytest.mark.promise(
    "protocol", "Clients with an older or newer leader epoch get FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH"
)
def test_clients_with_an_older_or_newer_epoch_are_told_so(tmp_path: Path) -> None:
    one, _ = partition(tmp_path)
    one.check_leader(5)
    one.check_leader(-1)
    with pytest.raises(FencedLeaderEpoch):
        one.check_leader(4)
    with pytest.raises(UnknownLeaderEpoch):
        one.check_leader(6)


def test_who_does_not_lead_takes_no_records(tmp_path: Path) -> None:
    one, _ = partition(tmp_path, PartitionImage(0, 2, 5, (1, 2), (1, 2)))
    data = batch()
    with pytest.raises(NotLeaderOrFollower):
        one.append(data, 0, len(data), 1)


def test_acks_all_needs_min_insync_replicas_and_acks_one_does_not(tmp_path: Path) -> None:
    one, _ = partition(tmp_path, min_insync_replicas="2")
    data = batch()
    with pytest.raises(NotEnoughReplicas):
        one.append(data, 0, len(data), -1)
    assert one.append(data, 0, len(data), 1).base_offset == 0


@pytest.mark.promise(
    "topics",
    "While fewer replicas than `min.insync.replicas` are in sync (for a topic with fewer replicas than "
    "that: while not all of them are), the high watermark does not advance, so that consumers see "
    "nothing that one more failure may lose (KIP-966)",
)
def test_the_high_watermark_does_not_move_while_too_few_replicas_are_in_sync(tmp_path: Path) -> None:
    image = PartitionImage(0, 1, 5, (1, 2, 3), (1, 2))
    one, changes = partition(tmp_path, image, min_insync_replicas="2")
    data = batch()
    one.append(data, 0, len(data), -1)
    one.follower_fetched(2, 1)
    assert one.log.high_watermark == 1
    one.append(data, 0, len(data), -1)
    one.update(replace(image, isr=(1,), partition_epoch=1))
    one.append(data, 0, len(data), 1)
    assert one.log.high_watermark == 1
    assert one.fetch(wanted(1), 1000, True, 0, -1).slices == []
    one.follower_fetched(2, 1)
    assert one.may_join(2), "it has all that counts"
    one.update(replace(image, partition_epoch=2))
    one.follower_fetched(2, 3)
    assert one.log.high_watermark == 3
    one.update(replace(image, isr=(1,), partition_epoch=3))
    one.append(data, 0, len(data), 1)
    changes.clear()
    one.log.update_config(replace(one.log.config, min_insync_replicas=1))
    one.configured()
    assert (one.log.high_watermark, changes) == (4, [one.key])


@pytest.mark.promise(
    "topics",
    "While fewer replicas than `min.insync.replicas` are in sync (for a topic with fewer replicas than "
    "that: while not all of them are), the high watermark does not advance, so that consumers see "
    "nothing that one more failure may lose (KIP-966)",
)
@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
def test_where_a_topic_has_fewer_replicas_than_min_insync_replicas_all_of_them_are_enough(
    tmp_path: Path, replicas: tuple[int, ...]
) -> None:
    one, _ = partition(tmp_path, PartitionImage(0, 1, 5, replicas, replicas), min_insync_replicas="3")
    data = batch()
    one.append(data, 0, len(data), 1)
    for follower in replicas[1:]:
        assert one.log.high_watermark == 0
        one.follower_fetched(follower, 1)
    assert one.log.high_watermark == 1


@pytest.mark.promise(
    "topics",
    "After a batch is rejected with NOT_ENOUGH_REPLICAS, the batches that its producer had already sent "
    "after it get that error, too, until the first one is appended",
)
def test_what_is_sent_behind_a_batch_without_enough_replicas_waits_for_it(tmp_path: Path) -> None:
    one, _ = partition(tmp_path, min_insync_replicas="2")

    def send(sequence: int, acks: int) -> int:
        records = [Record(0, CLOCK.now_ms(), None, b"v")]
        data = bytearray(build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence))
        return one.append(data, 0, len(data), acks).base_offset

    with pytest.raises(NotEnoughReplicas):
        send(0, -1)
    with pytest.raises(NotEnoughReplicas):
        send(1, 1)  # as if the other replica had come back meanwhile
    assert [send(0, 1), send(1, 1)] == [0, 1]
    with pytest.raises(NotEnoughReplicas):
        send(1, -1)  # a retry of what is there
    assert [send(1, 1), send(2, 1)] == [1, 2]


def test_offsets_outside_the_log_are_out_of_range_and_its_end_is_empty(tmp_path: Path) -> None:
    one, _ = partition(tmp_path)
    data = batch(2)
    one.append(data, 0, len(data), 1)
    assert one.fetch(wanted(2), 100, True, 0, -1).slices == []
    for offset in (-1, 3):
        with pytest.raises(OffsetOutOfRange):
            one.fetch(wanted(offset), 100, True, 0, -1)


def test_a_first_batch_larger_than_the_limit_comes_whole_and_a_later_one_not(tmp_path: Path) -> None:
    one, _ = partition(tmp_path)
    data = batch(5)
    one.append(data, 0, len(data), 1)
    assert one.fetch(wanted(0, max_bytes=10), 10, True, 0, -1).slices != []
    assert one.fetch(wanted(0, max_bytes=10), 10, False, 0, -1).slices == []


def test_a_reader_of_another_history_is_shown_where_it_parts(tmp_path: Path) -> None:
    one, _ = partition(tmp_path)
    data = batch(2)
    one.append(data, 0, len(data), 1)
    result = one.fetch(wanted(7, last_epoch=5), 100, True, 0, -1)
    assert result.diverging_epoch == (5, 2)


def test_the_current_epoch_ends_at_the_log_end_even_before_its_first_record(tmp_path: Path) -> None:
    one, _ = partition(tmp_path)
    assert one.end_of_epoch(5) == (5, 0)
    assert one.end_of_epoch(9) == (-1, -1)


def test_records_are_deleted_up_to_the_high_watermark_and_not_from_compacted_topics(tmp_path: Path) -> None:
    one, _ = partition(tmp_path)
    data = batch(4)
    one.append(data, 0, len(data), 1)
    assert one.delete_records_before(2) == 2
    with pytest.raises(OffsetOutOfRange):
        one.delete_records_before(5)
    assert one.delete_records_before(-1) == 4
    compacted, _ = partition(tmp_path / "c", cleanup_policy="compact")
    with pytest.raises(PolicyViolation):
        compacted.delete_records_before(0)
