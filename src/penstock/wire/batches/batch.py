"""Headers of record batches (format 2) and their validation, for the broker's hot path.

The broker does not re-encode batches: check_batch validates, stamp and set_log_append_time write into the
header in place. Single records are in records.py, which also exports these names. Sizes are in bytes, times
in milliseconds, offsets are absolute.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from penstock.errors import (
    CorruptMessage,
    InvalidRecord,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from penstock.wire.batches import compression
from penstock.wire.batches.record_check import check_records
from penstock.wire.primitives import Buffer

LOG_OVERHEAD = 12  # base offset and length, which the length field does not count
HEADER_SIZE = 61
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21  # the CRC covers everything from here

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

# The limits of the decompressed size of a batch: when it is produced, and later, when older batches may be
# larger. Kafka has no such limit; a broker with one thread and bounded memory needs it.
MAX_PRODUCED_BYTES = 64 << 20
MAX_UNPACKED_BYTES = 128 << 20
# The limit of records in a compressed batch: the maximum of librdkafka's batch.num.messages.
MAX_COMPRESSED_RECORDS = 1_000_000

_HEADER = struct.Struct(">qiibIhiqqqhii")
_OFFSET = struct.Struct(">q")
_INT = struct.Struct(">i")
_UINT = struct.Struct(">I")
_APPEND_TIME = struct.Struct(">q")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP_POSITION = 35
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_POSITION = 43
_SEQUENCE_SPAN = 1 << 31


class BatchHeader:
    """The decoded header of a batch, the 61 bytes before its records."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "count",
        "crc",
        "keyless",
        "largest_delta",
        "last_offset_delta",
        "leader_epoch",
        "length",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        base_offset: int,
        length: int,
        leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        count: int,
    ) -> None:
        self.base_offset = base_offset
        self.length = length
        self.leader_epoch = leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.count = count
        # Set if the records were checked: an upper bound of their timestamp deltas, and whether one has no
        # key.
        self.largest_delta = 0
        self.keyless = False

    @property
    def size(self) -> int:
        return LOG_OVERHEAD + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap to 0 after 2^31-1. -1 if the batch has none."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCE_SPAN

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether compaction has set a delete horizon, after which tombstones may be removed; base_timestamp
        has it."""
        return self.attributes & DELETE_HORIZON != 0

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)
        return f"BatchHeader({fields})"


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at pos, without validation; CorruptMessage if there are fewer than 61 bytes."""
    if len(buf) - pos < HEADER_SIZE:
        raise CorruptMessage(f"a batch header needs {HEADER_SIZE} bytes, {len(buf) - pos} are left")
    return BatchHeader(*_HEADER.unpack_from(buf, pos))


def check_batch(buf: Buffer, pos: int, end: int, *, stored: bool = False) -> BatchHeader:
    """Validates the batch at pos, which must end before `end`, and returns its header.

    Always checks size, magic, codec and CRC. For batches of producers also: one record for every offset and,
    if they are not compressed, every record. A `stored` batch was validated before, and compaction may have
    left gaps in its offsets, or no records.
    """
    if end - pos < HEADER_SIZE:
        refuse_old_magic(buf, pos, end)
        raise CorruptMessage(f"a batch header needs {HEADER_SIZE} bytes, {end - pos} are left")
    header = BatchHeader(*_HEADER.unpack_from(buf, pos))
    if header.magic != 2:
        refuse_old_magic(buf, pos, end)
        raise CorruptMessage(f"magic {header.magic} is not a record format")
    length = header.length
    batch_end = pos + LOG_OVERHEAD + length
    if batch_end > end or length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptMessage(f"a batch declares length {length}, available {end - pos - LOG_OVERHEAD}")
    if crc32c(memoryview(buf)[pos + ATTRIBUTES_POSITION : batch_end]) != header.crc:
        raise CorruptMessage(f"the CRC of the batch at base offset {header.base_offset} is wrong")
    codec = header.attributes & CODEC_MASK
    if codec > compression.ZSTD:
        raise UnsupportedCompressionType(f"compression codec {codec} is not known")
    count = header.count
    if stored:
        if count < 0:
            raise InvalidRecord(f"a batch declares {count} records")
        return header
    if count <= 0 or count != header.last_offset_delta + 1:
        raise InvalidRecord(f"a batch of {count} records has last offset delta {header.last_offset_delta}")
    if not codec:
        header.largest_delta, header.keyless = check_records(buf, pos + HEADER_SIZE, batch_end, count)
    elif count > MAX_COMPRESSED_RECORDS:
        raise InvalidRecord(f"{count} records in one compressed batch, {MAX_COMPRESSED_RECORDS} at most")
    return header


