"""The four codecs: against other libraries, and against what would fill the memory."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from aiokafka import codec as aio
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as kp

from penstock.errors import InvalidRecord, UnsupportedCompressionType
from penstock.wire.batches import compression
from penstock.wire.batches.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
THEIRS = {
    GZIP: (gzip.compress, gzip.decompress),
    SNAPPY: (aio.snappy_encode, aio.snappy_decode),
    LZ4: (lz4.frame.compress, lz4.frame.decompress),
    ZSTD: (kp.zstd_encode, kp.zstd_decode),
}
MEGABYTE = 1 << 20
SAMPLES = [b"", b"a", b"abc" * 10, random.Random(1).randbytes(100_000), bytes(300_000)]


@pytest.mark.parametrize("codec", [NONE, *CODECS], ids=compression.NAMES)
@given(data=st.binary(max_size=5000))
def test_what_goes_in_comes_out(codec: int, data: bytes) -> None:
    assert decompress(codec, memoryview(compress(codec, bytearray(data))), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("sample", SAMPLES, ids=len)
def test_other_libraries_read_ours_and_we_read_theirs(codec: int, sample: bytes) -> None:
    pack, unpack = THEIRS[codec]
    assert unpack(compress(codec, sample)) == sample
    assert decompress(codec, pack(sample), len(sample)) == sample


@pytest.mark.parametrize("sample", SAMPLES, ids=len)
def test_all_shapes_that_producers_send_are_read(sample: bytes) -> None:
    size = len(sample)
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(sample)), size) == sample
    linked = lz4.frame.compress(sample, block_linked=True, content_checksum=True, store_size=True)
    assert decompress(LZ4, linked, size) == sample
    with_size = zstandard.ZstdCompressor(write_content_size=True, write_checksum=True).compress(sample)
    assert decompress(ZSTD, with_size, size) == sample
    streamed = zstandard.ZstdCompressor().compressobj()
    assert decompress(ZSTD, streamed.compress(sample) + streamed.flush(), size) == sample


@pytest.mark.parametrize("codec", CODECS)
def test_joined_streams_are_read_to_the_end(codec: int) -> None:
    joined = compress(codec, b"first ") + compress(codec, b"second")
    assert decompress(codec, joined, 100) == b"first second"


@pytest.mark.parametrize(
    ("codec", "levels"), [(GZIP, (1, 9)), (LZ4, (1, 12)), (ZSTD, (-5, 1, 22)), (SNAPPY, (None,))]
)
def test_levels_are_accepted(codec: int, levels: tuple[int | None, ...]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, b"x" * 1000, level), 1000) == b"x" * 1000


@pytest.mark.parametrize("codec", [NONE, *CODECS])
@pytest.mark.parametrize("sample", [s for s in SAMPLES if s], ids=len)
def test_one_byte_over_the_limit_is_refused(codec: int, sample: bytes) -> None:
    packed = compress(codec, sample)
    assert decompress(codec, packed, len(sample)) == sample
    with pytest.raises(InvalidRecord):
        decompress(codec, packed, len(sample) - 1)


def peak_of(codec: int, packed: bytes, limit: int) -> int:
    """The most that Python allocated while a bomb was refused."""
    decompress(codec, compress(codec, b"warm"), 10)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecord):
            decompress(codec, packed, limit)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.promise("hostile input", "Compression bombs cost hardly more memory than the limit")
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_costs_little_more_than_the_limit(codec: int) -> None:
    bomb = compress(codec, bytes(64 * MEGABYTE))
    assert peak_of(codec, bomb, MEGABYTE) < 8 * MEGABYTE + 3 * len(bomb)


@pytest.mark.promise("hostile input", "Compression bombs cost hardly more memory than the limit")
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_in_a_bomb_is_unpacked_once(codec: int) -> None:
    inner = compress(codec, bytes(8 * MEGABYTE))
    assert decompress(codec, compress(codec, inner), len(inner)) == inner


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (SNAPPY, b"\xff\xff\xff\xff\x0f" + b"abc"),  # raw, claims 4 GiB
        (SNAPPY, b"\xff\xff\xff\x3f" + b"abc"),  # raw, claims 128 MiB
        (SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 2**31 - 1) + b"abc"),
        (SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, -1) + b"abc"),
        (SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 8) + b"\xff\xff\xff\x3fabcd"),
        (LZ4, b"\x04\x22\x4d\x18\x68\x70" + struct.pack("<Q", 1 << 40) + b"\x00"),
        (LZ4, lz4.frame.compress(bytes(100), store_size=True)[:-5]),
        (ZSTD, b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40) + b"\x01\x00\x00"),
        (GZIP, gzip.compress(b"abc", mtime=0)[:-4]),
        (GZIP, zlib.compress(b"abc")),
    ],
)
def test_claimed_sizes_are_not_believed(codec: int, packed: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecord):
            decompress(codec, packed, 1 << 30)
        assert tracemalloc.get_traced_memory()[1] < 8 * MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
@given(junk=st.binary(max_size=100))
def test_junk_is_an_invalid_record(codec: int, junk: bytes) -> None:
    for packed in (junk, compress(codec, b"sample" * 20)[:-3] + junk):
        try:
            assert len(decompress(codec, packed, MEGABYTE)) <= MEGABYTE
        except InvalidRecord:
            pass


def test_an_unknown_codec_is_named() -> None:
    for codec in (5, 7, -1):
        with pytest.raises(UnsupportedCompressionType):
            decompress(codec, b"", 10)
        with pytest.raises(UnsupportedCompressionType):
            compress(codec, b"")
