"""Compression and decompression with the four codecs of record batches, with a limit on the decompressed
size.

The libraries are imported at the first use of a codec, so that unused ones cost nothing. Bytes that cannot be
decompressed raise InvalidRecord and not CorruptMessage: their CRC was correct, so a retry cannot help.
"""

from __future__ import annotations

import struct

from penstock.errors import InvalidRecord, UnsupportedCompressionType
from penstock.wire.primitives import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")


# snappy-java's stream format: this magic, two int32 versions, then int32-sized raw snappy blocks.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
# A snappy copy element of three bytes expands to at most 64 bytes: a larger claimed size is invalid, and is
# rejected before it is allocated.
_SNAPPY_MAX_RATIO = 22
_STEP = 1 << 20


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress in the same format as Kafka's Java client, so that every client can read it."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        import zlib

        gz = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return gz.compress(data) + gz.flush()
    if codec == SNAPPY:
        return _xerial_compress(data)
    if codec == LZ4:
        import lz4.frame

        # Independent blocks, because Kafka's Java client rejects linked ones.
        packed: bytes = lz4.frame.compress(
            data,
            compression_level=0 if level is None else level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return packed
    if codec == ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    raise UnsupportedCompressionType(f"compression codec {codec} is not known")


def decompress(codec: int, data: Buffer, max_bytes: int) -> bytes:
    """The decompressed bytes; InvalidRecord if the data is malformed or would exceed max_bytes."""
    if codec == GZIP:
        return _gzip_decompress(data, max_bytes)
    if codec == SNAPPY:
        return _snappy_decompress(data, max_bytes)
    if codec == LZ4:
        return _lz4_decompress(data, max_bytes)
    if codec == ZSTD:
        return _zstd_decompress(data, max_bytes)
    if codec == NONE:
        if len(data) > max_bytes:
            raise _too_big(max_bytes)
        return bytes(data)
    raise UnsupportedCompressionType(f"compression codec {codec} is not known")


def _too_big(max_bytes: int) -> InvalidRecord:
    return InvalidRecord(f"a batch decompresses to more than {max_bytes} bytes")


def _malformed(codec: int, why: object) -> InvalidRecord:
    return InvalidRecord(f"a batch is not valid {NAMES[codec]}: {why}")


def _gzip_decompress(data: Buffer, max_bytes: int) -> bytes:
    import zlib

    parts: list[bytes] = []
    left = max_bytes
    rest = bytes(data)
    while rest:  # a gzip file may have several members
        member = zlib.decompressobj(31)
        try:
            part = member.decompress(rest, left + 1)
        except zlib.error as error:
            raise _malformed(GZIP, error) from error
        left -= len(part)
        if left < 0:
            raise _too_big(max_bytes)
        if not member.eof:
            raise _malformed(GZIP, "it is cut short")
        parts.append(part)
        rest = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _xerial_compress(data: Buffer) -> bytes:
    from cramjam import snappy

    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    # Write an empty block for empty data, because some readers reject a stream with only a header.
    for start in range(0, len(view) or 1, _XERIAL_BLOCK):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, max_bytes: int) -> bytes:
    source = bytes(data)
    if not source.startswith(_XERIAL_MAGIC):
        return _snappy_block(source, max_bytes, max_bytes)
    parts: list[bytes] = []
    left = max_bytes
    pos, end = len(_XERIAL_HEADER), len(source)
    while pos < end:
        if source.startswith(_XERIAL_MAGIC, pos):  # several streams may be concatenated
            pos += len(_XERIAL_HEADER)
            continue
        size = int.from_bytes(source[pos : pos + 4], "big")
        pos += 4
        if size > end - pos:
            raise _malformed(SNAPPY, "a block is cut short")
        part = _snappy_block(source[pos : pos + size], left, max_bytes)
        pos += size
        left -= len(part)
        parts.append(part)
    return b"".join(parts)


def _snappy_block(block: bytes, left: int, max_bytes: int) -> bytes:
    import cramjam

    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > left:
            raise _too_big(max_bytes)
        if size > _SNAPPY_MAX_RATIO * len(block):
            raise _malformed(SNAPPY, f"{len(block)} bytes claim to hold {size}")
        return bytes(cramjam.snappy.decompress_raw(block, output_len=size))
    except cramjam.DecompressionError as error:
        raise _malformed(SNAPPY, error) from error


def _lz4_decompress(data: Buffer, max_bytes: int) -> bytes:
    import lz4.frame

    parts: list[bytes] = []
    left = max_bytes
    rest: bytes | None = bytes(data)
    while rest:  # one iteration for each frame
        frame = lz4.frame.LZ4FrameDecompressor()
        while not frame.eof:
            # The library allocates the whole limit, so the limit grows in steps.
            step = min(left + 1, max(_STEP, 2 * len(data)))
            try:
                part: bytes = frame.decompress(rest, max_length=step)
            except RuntimeError as error:
                raise _malformed(LZ4, error) from error
            rest = b""
            if not part and frame.needs_input and not frame.eof:
                raise _malformed(LZ4, "it is cut short")
            left -= len(part)
            if left < 0:
                raise _too_big(max_bytes)
            parts.append(part)
        rest = frame.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zstd_decompress(data: Buffer, max_bytes: int) -> bytes:
    import zstandard

    parts: list[bytes] = []
    left = max_bytes
    # Streamed, because most producers do not write the content size, and because a written one would be
    # allocated at once, however little data follows. (A truncated stream ends without an error here; the
    # validation of the records detects it.)
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        while True:
            try:
                part = reader.read(min(left + 1, _STEP))
            except zstandard.ZstdError as error:
                raise _malformed(ZSTD, error) from error
            if not part:
                break
            left -= len(part)
            if left < 0:
                raise _too_big(max_bytes)
            parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