def check_compressed(
    buf: Buffer, pos: int, header: BatchHeader, *, max_bytes: int = MAX_PRODUCED_BYTES
) -> int:
    """Decompress a batch and validate its records. Returns the decompressed size."""
    inside = payload(buf, pos, header, max_bytes)
    header.largest_delta, header.keyless = check_records(inside, 0, len(inside), header.count)
    return len(inside)


def refuse_old_magic(buf: Buffer, pos: int, end: int) -> None:
    if end - pos > MAGIC_POSITION and buf[pos + MAGIC_POSITION] in (0, 1):
        magic = buf[pos + MAGIC_POSITION]
        raise UnsupportedForMessageFormat(f"record format {magic} is too old; this broker takes format 2")


def stamp(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Write the fields that the leader sets, in place. The CRC covers neither of them."""
    _OFFSET.pack_into(buf, pos, base_offset)
    _INT.pack_into(buf, pos + LOG_OVERHEAD, leader_epoch)


def set_log_append_time(buf: bytearray | memoryview, pos: int, timestamp: int) -> None:
    """Set the timestamp of all records: the attribute bit, the maximum timestamp, and the new CRC."""
    (length,) = _INT.unpack_from(buf, pos + 8)
    (attributes,) = _ATTRIBUTES.unpack_from(buf, pos + ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(buf, pos + ATTRIBUTES_POSITION, attributes | LOG_APPEND_TIME)
    _APPEND_TIME.pack_into(buf, pos + _MAX_TIMESTAMP_POSITION, timestamp)
    crc = crc32c(memoryview(buf)[pos + ATTRIBUTES_POSITION : pos + LOG_OVERHEAD + length])
    _UINT.pack_into(buf, pos + CRC_POSITION, crc)


def set_producer(
    buf: bytearray | memoryview,
    pos: int,
    producer_id: int,
    epoch: int,
    sequence: int,
    *,
    transactional: bool,
) -> None:
    """Set the producer id, epoch and sequence of the batch, in place: only the header changes.

    The base offset becomes 0, because Kafka accepts no other one from a client.
    """
    _OFFSET.pack_into(buf, pos, 0)
    (length,) = _INT.unpack_from(buf, pos + 8)
    (attributes,) = _ATTRIBUTES.unpack_from(buf, pos + ATTRIBUTES_POSITION)
    attributes = attributes | TRANSACTIONAL if transactional else attributes & ~TRANSACTIONAL
    _ATTRIBUTES.pack_into(buf, pos + ATTRIBUTES_POSITION, attributes)
    _PRODUCER.pack_into(buf, pos + _PRODUCER_POSITION, producer_id, epoch, sequence)
    crc = crc32c(memoryview(buf)[pos + ATTRIBUTES_POSITION : pos + LOG_OVERHEAD + length])
    _UINT.pack_into(buf, pos + CRC_POSITION, crc)


def payload(buf: Buffer, pos: int, header: BatchHeader, max_bytes: int) -> Buffer:
    """The decompressed record bytes of the batch at pos."""
    end = pos + LOG_OVERHEAD + header.length
    if end > len(buf) or header.length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptMessage(f"a batch has length {header.length}, but only {len(buf) - pos} bytes follow")
    packed = memoryview(buf)[pos + HEADER_SIZE : end]
    codec = header.attributes & CODEC_MASK
    return bytes(packed) if not codec else compression.decompress(codec, packed, max_bytes)
