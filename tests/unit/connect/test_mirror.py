"""Replication without a cluster: names, filters, formats, batches to copy, translation, and properties."""

from __future__ import annotations

import random
from bisect import bisect_left

import pytest

from penstock.client import READ_COMMITTED, READ_UNCOMMITTED, FetchedBytes
from penstock.client.groups import Committed
from penstock.connect.connectors.mirror.batches import batches_to_copy
from penstock.connect.connectors.mirror.checkpoints import new_checkpoints
from penstock.connect.connectors.mirror.flows import BadFlows, flows, unknown_names
from penstock.connect.connectors.mirror.formats import Checkpoint, Heartbeat, OffsetSync
from penstock.connect.connectors.mirror.offset_syncs import OffsetSyncs, SyncPlanner
from penstock.connect.connectors.mirror.policy import (
    IdentityReplicationPolicy,
    NameFilter,
    ReplicationPolicy,
    TopicFilter,
)
from penstock.connect.connectors.mirror.schedule import Schedule
from penstock.connect.connectors.mirror.settings import SOURCE_FIELDS
from penstock.connect.connectors.mirror.source_connector import MirrorSourceConnector
from penstock.connect.errors import ConnectError, DataError
from penstock.connect.settings import parse
from penstock.errors import CorruptMessage
from penstock.wire.batches.batch import HEADER_SIZE, check_batch, set_producer
from penstock.wire.batches.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from penstock.wire.batches.records import Record, build_batch, control_marker, iter_records, read_header
from tests.repetitions import times

CONFIG = {
    "source.cluster.alias": "east",
    "target.cluster.alias": "west",
    "source.cluster.bootstrap.servers": "east:9092",
    "target.cluster.bootstrap.servers": "west:9092",
}

# Names


def test_a_remote_topic_has_the_alias_of_its_source() -> None:
    policy = ReplicationPolicy("east")
    assert policy.remote_topic("orders") == "east.orders"
    assert policy.topic_source("east.orders") == "east"
    assert policy.upstream_topic("north.east.orders") == "east.orders"
    assert policy.original_topic("north.east.orders") == "orders"
    assert policy.topic_source("orders") is None and policy.upstream_topic("orders") is None
    assert policy.offset_syncs_topic("west") == "mm2-offset-syncs.west.internal"
    assert policy.checkpoints_topic() == "east.checkpoints.internal"


def test_the_identity_policy_keeps_names_but_for_heartbeats() -> None:
    policy = IdentityReplicationPolicy("east")
    assert policy.remote_topic("orders") == "orders" and policy.upstream_topic("orders") == "orders"
    assert policy.remote_topic("heartbeats") == "east.heartbeats"
    assert not policy.is_cycle("orders", "west")


def test_a_separator_of_ones_own() -> None:
    policy = ReplicationPolicy("east", "_")
    assert policy.remote_topic("a.b") == "east_a.b" and policy.topic_source("a.b") is None
    assert policy.checkpoints_topic() == "east_checkpoints_internal"
    dotted = ReplicationPolicy("east", "_", internal_separator=False)
    assert dotted.checkpoints_topic() == "east.checkpoints.internal"


@pytest.mark.parametrize(
    ("topic", "wanted"),
    [
        ("orders", True),
        ("north.orders", True),
        ("west.orders", False),  # it has come from the target
        ("north.west.orders", False),  # by way of another cluster
        ("heartbeats", True),
        ("west.heartbeats", False),
        ("__consumer_offsets", False),
        ("mm2-offset-syncs.west.internal", False),
        ("connect-offsets.internal", False),
        ("audit", False),
    ],
)
@pytest.mark.promise(
    "mirror",
    "Records that came from the target cluster are not replicated back to it, through any number of clusters",
)
def test_topics_that_came_from_the_target_are_left_out(topic: str, wanted: bool) -> None:
    settings = parse(SOURCE_FIELDS, {**CONFIG, "topics.exclude": "audit"})
    assert TopicFilter(settings, ReplicationPolicy("east")).matches(topic) == wanted


