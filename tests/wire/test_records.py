"""Record batches: what we build others read, what others build we read, what is wrong is refused."""

from __future__ import annotations

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from penstock.errors import (
    CorruptMessage,
    InvalidRecord,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from penstock.wire.batches import compression
from penstock.wire.batches.records import (
    HEADER_SIZE,
    Record,
    build_batch,
    check_batch,
    check_compressed,
    control_marker,
    iter_records,
    parse_control,
    read_header,
    set_log_append_time,
    stamp,
)

CODECS = range(5)
blobs = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
records = st.lists(
    st.builds(
        Record, offset=st.just(0), timestamp=st.integers(0, 2**41), key=blobs, value=blobs, headers=headers
    ),
    min_size=1,
    max_size=20,
)


def plain(record: Record) -> tuple:
    return record.timestamp, record.key, record.value, record.headers


def simple(count: int = 3, size: int = 10, **options) -> bytes:
    return build_batch([Record(0, 1000 + n, b"k", b"v" * size) for n in range(count)], **options)


def with_crc(batch: bytes | bytearray) -> bytes:
    batch = bytearray(batch)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def changed(batch: bytes, position: int, layout: str, value: int) -> bytes:
    out = bytearray(batch)
    struct.pack_into(layout, out, position, value)
    return with_crc(out)


# -- there and back


@pytest.mark.parametrize("codec", CODECS)
@given(items=records, base_offset=st.integers(0, 2**50))
def test_what_is_built_is_read_back(codec: int, items: list[Record], base_offset: int) -> None:
    batch = build_batch(items, base_offset=base_offset, codec=codec)
    for buf in (batch, bytearray(batch), memoryview(batch)):
        header = check_batch(buf, 0, len(buf))
        assert (header.count, header.codec, header.size) == (len(items), codec, len(batch))
        back = list(iter_records(buf))
    assert list(map(plain, back)) == list(map(plain, items))
    assert [record.offset for record in back] == list(range(base_offset, base_offset + len(items)))
    assert header.max_timestamp == max(item.timestamp for item in items)
    assert header.base_timestamp == items[0].timestamp
    assert header.last_offset == base_offset + len(items) - 1


@pytest.mark.parametrize("codec", CODECS)
@given(items=records)
def test_aiokafka_reads_our_batches(codec: int, items: list[Record]) -> None:
    batch = build_batch(items, base_offset=7, codec=codec)
    theirs = AioRecords(batch).next_batch()
    assert theirs.validate_crc()
    found = [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert found == list(map(plain, items))


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP, compression.LZ4, compression.ZSTD])
@given(items=records)
def test_kafka_python_reads_our_batches(codec: int, items: list[Record]) -> None:
    theirs = MemoryRecords(build_batch(items, base_offset=7, codec=codec)).next_batch()
    assert theirs.validate_crc()
    found = [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert found == list(map(plain, items))


@pytest.mark.parametrize("codec", CODECS)
@given(items=records)
def test_we_read_aiokafkas_batches(codec: int, items: list[Record]) -> None:
    builder = AioBuilder(
        magic=2, compression_type=codec, is_transactional=1, producer_id=5, producer_epoch=6, base_sequence=7,
        batch_size=1 << 20,
    )  # fmt: skip
    for n, item in enumerate(items):
        builder.append(n, item.timestamp, item.key, item.value, list(item.headers))
    batch = bytes(builder.build())
    header = check_batch(batch, 0, len(batch))
    assert header.is_transactional and not header.is_control
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert list(map(plain, iter_records(batch))) == list(map(plain, items))


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP, compression.LZ4, compression.ZSTD])
@given(items=records)
def test_we_read_kafka_pythons_batches(codec: int, items: list[Record]) -> None:
    builder = MemoryRecordsBuilder(2, codec, 1 << 20)
    for item in items:
        builder.append(item.timestamp, item.key, item.value, list(item.headers))
    builder.close()
    batch = bytes(builder.buffer())
    check_batch(batch, 0, len(batch))
    assert list(map(plain, iter_records(batch))) == list(map(plain, items))


