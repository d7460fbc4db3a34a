"""Appending to and reading from one partition's log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import errors
from penstock.clock import ManualClock
from penstock.wire.batches.records import iter_records, read_header
from tests.unit.log_helpers import append, batch, contents, make_log


@pytest.mark.promise(
    "log", "Offsets increase by one for each record, and records are read back byte for byte"
)
def test_offsets_count_up_from_zero_and_the_bytes_come_back(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    sent = batch([b"a", b"b"])
    assert append(log, sent).base_offset == 0
    assert append(log, batch([b"c"])).base_offset == 2
    first = log.read(0, 1 << 20, 3)[0].read()
    assert first[: len(sent)] == bytes(sent)
    assert contents(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.promise(
    "log", "Offsets increase by one for each record, and records are read back byte for byte"
)
@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=40),
    value=st.integers(0, 400),
    segment_bytes=st.sampled_from([700, 2000, 1 << 20]),
    interval=st.sampled_from([0, 150, 4096]),
    max_bytes=st.integers(1, 3000),
)
def test_every_offset_can_be_read_from_whatever_the_segments(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    value: int,
    segment_bytes: int,
    interval: int,
    max_bytes: int,
) -> None:
    log = make_log(
        tmp_path_factory.mktemp("log"),
        segment_bytes=max(segment_bytes, 4 * (value + 20) + 70),
        index_interval_bytes=interval,
    )
    for size in sizes:
        append(log, batch([b"x" * value] * size))
    for offset in range(log.log_end_offset):
        slices = log.read(offset, max_bytes, log.log_end_offset)
        data = b"".join(piece.read() for piece in slices)
        header = read_header(data)
        assert header.base_offset <= offset <= header.last_offset
        if len(data) > max_bytes:
            assert len(data) == header.size, "only the first batch may exceed the limit"
        position = 0
        while position < len(data):
            position += read_header(data, position).size
        assert position == len(data), "a read ends at the end of a batch"
    assert [offset for offset, _ in contents(log)] == list(range(sum(sizes)))


def test_a_read_stops_at_the_bound_and_says_when_an_offset_is_outside(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for value in (b"a", b"b", b"c"):
        append(log, batch([value]))
    data = b"".join(piece.read() for piece in log.read(0, 1 << 20, 2))
    assert [record.value for position in (0,) for record in iter_records(data, position)] == [b"a"]
    assert len(data) == 2 * read_header(data).size
    assert log.read(3, 100, 3) == []
    with pytest.raises(errors.OffsetOutOfRange):
        log.read(4, 100, 3)
    assert log.read(0, 10, 3, min_one=False) == []


@pytest.mark.promise("log", "A segment is rolled by size, by age or when its index is full")
@pytest.mark.parametrize(
    ("settings", "appended"),
    [
        ({"segment_bytes": 250}, [0, 0, 0]),
        ({"segment_ms": 1000}, [0, 500, 1001]),
        ({"segment_index_bytes": 8, "index_interval_bytes": 0}, [0, 0, 0, 0]),
    ],
)
def test_a_segment_ends_by_size_age_or_a_full_index(
    tmp_path: Path, settings: dict[str, int], appended: list[int]
) -> None:
    clock = ManualClock()
    log = make_log(tmp_path, clock, **settings)
    for delta in appended:
        append(log, batch([b"x" * 100], timestamp=clock.now_ms() + delta))
    assert len(log.segments) > 1
    assert len(contents(log)) == len(appended)
    names = sorted(name for name in os.listdir(log.directory) if name.endswith(".log"))
    assert names == [f"{segment.base_offset:020d}.log" for segment in log.segments]


def test_log_append_time_is_the_brokers_and_the_crc_still_holds(tmp_path: Path) -> None:
    clock = ManualClock(5_000)
    log = make_log(tmp_path, clock, message_timestamp_type="LogAppendTime")
    info = append(log, batch([b"a"], timestamp=1))
    assert info.log_append_time == 5_000
    reopened = make_log(tmp_path, clock)
    assert contents(reopened) == [(0, b"a")]
    found = reopened.offset_for_timestamp(5_000)
    assert found is not None and (found.offset, found.timestamp) == (0, 5_000)


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_topics_compression_wins_over_the_producers(tmp_path: Path, target: str, codec: int) -> None:
    log = make_log(tmp_path, compression_type=target)
    append(log, batch([b"v" * 50] * 3, codec=codec, producer=(9, 0, 0)))
    header = read_header(log.read(0, 1 << 20, 3)[0].read())
    assert header.codec == ["uncompressed", "gzip", "snappy", "lz4", "zstd"].index(target)
    assert (header.producer_id, header.base_sequence, header.count) == (9, 0, 3)
    assert contents(log) == [(0, b"v" * 50), (1, b"v" * 50), (2, b"v" * 50)]


@pytest.mark.parametrize(
    ("settings", "data", "error"),
    [
        ({"max_message_bytes": 100}, batch([b"x" * 200]), errors.MessageTooLarge),
        ({"segment_bytes": 100}, batch([b"x" * 200]), errors.RecordListTooLarge),
        ({"cleanup_policy": frozenset({"compact"})}, batch([b"x"]), errors.InvalidRecord),
        (
            {"message_timestamp_after_max_ms": 10},
            batch([b"x"], timestamp=1_700_000_001_000),
            errors.InvalidTimestamp,
        ),
        ({"message_timestamp_before_max_ms": 10}, batch([b"x"], timestamp=5), errors.InvalidTimestamp),
        ({}, batch([b"x"], control=True), errors.InvalidRecord),
        ({}, batch([b"x"], producer=(1, 0, -1)), errors.InvalidRecord),
        ({}, batch([b"x"], producer=(-5, 0, 0)), errors.InvalidRecord),
        ({}, batch([b"x"], transactional=True), errors.InvalidRecord),
        ({}, batch([b"x"]) + batch([b"y"]), errors.InvalidRecord),
        ({}, batch([b"x"])[:-1], errors.CorruptMessage),
        ({}, batch([b"x"], log_append_time=5), errors.InvalidTimestamp),
    ],
)
def test_a_batch_that_breaks_a_rule_is_refused_and_changes_nothing(
    tmp_path: Path, settings: dict[str, object], data: bytearray, error: type[Exception]
) -> None:
    log = make_log(tmp_path, **settings)
    with pytest.raises(error):
        append(log, bytearray(data))
    assert (log.log_end_offset, log.size) == (0, 0)


@pytest.mark.promise(
    "hostile input", "A flipped bit is detected; wrong counts are rejected, also inside compressed batches"
)
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_compressed_batch_whose_count_lies_is_refused(tmp_path: Path, codec: int) -> None:
    from crc32c import crc32c

    data = batch([b"x"] * 3, codec=codec)
    data[23:27] = (4).to_bytes(4, "big")  # last offset delta
    data[57:61] = (5).to_bytes(4, "big")  # count
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    with pytest.raises(errors.InvalidRecord):
        append(make_log(tmp_path), data)


def test_offsets_are_found_by_time_across_segments_and_disorder(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=400, index_interval_bytes=100)
    times = [100, 300, 200, 400, 350, 500, 450, 900, 800]
    for time in times:
        append(log, batch([b"x" * 60], timestamp=time))
    for wanted in range(0, 901, 50):
        found = log.offset_for_timestamp(wanted)
        first = next(i for i, time in enumerate(times) if time >= wanted)
        assert found is not None and (found.offset, found.timestamp) == (first, times[first])
    assert log.offset_for_timestamp(901) is None
    newest = log.max_timestamp_offset()
    assert newest is not None and newest.offset == 7


def test_a_follower_appends_what_the_leader_wrote(tmp_path: Path) -> None:
    leader, follower = make_log(tmp_path / "a"), make_log(tmp_path / "b")
    for i in range(5):
        append(leader, batch([b"%d" % i], producer=(4, 0, i)), epoch=3)
    data = bytearray(b"".join(piece.read() for piece in leader.read(0, 1 << 20, 5)))
    follower.append_as_follower(data, 0, len(data))
    assert contents(follower) == contents(leader)
    assert follower.epochs.entries == leader.epochs.entries
    assert follower.producers.producers[4].batches == leader.producers.producers[4].batches


@pytest.mark.promise(
    "reassignment",
    "A follower that restarts its log at an offset inside a batch of the leader (DeleteRecords put the "
    "log start there) fetches that batch",
)
def test_a_follower_that_is_empty_takes_the_batch_that_its_start_lies_in(tmp_path: Path) -> None:
    leader, follower = make_log(tmp_path / "a"), make_log(tmp_path / "b")
    append(leader, batch([b"%d" % i for i in range(10)], producer=(4, 0, 0)), epoch=3)
    append(leader, batch([b"x"], producer=(4, 0, 10)), epoch=3)
    data = bytearray(b"".join(piece.read() for piece in leader.read(0, 1 << 20, 11)))
    follower.truncate_fully_and_start_at(6)
    follower.settle()
    follower.append_as_follower(data, 0, len(data))
    assert (follower.log_start_offset, follower.high_watermark, follower.log_end_offset) == (6, 6, 11)
    assert follower.segments[0].base_offset == 0 and follower.recovery_point == 0
    follower.check()
    # It is a log like others: what lies before its start was deleted, and a batch that it has is refused.
    follower.update_high_watermark(11)
    assert contents(follower)[-1] == (10, b"x")
    with pytest.raises(errors.OffsetOutOfRange, match="ends at 11, the leader sent 0"):
        follower.append_as_follower(data, 0, len(data))
    follower.close()
    # After a crash that tore this batch, a recovery point inside it vouches for none of it.
    path = follower.active.file.path
    os.truncate(path, os.stat(path).st_size // 2)
    again = make_log(tmp_path / "b", recovery_point=6, log_start_offset=6)
    assert contents(again) == [] and again.log_end_offset <= 6


def test_preallocated_space_is_given_back(tmp_path: Path) -> None:
    log = make_log(tmp_path, preallocate=True, segment_bytes=1 << 20)
    append(log, batch([b"x"]))
    path = log.active.file.path
    assert os.stat(path).st_size == 1 << 20
    log.close()
    assert os.stat(path).st_size == len(batch([b"x"]))
    assert contents(make_log(tmp_path, clean=True)) == [(0, b"x")]


def test_a_slice_stays_readable_after_its_segment_is_deleted(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=200, retention_ms=-1, retention_bytes=0)
    for i in range(4):
        append(log, batch([b"%d" % i * 100]))
    piece = log.read(0, 1 << 20, 4)[0]
    expected = piece.read()
    assert log.apply_retention() == 4
    log.clock.advance(60_001)  # type: ignore[attr-defined]
    log.delayed_deletes.purge()
    assert [name for name in os.listdir(log.directory) if ".deleted" in name] == []
    assert piece.read() == expected