def test_a_filter_takes_names_and_expressions_as_a_whole() -> None:
    chosen = NameFilter(["orders", "pay.*"], ["payroll"])
    assert chosen.matches("orders") and chosen.matches("payments")
    assert not chosen.matches("orders-2") and not chosen.matches("payroll") and not chosen.matches("repay")
    assert not NameFilter([], []).matches("a")


# Formats


def test_the_bytes_of_mirrormakers_records() -> None:
    heartbeat = Heartbeat("a", "bé", 5)
    assert heartbeat.key() == b"\x00\x01a\x00\x03b\xc3\xa9"
    assert heartbeat.value() == b"\x00\x00" + b"\x00" * 7 + b"\x05"
    checkpoint = Checkpoint("g", "t", 3, 7, 9, "m")
    assert checkpoint.key() == b"\x00\x01g\x00\x01t\x00\x00\x00\x03"
    assert checkpoint.value() == b"\x00\x00" + b"\x00" * 7 + b"\x07" + b"\x00" * 7 + b"\x09\x00\x01m"
    sync = OffsetSync("t", 3, 7, 9)
    assert sync.key() == b"\x00\x01t\x00\x00\x00\x03"
    assert sync.value() == b"\x00" * 7 + b"\x07" + b"\x00" * 7 + b"\x09"
    for record in (heartbeat, checkpoint, sync):
        assert type(record).of(record.key(), record.value()) == record


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x05ab", b"\xff\xff", b"\x00\x01\xff\x00\x00\x00\x00"])
def test_a_record_that_is_not_mirrormakers_is_an_error(key: bytes) -> None:
    with pytest.raises(DataError):
        OffsetSync.of(key, b"\x00" * 16)
    with pytest.raises(DataError, match="version 1"):
        Heartbeat.of(b"\x00\x01a\x00\x01b", b"\x00\x01" + b"\x00" * 8)


# Batches


def records(count: int, first: int = 0) -> list[Record]:
    return [Record(first + i, 1000 + i, b"k%d" % i, b"v" * 30, (("h", b"x"),), 0, 0) for i in range(count)]


