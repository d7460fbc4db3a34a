"""Records to columns: both decoders against each other and against the reader of single records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client import READ_UNCOMMITTED
from penstock.client.fetched_batches import scan
from penstock.errors import InvalidRecord
from penstock.spark.source import decode, decode_compiled, decode_plain
from penstock.spark.source.decode import BatchDecoder, Columns, gather
from penstock.wire.batches import compression
from penstock.wire.batches.batch import HEADER_SIZE
from penstock.wire.batches.records import Record, build_batch, iter_records

TWINS = [decode_plain, decode_compiled]
LARGEST = 2**63 - 1

data_or_none = st.none() | st.binary(max_size=200)
records = st.builds(
    Record,
    st.just(0),
    st.integers(-(2**62), 2**62 - 1),  # the difference of two of them is a 64-bit number, as on the wire
    data_or_none,
    data_or_none,
    st.lists(st.tuples(st.text(max_size=5), data_or_none), max_size=3).map(tuple),
)
batches = st.lists(
    st.tuples(
        st.lists(records, min_size=1, max_size=20),
        st.integers(0, 4),
        st.none() | st.integers(0, 2**45),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=4,
)


def decoder(twin: ModuleType) -> BatchDecoder:
    made = BatchDecoder()
    made._walker = twin
    return made


def decoded(twin: ModuleType, data: bytes) -> list[Columns]:
    view = memoryview(data)
    found = scan(view, 0, LARGEST, isolation=READ_UNCOMMITTED, aborted=())
    return list(decoder(twin).decode(view, found.batches))


def rows(twin: ModuleType, data: bytes) -> list[tuple[object, ...]]:
    """Every column of every record."""
    found: list[tuple[object, ...]] = []
    for columns in decoded(twin, data):
        headers = decoder(twin).headers(columns, None)
        headers.validate(full=True)
        keys = gather(columns.source, columns.keys, columns.key_nulls, None)
        values = gather(columns.source, columns.values, columns.value_nulls, None)
        keys.validate(full=True)
        values.validate(full=True)
        found += zip(
            columns.offsets.tolist(),
            columns.timestamps.tolist(),
            columns.timestamp_types.tolist(),
            keys.to_pylist(),
            values.to_pylist(),
            [[(pair["key"], pair["value"]) for pair in each] for each in headers.to_pylist()],
            strict=True,
        )
    return found


def built(given_batches: list[tuple[list[Record], int, int | None, int]]) -> bytes:
    """Batches one after another; the last number of each leaves a hole before it."""
    parts = []
    offset = 0
    for some, codec, append_time, hole in given_batches:
        offset += hole
        offsets = [offset + 2 * i for i in range(len(some))]
        parts.append(
            build_batch(some, base_offset=offset, codec=codec, log_append_time=append_time, offsets=offsets)
        )
        offset = offsets[-1] + 1
    return b"".join(parts)


@pytest.mark.promise(
    "client library", "The compiled decoder and the pure Python decoder give the same result for any bytes"
)
@given(batches)
def test_both_decoders_agree_with_the_reader_of_single_records(
    some: list[tuple[list[Record], int, int | None, int]],
) -> None:
    data = built(some)
    expected: list[tuple[object, ...]] = []
    pos = 0
    for given_records, _, append_time, _ in some:
        expected += (
            (r.offset, r.timestamp, int(append_time is not None), r.key, r.value, list(r.headers))
            for r in iter_records(data, pos)
        )
        assert len(given_records) > 0
        pos += 12 + int.from_bytes(data[pos + 8 : pos + 12], "big")
    for twin in TWINS:
        assert rows(twin, data) == expected


def outcome(twin: ModuleType, source: bytes, count: int) -> tuple[object, ...]:
    """What a twin makes of any bytes: where they are malformed, or its columns."""
    table = np.array([[0, len(source), count, 100, LARGEST - 1000, 0]], np.int64)
    sizes = (count, count, 2 * count, count, 2 * count, count, count, count)
    kinds = (np.int64, np.int64, np.int32, np.bool_, np.int32, np.bool_, np.int32, np.int32)
    columns = [np.zeros(size, kind) for size, kind in zip(sizes, kinds, strict=True)]
    failed = twin.walk(np.frombuffer(source, np.uint8), table, *columns)
    return (failed,) if failed >= 0 else (failed, *(column.tolist() for column in columns))


@pytest.mark.promise(
    "client library", "The compiled decoder and the pure Python decoder give the same result for any bytes"
)
@given(st.binary(max_size=60), st.integers(0, 4))
def test_both_decoders_make_the_same_of_any_bytes(source: bytes, count: int) -> None:
    assert outcome(decode_plain, source, count) == outcome(decode_compiled, source, count)


@pytest.mark.promise(
    "client library", "The compiled decoder and the pure Python decoder give the same result for any bytes"
)
@given(st.lists(records, min_size=1, max_size=4), st.data())
def test_both_decoders_make_the_same_of_damaged_records(some: list[Record], choice: st.DataObject) -> None:
    source = bytearray(build_batch(some)[HEADER_SIZE:])
    for _ in range(choice.draw(st.integers(1, 3))):
        source[choice.draw(st.integers(0, len(source) - 1))] = choice.draw(st.integers(0, 255))
    assert outcome(decode_plain, bytes(source), len(some)) == outcome(
        decode_compiled, bytes(source), len(some)
    )


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("delta", [-(2**63), 2**63 - 1])
def test_times_wrap_as_javas_do(twin: ModuleType, delta: int) -> None:
    record = bytearray(b"\0")
    raw = (delta << 1) ^ (delta >> 63)
    while raw > 127:
        record.append(raw & 127 | 128)
        raw >>= 7
    record += bytes((raw, 0, 1, 1, 0))
    source = bytes((2 * len(record),)) + bytes(record)
    failed, _, times, *_ = outcome(twin, source, 1)
    assert failed == -1
    assert times == [(LARGEST - 1000 + delta + 2**63) % 2**64 - 2**63]


@pytest.mark.parametrize("twin", TWINS)
def test_a_malformed_batch_is_named(twin: ModuleType) -> None:
    good = build_batch([Record(0, 0, None, b"v")])
    bad = bytearray(build_batch([Record(0, 0, None, b"value")], base_offset=1))
    bad[HEADER_SIZE + 5] += 2  # the value's length
    view = memoryview(good + bytes(bad))
    found = scan(view, 0, LARGEST, isolation=0, aborted=(), check_crcs=False)
    with pytest.raises(InvalidRecord, match="batch at offset 1 is malformed"):
        list(decoder(twin).decode(view, found.batches))


def test_a_count_that_cannot_be_is_refused_before_anything_is_made_for_it() -> None:
    bad = bytearray(build_batch([Record(0, 0, None, b"v")], last_offset_delta=2**31 - 2))
    bad[57:61] = (2**31 - 1).to_bytes(4, "big")
    view = memoryview(bytes(bad))
    found = scan(view, 0, LARGEST, isolation=0, aborted=(), check_crcs=False)
    with pytest.raises(InvalidRecord, match="2147483647 records"):
        list(BatchDecoder().decode(view, found.batches))


@pytest.mark.parametrize("codec", range(1, 5))
def test_what_unpacks_to_much_comes_in_pieces(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_UNPACKED_AT_ONCE", 5000)
    data = b"".join(
        build_batch([Record(0, i, None, bytes(1000))] * 3, base_offset=3 * i, codec=codec) for i in range(6)
    )
    pieces = decoded(decode_plain, data)
    assert [len(piece.offsets) for piece in pieces] == [3] * 6
    assert [row[0] for row in rows(decode_compiled, data)] == list(range(18))


def test_damaged_compression_is_refused() -> None:
    packed = bytearray(build_batch([Record(0, 0, None, bytes(500))] * 50, codec=compression.GZIP))
    packed[-20:] = bytes(20)
    view = memoryview(bytes(packed))
    found = scan(view, 0, LARGEST, isolation=0, aborted=(), check_crcs=False)
    with pytest.raises(InvalidRecord, match="gzip"):
        list(BatchDecoder().decode(view, found.batches))


def test_header_names_that_are_no_text_get_replacement_characters() -> None:
    data = build_batch([Record(0, 0, None, b"v", (("caf\udce9", b"x"), ("ok", None)))])
    for twin in TWINS:
        assert rows(twin, data)[0][5] == [("caf\ufffd", b"x"), ("ok", None)]


@pytest.mark.promise(
    "client library",
    "A small read does not wait for the decoder to be compiled, and installing needs no compiler",
)
def test_a_small_read_does_not_load_the_compiler() -> None:
    program = (
        "import sys; from penstock.spark.source.decode import BatchDecoder, COMPILE_FROM\n"
        "BatchDecoder(COMPILE_FROM - 1); print('numba' in sys.modules)\n"
        "BatchDecoder(1); print('numba' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]


@pytest.mark.promise(
    "client library",
    "A small read does not wait for the decoder to be compiled, and installing needs no compiler",
)
def test_the_compiled_decoder_works_where_no_cache_can_be_written(tmp_path: Path) -> None:
    """As in a container with a read-only package directory and no home."""
    program = (
        "from numba.core import caching\n"
        "caching.CacheImpl._locator_classes = []\n"
        "from tests.unit.spark.test_decode import decode_compiled, rows\n"
        "from penstock.wire.batches.records import Record, build_batch\n"
        "print(rows(decode_compiled, build_batch([Record(0, 5, b'k', b'v')])))"
    )
    root = Path(__file__).parents[3]
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root
    )
    assert ran.stdout.strip() == "[(0, 5, 0, b'k', b'v', [])]"
