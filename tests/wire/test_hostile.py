"""Hostile bytes: a wire error or an API error comes out, nothing else, and memory stays bounded."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ApiError, WireError
from penstock.wire import codec, schema
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch, check_batch, check_compressed, iter_records
from penstock.wire.fetch import parse_fetch
from penstock.wire.frame import parse_request_header
from penstock.wire.primitives import encode_uvarint
from penstock.wire.produce import parse_produce
from tests.repetitions import times
from tests.wire.messages import random_message

pytestmark = pytest.mark.fuzz

KEYS = [key for key in ApiKey if schema.versions(key.name.lower())]
PAIRS = [(key, version) for key in KEYS for version in codec.valid_versions(key)]
MEGABYTE = 1 << 20
# Lengths that programs get wrong: null, minus two, the largest, their varint twins.
NASTY = [
    b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80\x80\x01",
    b"\x7f\xff", b"\x80\x00", b"\x00", b"\xff", b"\x7f",
]  # fmt: skip


def survives(call: Callable[[], object]) -> None:
    try:
        call()
    except (WireError, ApiError):
        pass


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(out))
        kind = rng.randrange(5)
        if kind == 0 and out:
            out[at % len(out)] = rng.randrange(256)
        elif kind == 1:
            nasty = rng.choice(NASTY)
            out[at : at + len(nasty)] = nasty
        elif kind == 2:
            del out[at:]
        elif kind == 3:
            out[at:at] = rng.randbytes(rng.randint(1, 8))
        else:
            del out[at : at + rng.randint(1, 8)]
    return bytes(out)


@pytest.mark.promise(
    "hostile input", "Malformed requests of every API are wire errors and cost one connection"
)
@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name.lower())
def test_a_broken_request_of_any_api_is_a_wire_error(key: ApiKey) -> None:
    rng = random.Random(int(key))
    for version in codec.valid_versions(key):
        known = schema.load(key.name.lower(), version, "request")
        for _ in range(25):
            good = codec.encode_request(key, version, random_message(known, rng))
            bad = mutated(good, rng)
            survives(lambda v=version, b=bad: codec.decode_request(key, v, b))
            if key is ApiKey.PRODUCE:
                survives(lambda v=version, b=bad: parse_produce(b, 0, len(b), v))
            elif key is ApiKey.FETCH:
                survives(lambda v=version, b=bad: parse_fetch(b, 0, len(b), v))


@pytest.mark.promise(
    "hostile input", "Malformed requests of every API are wire errors and cost one connection"
)
@given(pair=st.sampled_from(PAIRS), junk=st.binary(max_size=200))
@settings(max_examples=times(200, 5000))
def test_junk_is_no_request(pair: tuple[ApiKey, int], junk: bytes) -> None:
    key, version = pair
    survives(lambda: codec.decode_request(key, version, junk))
    survives(lambda: codec.decode_response(key, version, junk))


@pytest.mark.promise(
    "hostile input", "Malformed requests of every API are wire errors and cost one connection"
)
@given(
    version=st.integers(0, 13),
    junk=st.binary(max_size=100),
    before=st.binary(max_size=20),
    after=st.binary(max_size=20),
)
def test_junk_is_no_produce(version: int, junk: bytes, before: bytes, after: bytes) -> None:
    buf = before + junk + after
    try:
        request = parse_produce(buf, len(before), len(before) + len(junk), version)
    except WireError:
        return
    for _, _, partitions in request.topics:
        for _, start, end in partitions:
            assert start == end == -1 or len(before) <= start <= end <= len(before) + len(junk)


@pytest.mark.promise(
    "hostile input", "Malformed requests of every API are wire errors and cost one connection"
)
@given(version=st.integers(4, 18), junk=st.binary(max_size=100), after=st.binary(max_size=50))
def test_junk_is_no_fetch(version: int, junk: bytes, after: bytes) -> None:
    survives(lambda: parse_fetch(junk + after, 0, len(junk), version))


@given(junk=st.binary(max_size=40))
def test_junk_is_no_header(junk: bytes) -> None:
    survives(lambda: parse_request_header(junk, 0))


def read_all(batch: bytes) -> None:
    header = check_batch(batch, 0, len(batch))
    check_compressed(batch, 0, header, max_bytes=MEGABYTE)
    for record in iter_records(batch, max_bytes=MEGABYTE):
        assert record.key is None or len(record.key) <= MEGABYTE


@pytest.mark.parametrize("codec_number", range(5))
def test_a_broken_batch_with_a_right_crc_is_an_api_error(codec_number: int) -> None:
    rng = random.Random(codec_number)
    records = [Record(0, n, b"key", b"value" * n, (("h", b"v"),)) for n in range(8)]
    good = build_batch(records, codec=codec_number)
    for _ in range(1500):
        if rng.random() < 0.5:  # header fields behind the CRC
            bad = bytearray(good)
            bad[rng.randrange(21, 61)] = rng.randrange(256)
        else:
            bad = bytearray(good[:61] + mutated(good[61:], rng))
            struct.pack_into(">i", bad, 8, len(bad) - 12)
        struct.pack_into(">I", bad, 17, crc32c(bytes(bad[21:])))
        survives(lambda b=bytes(bad): read_all(b))
        survives(lambda b=bytes(bad): list(iter_records(b, max_bytes=MEGABYTE)))


@given(junk=st.binary(max_size=200))
def test_junk_is_no_batch(junk: bytes) -> None:
    survives(lambda: check_batch(junk, 0, len(junk)))
    survives(lambda: list(iter_records(junk)))
    padded = junk[:16].ljust(16, b"\x00") + b"\x02" + junk[16:].ljust(60, b"\x00")
    survives(lambda: check_batch(padded, 0, len(padded)))
    survives(lambda: list(iter_records(padded)))


def peak(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        survives(call)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.promise(
    "hostile input",
    "Lengths and counts in a request cannot make the broker allocate memory that the request does not fill",
)
@pytest.mark.parametrize(
    "filling", [b"\x00", b"\x01", b"\x02", b"\x7f", b"\xff", b"\x00\x00\x00\x7f", b"\xff\xff\xff\x7f"]
)
def test_lengths_cannot_make_memory_out_of_nothing(filling: bytes) -> None:
    """Whatever a small request claims to hold, reading it takes memory for what it has."""
    body = filling * (4096 // len(filling))
    for key, version in PAIRS:
        survives(lambda k=key, v=version: codec.decode_request(k, v, b""))  # makes the reader
        assert peak(lambda k=key, v=version: codec.decode_request(k, v, body)) < MEGABYTE
    for version in range(14):
        assert peak(lambda v=version: parse_produce(body, 0, len(body), v)) < MEGABYTE
    for version in range(4, 19):
        assert peak(lambda v=version: parse_fetch(body, 0, len(body), v)) < MEGABYTE


@pytest.mark.promise(
    "hostile input",
    "Lengths and counts in a request cannot make the broker allocate memory that the request does not fill",
)
def test_an_array_of_the_largest_length_is_refused_before_it_is_made() -> None:
    body = b"\x7f\xff\xff\xff" + bytes(100)
    assert peak(lambda: codec.decode_request(ApiKey.METADATA, 1, body)) < 100_000
    with pytest.raises(WireError):
        codec.decode_request(ApiKey.METADATA, 1, body)
    body = b"\xff\xff\xff\xff\x0f" + bytes(100)
    with pytest.raises(WireError):
        codec.decode_request(ApiKey.METADATA, 12, body)


@pytest.mark.promise(
    "hostile input",
    "Lengths and counts in a request cannot make the broker allocate memory that the request does not fill",
)
def test_more_items_than_one_request_may_hold_are_refused() -> None:
    """Empty topics of three bytes would be objects of a hundred."""
    number = 1_100_000
    count = encode_uvarint(number + 1)
    produce = b"\x00" + struct.pack(">hi", 1, 0) + count + b"\x01\x01\x00" * number + b"\x00"
    with pytest.raises(WireError, match="items"):
        parse_produce(produce, 0, len(produce), 9)
    fetch = bytes(25) + count + b"\x01\x01\x00" * number + b"\x01\x01\x00"
    with pytest.raises(WireError, match="items"):
        parse_fetch(fetch, 0, len(fetch), 12)
    users = count + b"\x01\x00" * number + b"\x00"
    with pytest.raises(WireError, match="items"):
        codec.decode_request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users)


@pytest.mark.promise("hostile input", "Compression bombs cost hardly more memory than the limit")
@pytest.mark.parametrize("codec_number", range(1, 5))
def test_a_compressed_bomb_in_a_batch_is_an_invalid_record(codec_number: int) -> None:
    bomb = build_batch([Record(0, 0, None, bytes(32 * MEGABYTE))], codec=codec_number)
    header = check_batch(bomb, 0, len(bomb))
    assert peak(lambda: check_compressed(bomb, 0, header, max_bytes=MEGABYTE)) < 8 * MEGABYTE + 3 * len(bomb)
    with pytest.raises(ApiError):
        check_compressed(bomb, 0, header, max_bytes=MEGABYTE)
    with pytest.raises(ApiError):
        list(iter_records(bomb, max_bytes=MEGABYTE))