def fetched(*batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> FetchedBytes:
    data = b"".join(batches)
    return FetchedBytes(None, -1, -1, -1, aborted, memoryview(data))


def contents(batch: bytes | memoryview) -> list[tuple[object, ...]]:
    return [(one.timestamp, one.key, one.value, one.headers) for one in iter_records(batch)]


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.promise(
    "mirror", "Batches are copied byte for byte: compression, timestamps, keys, values and headers"
)
def test_a_batch_is_copied_as_it_is(codec: int) -> None:
    batch = build_batch(records(20), base_offset=100, codec=codec)
    ((data, offsets),), following = batches_to_copy(fetched(batch), 100, isolation=READ_COMMITTED)
    assert bytes(data) == batch and list(offsets) == list(range(100, 120)) and following == 120


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_the_header_of_another_producer_leaves_the_records_bytes(codec: int) -> None:
    batch = build_batch(records(20), codec=codec, producer_id=7, producer_epoch=1, base_sequence=5)
    stamped = bytearray(build_batch(records(20), base_offset=50, codec=codec, producer_id=7))
    set_producer(stamped, 0, 99, 3, 1234, transactional=True)
    header = check_batch(stamped, 0, len(stamped))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (99, 3, 1234)
    assert (
        header.base_offset == 0
        and header.is_transactional
        and header.codec == codec
        and header.max_timestamp == 1019
    )
    assert stamped[HEADER_SIZE:] == batch[HEADER_SIZE:]
    set_producer(stamped, 0, 7, 1, 5, transactional=False)
    assert stamped == batch


def test_markers_and_aborted_records_are_left_out() -> None:
    kept = build_batch(
        records(3), base_offset=0, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
    )
    aborted = build_batch(
        records(2), base_offset=3, producer_id=2, producer_epoch=0, base_sequence=0, transactional=True
    )
    ends = [
        control_marker("commit", 0, 1, 0, 0, base_offset=5),
        control_marker("abort", 0, 2, 0, 0, base_offset=6),
    ]
    answer = fetched(kept, aborted, *ends, aborted=((2, 3),))
    found, following = batches_to_copy(answer, 0, isolation=READ_COMMITTED)
    assert [bytes(batch.data) for batch in found] == [kept] and following == 7
    found, _ = batches_to_copy(answer, 0, isolation=READ_UNCOMMITTED)
    assert [bytes(batch.data) for batch in found] == [kept, aborted]


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_batch_with_gaps_is_encoded_without_them(codec: int) -> None:
    some = [records(10)[i] for i in (1, 4, 9)]
    batch = build_batch(some, base_offset=50, codec=codec, offsets=[51, 54, 59], last_offset_delta=9)
    ((data, offsets),), following = batches_to_copy(fetched(batch), 50, isolation=READ_COMMITTED)
    assert list(offsets) == [51, 54, 59] and following == 60
    header = check_batch(data, 0, len(data))
    assert header.count == 3 and header.codec == codec
    assert contents(data) == contents(batch)


def test_times_of_the_broker_become_times_of_the_records() -> None:
    batch = build_batch(records(3), log_append_time=777)
    ((data, _),), _ = batches_to_copy(fetched(batch), 0, isolation=READ_COMMITTED)
    assert not read_header(data).is_log_append_time
    assert {one.timestamp for one in iter_records(data)} == {777}


def test_a_part_of_a_batch_is_copied_from_the_position_on() -> None:
    batch = build_batch(records(10), base_offset=0)
    ((data, offsets),), following = batches_to_copy(fetched(batch), 7, isolation=READ_COMMITTED)
    assert list(offsets) == [7, 8, 9] and contents(data) == contents(batch)[7:] and following == 10


def test_a_damaged_batch_is_an_error_and_a_torn_one_waits() -> None:
    batch = build_batch(records(10), base_offset=0)
    damaged = bytearray(batch)
    damaged[-1] ^= 1
    with pytest.raises(CorruptMessage):
        batches_to_copy(fetched(bytes(damaged)), 0, isolation=READ_COMMITTED)
    assert batches_to_copy(fetched(batch[:-1]), 0, isolation=READ_COMMITTED) == ([], 0)


# Offsets


@pytest.mark.repeated
@pytest.mark.parametrize("seed", range(times(10, 200)))
@pytest.mark.promise(
    "mirror", "A translated offset is never past the group's position, and at most `offset.lag.max` before it"
)
def test_translation_never_skips_and_hardly_rereads(seed: int) -> None:
    chance = random.Random(seed)
    lag = chance.choice([0, 1, 10, 100])
    planner, syncs = SyncPlanner("t", 0, lag), OffsetSyncs()
    placed: list[tuple[int, int]] = []  # upstream, downstream of each record that was replicated
    upstream, downstream = chance.randrange(5), chance.randrange(5)
    for _ in range(chance.randrange(1, 40)):
        offsets = []
        for _ in range(chance.randrange(1, 150)):
            offsets.append(upstream)
            upstream += 1 if chance.random() < 0.9 else chance.randrange(1, 5)
        placed += [(offset, downstream + i) for i, offset in enumerate(offsets)]
        for sync in planner.add(offsets, downstream):
            syncs.add(sync)
        downstream += len(offsets) + chance.choice([0, 1])  # a transaction's marker
        upstream += chance.choice([0, 0, 1])
        if chance.random() < 0.2 and (latest := planner.take_latest()) is not None:
            syncs.add(latest)
    if (latest := planner.take_latest()) is not None:
        syncs.add(latest)
    first = placed[0][0]
    ups, downs = [up for up, _ in placed], [down for _, down in placed]
    for committed in range(first, upstream + 1):
        translated = syncs.translate("t", 0, committed)
        assert translated is not None
        read = bisect_left(ups, committed)  # the records before the committed offset
        repeated_from = bisect_left(downs, translated)
        assert repeated_from <= read, f"{committed} became {translated}: records are skipped"
        assert read - repeated_from <= lag + 1, f"{committed} became {translated}"
    assert syncs.translate("t", 0, upstream) == placed[-1][1] + 1
    assert syncs.translate("t", 0, first - 1) is None and syncs.translate("t", 1, 5) is None


def test_a_topic_that_is_replicated_again_forgets_old_syncs() -> None:
    syncs = OffsetSyncs()
    for pair in ((10, 100), (20, 110), (5, 200)):
        syncs.add(OffsetSync("t", 0, *pair))
    assert syncs.translate("t", 0, 20) == 201 and syncs.translate("t", 0, 4) is None


def test_many_syncs_are_thinned_out_and_stay_correct() -> None:
    syncs = OffsetSyncs()
    for number in range(100_000):
        syncs.add(OffsetSync("t", 0, number * 10, number * 11))
    for committed in (0, 123_450, 999_990, 999_995):
        found = syncs.translate("t", 0, committed)
        assert found is not None and found <= committed // 10 * 11 + 1
    assert syncs.translate("t", 0, 999_990) == 99_999 * 11


def test_checkpoints_go_forward_unless_the_group_was_reset() -> None:
    syncs = OffsetSyncs()
    for pair in ((0, 0), (10, 12), (20, 24)):
        syncs.add(OffsetSync("t", 0, *pair))

    def new(offset: int, last: Checkpoint | None) -> list[int]:
        known = {} if last is None else {("east.t", 0): last}
        committed = {("t", 0): Committed(offset, ""), ("other", 0): Committed(5, "")}
        found = new_checkpoints("g", committed, syncs, lambda topic: f"east.{topic}", known)
        return [each.downstream_offset for each in found]

    assert new(10, None) == [12]
    last = Checkpoint("g", "east.t", 0, 10, 12)
    assert new(10, last) == []
    assert new(21, last) == [25]
    assert new(15, Checkpoint("g", "east.t", 0, 14, 20)) == []  # this run knows less than an earlier one
    assert new(0, last) == [0]  # reset in the source


def test_a_job_that_fails_is_repeated_soon() -> None:
    from penstock.client import AuthenticationFailed, ClusterTimeout

    now, calls = [0.0], []
    schedule = Schedule(lambda: now[0])
    trouble: list[Exception] = [ClusterTimeout("away")]

    def work() -> None:
        calls.append(now[0])
        if trouble:
            raise trouble.pop()

    schedule.every(600, "working", work)
    for _ in range(12):
        schedule.run()
        now[0] += 1
    assert calls == [0.0, 5.0]
    trouble.append(AuthenticationFailed("wrong password"))
    now[0] = 1000.0
    with pytest.raises(AuthenticationFailed):
        schedule.run()


# Settings


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"topics": "a, [b"}, "topics", "not a regular expression"),
        ({"source.cluster.alias": "ea.st"}, "source.cluster.alias", "without the separator"),
        ({"target.cluster.alias": "east"}, "target.cluster.alias", "the source has this alias"),
        ({"source.cluster.bootstrap.servers": "east:x"}, "source.cluster.bootstrap.servers", "not host:port"),
        ({"transforms": "a"}, "transforms", "must not be set"),
        (
            {"exactly.once.support": "required", "source.consumer.isolation.level": "read_uncommitted"},
            "exactly.once.support",
            "read_committed",
        ),
    ],
)
def test_a_bad_setting_is_refused_by_its_name(change: dict[str, str], field: str, says: str) -> None:
    found = MirrorSourceConnector.validate({**CONFIG, **change})
    assert [name for name, texts in found.items() if texts] == [field]
    assert says in found[field][0]
    assert not any(MirrorSourceConnector.validate(CONFIG).values())