def test_holes_in_offsets_and_the_old_header_survive_a_rewrite() -> None:
    items = [Record(0, 1000, b"a", b"1"), Record(0, 1005, b"b", None)]
    batch = build_batch(
        items, base_offset=100, offsets=[102, 107], last_offset_delta=9, base_sequence=4, producer_id=1,
        producer_epoch=0, base_timestamp=990, max_timestamp=2000, leader_epoch=3, transactional=True,
    )  # fmt: skip
    with pytest.raises(InvalidRecord):
        check_batch(batch, 0, len(batch))  # a producer must not send holes
    header = check_batch(batch, 0, len(batch), stored=True)
    assert (header.base_offset, header.last_offset, header.count) == (100, 109, 2)
    assert (header.base_sequence, header.last_sequence, header.leader_epoch) == (4, 13, 3)
    assert (header.base_timestamp, header.max_timestamp) == (990, 2000)
    assert [(r.offset, r.timestamp) for r in iter_records(batch)] == [(102, 1000), (107, 1005)]


def test_a_batch_that_lost_all_its_records_keeps_its_place() -> None:
    batch = build_batch(
        [], base_offset=5, last_offset_delta=4, base_sequence=1, producer_id=9, producer_epoch=0
    )
    header = check_batch(batch, 0, len(batch), stored=True)
    assert (header.count, header.last_offset, header.last_sequence) == (0, 9, 5)
    assert list(iter_records(batch)) == []
    with pytest.raises(InvalidRecord):
        check_batch(batch, 0, len(batch))


def test_a_delete_horizon_is_the_base_timestamp_and_times_stay() -> None:
    batch = build_batch([Record(0, 1000, b"k", None)], delete_horizon=5000)
    header = check_batch(batch, 0, len(batch))
    assert header.has_delete_horizon and header.base_timestamp == 5000
    assert [record.timestamp for record in iter_records(batch)] == [1000]


def test_sequences_wrap() -> None:
    header = read_header(simple(3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0
    assert read_header(simple(3)).last_sequence == -1


# -- changes in place


def test_stamping_leaves_the_crc_right() -> None:
    buf = bytearray(b"..." + simple() + b"...")
    stamp(buf, 3, 12345, 17)
    header = check_batch(buf, 3, len(buf) - 3)
    assert (header.base_offset, header.leader_epoch) == (12345, 17)


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_goes_for_every_record(codec: int) -> None:
    buf = bytearray(b"..." + simple(codec=codec) + b"...")
    set_log_append_time(buf, 3, 999_999)
    header = check_batch(buf, 3, len(buf) - 3)
    assert header.is_log_append_time and header.max_timestamp == 999_999 and header.codec == codec
    assert {record.timestamp for record in iter_records(buf, 3)} == {999_999}


# -- control records


@pytest.mark.parametrize("kind", ["commit", "abort"])
def test_markers_say_how_a_transaction_ended(kind: str) -> None:
    batch = control_marker(kind, 7, 1000, 3, 1234, base_offset=9, leader_epoch=2)
    header = check_batch(batch, 0, len(batch))
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1000, 3, -1)
    (record,) = iter_records(batch)
    assert (record.offset, record.timestamp) == (9, 1234)
    assert parse_control(record) == (kind, 7)
    assert AioRecords(batch).next_batch().is_control_batch


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00"])
def test_a_control_record_without_a_type_is_invalid(key: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        parse_control(Record(0, 0, key, b""))


# -- what must be refused


@pytest.mark.promise(
    "hostile input", "A flipped bit is detected; wrong counts are rejected, also inside compressed batches"
)
def test_a_flipped_bit_anywhere_under_the_crc_is_corrupt() -> None:
    batch = simple()
    for position in range(21, len(batch)):
        broken = bytearray(batch)
        broken[position] ^= 4
        with pytest.raises(CorruptMessage):
            check_batch(broken, 0, len(broken))


def test_a_batch_cut_anywhere_is_refused() -> None:
    batch = simple()
    for end in range(len(batch)):
        with pytest.raises(CorruptMessage):
            check_batch(batch, 0, end)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [17, 34, 200])
def test_old_record_formats_get_their_own_error(magic: int, size: int) -> None:
    old = bytearray(size)
    struct.pack_into(">qiIb", old, 0, 0, size - 12, 0, magic)
    with pytest.raises(UnsupportedForMessageFormat):
        check_batch(old, 0, len(old))


@pytest.mark.parametrize("magic", [3, -1, 127])
def test_unknown_record_formats_are_corrupt(magic: int) -> None:
    with pytest.raises(CorruptMessage):
        check_batch(changed(simple(), 16, ">b", magic), 0, len(simple()))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_impossible_batch_lengths_are_corrupt(length: int) -> None:
    batch = bytearray(simple())
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptMessage):
        check_batch(batch, 0, len(batch))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    batch = changed(simple(), 21, ">h", codec)
    with pytest.raises(UnsupportedCompressionType):
        check_batch(batch, 0, len(batch))


