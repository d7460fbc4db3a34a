"""Retention and compaction of a running broker, whose clock the tests advance."""

from __future__ import annotations

import os

import pytest

from penstock.testing import PenstockBroker
from penstock.testing.client import ConsumedRecord

MINUTE = 60_000
PASS = {"log.retention.check.interval.ms": 30_000, "log.cleaner.backoff.ms": 15_000}

pytestmark = pytest.mark.penstock(settings=PASS)


def segments(broker: PenstockBroker, topic: str) -> list[str]:
    files = os.listdir(os.path.join(broker.data_dir, f"{topic}-0"))
    return sorted(name for name in files if name.endswith(".log"))


def fill(broker: PenstockBroker, topic: str, count: int, size: int = 400) -> list[ConsumedRecord]:
    """One batch for each record, so that small segments roll between them."""
    return [broker.produce(topic, [f"{i}".encode().ljust(size, b".")])[0] for i in range(count)]


def offsets(broker: PenstockBroker, topic: str) -> list[int]:
    return [record.offset for record in broker.consume(topic)]


@pytest.mark.promise("log", "Retention works by time, by size, by both or not at all")
def test_records_past_their_time_are_deleted_with_their_segments(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", config={"retention.ms": 10 * MINUTE, "segment.bytes": 1000})
    fill(penstock, "t", 10)
    assert len(segments(penstock, "t")) == 5
    penstock.clock.advance(seconds=9 * 60)
    assert len(offsets(penstock, "t")) == 10
    fill(penstock, "t", 2)
    penstock.clock.advance(seconds=2 * 60)
    assert offsets(penstock, "t") == [10, 11]
    penstock.clock.advance(seconds=60)
    assert len(segments(penstock, "t")) == 1


def test_an_old_active_segment_is_rolled_and_deleted_and_offsets_go_on(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", config={"retention.ms": 10 * MINUTE})
    fill(penstock, "t", 3)
    penstock.clock.advance(seconds=11 * 60)
    assert offsets(penstock, "t") == []
    assert penstock.produce("t", [b"next"])[0].offset == 3


def test_the_oldest_segments_go_when_the_log_is_too_large(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", config={"retention.bytes": 2000, "retention.ms": -1, "segment.bytes": 1000})
    fill(penstock, "t", 10)
    penstock.clock.advance(seconds=31)
    left = offsets(penstock, "t")
    assert left[-1] == 9
    assert 4 <= len(left) <= 6


@pytest.mark.promise(
    "log",
    "`penstock.retention.records` deletes the oldest segments as long as at least this many records remain",
)
def test_the_oldest_segments_go_when_there_are_too_many_records(penstock: PenstockBroker) -> None:
    config = {"penstock.retention.records": 5, "retention.ms": -1, "segment.bytes": 1000}
    penstock.create_topic("t", config=config)
    fill(penstock, "t", 10)
    penstock.clock.advance(seconds=31)
    # Two records to a segment: without 4 and 5 there would be four left.
    assert offsets(penstock, "t") == [4, 5, 6, 7, 8, 9]


def test_nothing_is_deleted_without_limits(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", config={"retention.ms": -1, "segment.bytes": 1000})
    fill(penstock, "t", 10)
    penstock.clock.advance(seconds=365 * 86_400)
    assert len(offsets(penstock, "t")) == 10


def test_a_changed_retention_counts_from_the_next_pass(penstock: PenstockBroker) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    penstock.create_topic("t", config={"segment.bytes": 1000})
    fill(penstock, "t", 6)
    penstock.clock.advance(seconds=5 * 60)
    assert len(offsets(penstock, "t")) == 6
    entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": penstock.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)
    penstock.clock.advance(seconds=31)
    assert offsets(penstock, "t") == []


@pytest.mark.promise("log", "A segment is rolled by size, by age or when its index is full")
def test_segments_roll_with_age(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", config={"segment.ms": MINUTE, "retention.ms": -1})
    fill(penstock, "t", 2)
    penstock.clock.advance(seconds=61)
    fill(penstock, "t", 2)
    assert segments(penstock, "t") == ["00000000000000000000.log", "00000000000000000002.log"]


@pytest.mark.promise(
    "log",
    "With `penstock.retention.strict`, no record past the limit is readable or on disk after the next pass",
)
def test_strict_retention_leaves_no_old_record_readable_or_on_disk(penstock: PenstockBroker) -> None:
    config = {"retention.ms": 10 * MINUTE, "penstock.retention.strict": True, "file.delete.delay.ms": 1000}
    penstock.create_topic("strict", config=config)
    penstock.create_topic("kafka", config={"retention.ms": 10 * MINUTE})
    now = penstock.clock.now_ms()
    for topic in ("strict", "kafka"):
        # In one batch with a record that is still young, in the active segment: Kafka keeps both.
        penstock.produce(
            topic,
            [
                {"value": b"SECRET-OLD", "timestamp": now - 9 * MINUTE},
                {"value": b"young", "timestamp": now},
            ],
        )
    penstock.clock.advance(seconds=5 * 60)
    assert offsets(penstock, "strict") == [1]
    assert offsets(penstock, "kafka") == [0, 1]
    penstock.clock.advance(seconds=61)
    directory = os.path.join(penstock.data_dir, "strict-0")

    def secret_on_disk() -> bool:
        for name in os.listdir(directory):
            with open(os.path.join(directory, name), "rb") as file:
                if b"SECRET-OLD" in file.read():
                    return True
        return False

    assert not secret_on_disk()
    assert penstock.produce("strict", [b"next"])[0].offset == 2


@pytest.mark.promise(
    "log",
    "With `penstock.retention.strict`, no record past the limit is readable or on disk after the next pass",
)
def test_strict_retention_reaches_into_compressed_batches(penstock: PenstockBroker) -> None:
    config = {"retention.ms": 10 * MINUTE, "penstock.retention.strict": True}
    penstock.create_topic("t", config=config)
    now = penstock.clock.now_ms()
    records = [{"value": f"{age}", "timestamp": now - age * MINUTE} for age in range(9, -1, -1)]
    penstock.produce("t", records, compression="zstd")
    penstock.clock.advance(seconds=5 * 60 + 30)
    assert [r.value for r in penstock.consume("t")] == [b"4", b"3", b"2", b"1", b"0"]
    assert offsets(penstock, "t") == [5, 6, 7, 8, 9]


COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": 2000,
    "min.cleanable.dirty.ratio": 0.01,
    "delete.retention.ms": 10 * MINUTE,
    "file.delete.delay.ms": 1000,
}


def compact(broker: PenstockBroker) -> None:
    """A roll of the active segment and some passes of the cleaner."""
    broker.clock.advance(seconds=20)


@pytest.mark.promise("log", "Compaction never changes an offset and keeps the last record of each key")
def test_compaction_keeps_the_last_record_of_each_key_at_its_offset(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", config=COMPACT)
    for version in range(20):
        penstock.produce("t", [(f"key {k}", f"version {version}") for k in range(5)])
    last = {f"key {k}".encode(): (95 + k, b"version 19") for k in range(5)}
    before = len(penstock.consume("t"))
    compact(penstock)
    assert len(penstock.consume("t")) < before
    after = penstock.consume("t")
    assert {r.key: (r.offset, r.value) for r in after} == last
    kept = [r.offset for r in after]
    assert kept == sorted(set(kept))


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compaction_reads_every_codec(penstock: PenstockBroker, compression: str) -> None:
    penstock.create_topic("t", config=COMPACT)
    for version in range(60):
        records = [(f"key {k}", os.urandom(20).hex() + f" {version}") for k in range(5)]
        penstock.produce("t", records, compression=compression)
    before = len(penstock.consume("t"))
    compact(penstock)
    assert len(penstock.consume("t")) < before
    newest = {r.key: r.value for r in penstock.consume("t")}
    assert {value.rsplit(b" ", 1)[1] for value in newest.values() if value} == {b"59"}


@pytest.mark.promise("log", "Tombstones are kept for `delete.retention.ms` and then removed")
def test_tombstones_delete_their_key_and_go_after_their_time(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", config=COMPACT)
    penstock.produce("t", [("gone", "x" * 500), ("stays", "y" * 500)])
    penstock.produce("t", [("gone", None)])
    for i in range(10):
        penstock.produce("t", [(f"filler {i}", "z" * 500)])
    compact(penstock)

    def values(key: bytes) -> list[bytes | None]:
        return [r.value for r in penstock.consume("t") if r.key == key]

    assert values(b"gone") == [None]
    assert values(b"stays") == [b"y" * 500]
    for i in range(10, 20):
        penstock.produce("t", [(f"filler {i}", "z" * 500)])
    penstock.clock.advance(seconds=11 * 60)
    for i in range(20, 30):
        penstock.produce("t", [(f"filler {i}", "z" * 500)])
    compact(penstock)
    assert values(b"gone") == []
    assert values(b"stays") == [b"y" * 500]


def test_a_restart_after_compaction_serves_the_same_records(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", config=COMPACT)
    for version in range(100):
        penstock.produce("t", [(f"key {k}", f"version {version}") for k in range(5)])
    before = len(penstock.consume("t"))
    compact(penstock)
    assert len(penstock.consume("t")) < before
    compacted = penstock.consume("t")
    penstock.kill()
    penstock.start()
    assert penstock.consume("t") == compacted
    assert penstock.produce("t", [("key 0", "new")])[0].offset == 500


def commit(broker: PenstockBroker, group: str, topic: str, offset: int) -> None:
    """As a consumer does that assigns itself its partitions."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.promise(
    "log",
    "With `penstock.retention.consumed.groups`, records that all these groups have consumed are deleted",
)
def test_what_all_named_groups_have_consumed_is_deleted(penstock: PenstockBroker) -> None:
    config = {"retention.ms": -1, "segment.bytes": 1000, "penstock.retention.consumed.groups": "a,b"}
    penstock.create_topic("t", config=config)
    fill(penstock, "t", 10)
    commit(penstock, "a", "t", 8)
    commit(penstock, "unnamed", "t", 10)
    penstock.clock.advance(seconds=31)
    assert offsets(penstock, "t") == list(range(10)), "b has consumed nothing"
    commit(penstock, "b", "t", 5)
    penstock.clock.advance(seconds=31)
    assert offsets(penstock, "t") == [5, 6, 7, 8, 9]
    penstock.kill()
    penstock.restart()
    assert offsets(penstock, "t")[-5:] == [5, 6, 7, 8, 9]
    penstock.clock.advance(seconds=31)
    assert offsets(penstock, "t") == [5, 6, 7, 8, 9]


@pytest.mark.promise("topics", "DeleteRecords moves the log start offset, which survives kill -9")
def test_records_that_a_client_was_told_are_deleted_stay_so_over_kill_9(penstock: PenstockBroker) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    penstock.create_topic("t")
    fill(penstock, "t", 6)
    admin = AdminClient({"bootstrap.servers": penstock.bootstrap})
    for future in admin.delete_records([TopicPartition("t", 0, 4)]).values():
        assert future.result(30).low_watermark == 4
    penstock.kill()
    penstock.restart()
    assert offsets(penstock, "t") == [4, 5]