def test_offsets_that_a_user_sets_are_checked() -> None:
    place = {"cluster": "east", "topic": "t", "partition": 0}
    assert MirrorSourceConnector.alter_offsets(CONFIG, [(place, {"offset": 5}), ({}, None)])
    for partition, offset in (
        ({"topic": "t"}, {"offset": 5}),
        (place, {"offset": -1}),
        (place, {"offset": "5"}),
    ):
        with pytest.raises(ConnectError, match="must contain"):
            MirrorSourceConnector.alter_offsets(CONFIG, [(partition, offset)])


# Whole replications

PROPERTIES = {
    "clusters": "east, west",
    "east.bootstrap.servers": "e:9092",
    "west.bootstrap.servers": "w:9092",
    "west.sasl.jaas.config": "secret",
    "east->west.enabled": "true",
    "east->west.topics": "orders",
    "topics.exclude": "x",
    "security.protocol": "SASL_SSL",
    "tasks.max": "4",
    "west.consumer.fetch.max.wait.ms": "5",
    "east.offset.flush.interval.ms": "9",
}


def test_a_mirrormaker_file_becomes_workers_and_connectors() -> None:
    forth, back = flows(PROPERTIES)
    assert (forth.source, forth.target) == ("east", "west") and (back.source, back.target) == ("west", "east")
    assert list(forth.connectors) == [
        "MirrorSourceConnector",
        "MirrorCheckpointConnector",
        "MirrorHeartbeatConnector",
    ]
    # Heartbeats of the source are written in the source: the replication carries them to the target.
    assert list(back.connectors) == ["MirrorHeartbeatConnector"]
    config = forth.connectors["MirrorSourceConnector"]
    expected = {
        "connector.class": "MirrorSourceConnector",
        "source.cluster.alias": "east",
        "target.cluster.alias": "west",
        "source.cluster.bootstrap.servers": "e:9092",
        "target.cluster.bootstrap.servers": "w:9092",
        "source.cluster.security.protocol": "SASL_SSL",
        "target.cluster.sasl.jaas.config": "secret",
        "target.consumer.fetch.max.wait.ms": "5",
        "topics": "orders",
        "topics.exclude": "x",
        "tasks.max": "4",
    }
    assert {name: config.get(name) for name in expected} == expected
    assert forth.client == {
        "bootstrap.servers": "w:9092",
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": "secret",
    }
    assert forth.worker["group.id"] == "east-mm2"
    assert forth.worker["offset.storage.topic"] == "mm2-offsets.east.internal"
    assert forth.worker["exactly.once.source.support"] == "enabled"
    assert "offset.flush.interval.ms" not in forth.worker and back.worker["offset.flush.interval.ms"] == "9"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clusters": "east"}, "at least two clusters"),
        ({"west.bootstrap.servers": ""}, "west.bootstrap.servers is missing"),
        ({"east->west.enabled": "false"}, "no replication is enabled"),
        ({"east->wset.topics": "a"}, "wset is not one of the clusters"),
    ],
)
def test_properties_that_describe_no_replication_say_why(change: dict[str, str], says: str) -> None:
    with pytest.raises(BadFlows, match=says):
        flows({**PROPERTIES, **change})


def test_a_misspelled_property_is_named_with_the_near_one() -> None:
    (found,) = unknown_names({**PROPERTIES, "topcis": "a"})
    assert found.startswith("topcis") and "topics" in found


def test_without_heartbeats_nothing_runs_at_the_source() -> None:
    (only,) = flows({**PROPERTIES, "emit.heartbeats.enabled": "false"})
    assert list(only.connectors) == ["MirrorSourceConnector", "MirrorCheckpointConnector"]