@pytest.mark.promise(
    "hostile input", "A flipped bit is detected; wrong counts are rejected, also inside compressed batches"
)
@pytest.mark.parametrize("count", [-(2**31), -1, 0, 2, 4, 2**31 - 1])
@pytest.mark.parametrize("delta_too", [False, True])
def test_wrong_counts_are_invalid(count: int, delta_too: bool) -> None:
    batch = changed(simple(3), 57, ">i", count)
    if delta_too and count > 0:
        batch = changed(batch, 23, ">i", count - 1)
    with pytest.raises(InvalidRecord):
        check_batch(batch, 0, len(batch))


def test_wrong_counts_inside_compression_are_found_when_asked() -> None:
    for codec in range(1, 5):
        good = simple(3, codec=codec)
        check_compressed(good, 0, check_batch(good, 0, len(good)))
        for count in (2, 4):
            batch = changed(changed(good, 57, ">i", count), 23, ">i", count - 1)
            header = check_batch(batch, 0, len(batch))
            with pytest.raises(InvalidRecord):
                check_compressed(batch, 0, header)
            with pytest.raises(InvalidRecord):
                list(iter_records(batch))


def raw_batch(payload: bytes, count: int = 1) -> bytes:
    empty = bytearray(build_batch([], last_offset_delta=count - 1))
    struct.pack_into(">i", empty, 57, count)
    batch = empty + payload
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    return with_crc(batch)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0d" + bytes(6),  # a negative length
        b"\x0a" + bytes(6),  # shorter than any record
        b"\x8a\x00" + bytes(5),  # the same, with a needless byte
        b"\x8d\x00" + bytes(6),  # negative, with a needless byte
        b"\x0e" + bytes(6),  # one byte too few
        b"\x0c" + bytes(7),  # one byte too many
        b"\xff\xff\xff\xff\x0f" + bytes(6),
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + bytes(6),  # 64 bits
        b"\xff" * 12,
        b"\x80\x80\x80\x80\x80\x80\x01" + bytes(6),
    ],
)
def test_record_lengths_must_lead_exactly_to_the_end(payload: bytes) -> None:
    batch = raw_batch(payload)
    with pytest.raises(InvalidRecord):
        check_batch(batch, 0, len(batch))
    with pytest.raises(InvalidRecord):
        check_batch(batch + batch, 0, 2 * len(batch))  # bytes behind the batch do not help
    with pytest.raises(InvalidRecord):
        list(iter_records(batch))


def test_needless_bytes_in_a_length_are_allowed_as_kafka_allows_them() -> None:
    batch = raw_batch(b"\x8e\x00" + b"\x00\x00\x00\x00\x02v\x00")
    check_batch(batch, 0, len(batch))
    assert [record.value for record in iter_records(batch)] == [b"v"]


def test_lengths_of_every_width_are_walked() -> None:
    for size in (0, 50, 57, 58, 59, 60, 8000, 8178, 8190, 8200, 1_048_560, 1_048_580):
        batch = simple(2, size)
        assert check_batch(batch, 0, len(batch)).count == 2


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0c\x00\x00\x00\x03\x01\x00",  # a key of length -2
        b"\x0c\x00\x00\x00\x01\x64\x00",  # a value longer than its record
        b"\x0c\x00\x00\x00\x01\x01\x01",  # -1 headers
        b"\x0c\x00\x00\x00\x01\x01\x7e",  # 63 headers in no bytes
        b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",  # a header without a key
        b"\x0e\x00\x00\x00\x01\x01\x00\x00",  # a byte too many in the record
    ],
)
def test_records_whose_fields_disagree_with_their_length_are_invalid(payload: bytes) -> None:
    with pytest.raises(InvalidRecord):
        list(iter_records(raw_batch(payload)))
    with pytest.raises(InvalidRecord):
        check_batch(raw_batch(payload), 0, HEADER_SIZE + len(payload))


def test_the_key_of_a_header_may_be_any_bytes_and_stays_as_it_is() -> None:
    batch = raw_batch(b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01")
    check_batch(batch, 0, len(batch))
    records = list(iter_records(batch))
    assert build_batch(records)[HEADER_SIZE:] == batch[HEADER_SIZE:]


def test_a_header_alone_is_read_without_a_look_at_the_rest() -> None:
    batch = simple(3, base_offset=5)
    header = read_header(b".." + batch[:HEADER_SIZE], 2)
    assert (header.base_offset, header.count, header.size) == (5, 3, len(batch))
    with pytest.raises(CorruptMessage):
        read_header(batch[: HEADER_SIZE - 1])
    assert "base_offset=5" in repr(header)
