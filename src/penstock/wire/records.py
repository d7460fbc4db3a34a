"""Record batches of format 2: the header, the checks on what a producer sends, records in and out.

The broker never re-encodes a batch on its way: check_batch looks, stamp and set_log_append_time write
into the header in place. iter_records and build_batch are for those who must see single records
(compaction, tools, coordinators, tests). Sizes in bytes, times in milliseconds, offsets absolute.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from crc32c import crc32c

from penstock.errors import (
    CorruptMessage,
    InvalidRecord,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from penstock.wire import compression

Buffer = bytes | bytearray | memoryview

LOG_OVERHEAD = 12  # base offset and length, which the length itself does not count
HEADER_SIZE = 61
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21  # the CRC covers everything from here

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1
# What one batch may grow to when it is unpacked. Kafka has no such limit; a broker with one thread
# and bounded memory needs it. 128 times the usual max.message.bytes.
MAX_UNPACKED_BYTES = 128 << 20

_HEADER = struct.Struct(">qiibIhiqqqhii")
_OFFSET = struct.Struct(">q")
_INT = struct.Struct(">i")
_UINT = struct.Struct(">I")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_BEFORE_CRC = struct.Struct(">qiibI")
_APPEND_TIME = struct.Struct(">q")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP_POSITION = 35
_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_VALUE = struct.Struct(">hi")
_MIN_RECORD = 7  # length, attributes, two deltas, key, value and header count: a byte each
_SEQUENCE_SPAN = 1 << 31


class BatchHeader:
    """The 61 bytes before a batch's records, as numbers."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "count",
        "crc",
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

    @property
    def size(self) -> int:
        return LOG_OVERHEAD + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequences wrap to 0 after 2^31-1; -1 when the batch has none."""
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
        """Compaction has set when tombstones here may go; base_timestamp holds that time."""
        return self.attributes & DELETE_HORIZON != 0

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)
        return f"BatchHeader({fields})"


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at pos, unchecked; CorruptMessage when fewer than 61 bytes are there."""
    if len(buf) - pos < HEADER_SIZE:
        raise CorruptMessage(f"a batch header needs {HEADER_SIZE} bytes, {len(buf) - pos} are left")
    return BatchHeader(*_HEADER.unpack_from(buf, pos))


def check_batch(buf: Buffer, pos: int, end: int, *, stored: bool = False) -> BatchHeader:
    """The header of the batch at pos, which must lie before end and be sound.

    Size, magic, codec and CRC always. From a producer also: one record for every offset, and when
    the records are not compressed, lengths that lead exactly to the batch's end. A `stored` batch
    was accepted once, and compaction may have left holes in its offsets, or no record at all.
    """
    if end - pos < HEADER_SIZE:
        _refuse_old_magic(buf, pos, end)
        raise CorruptMessage(f"a batch header needs {HEADER_SIZE} bytes, {end - pos} are left")
    header = BatchHeader(*_HEADER.unpack_from(buf, pos))
    if header.magic != 2:
        _refuse_old_magic(buf, pos, end)
        raise CorruptMessage(f"magic {header.magic} is not a record format")
    length = header.length
    batch_end = pos + LOG_OVERHEAD + length
    if batch_end > end or length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptMessage(f"a batch says it has {length} bytes, {end - pos - LOG_OVERHEAD} are left")
    if crc32c(memoryview(buf)[pos + ATTRIBUTES_POSITION : batch_end]) != header.crc:
        raise CorruptMessage(f"the CRC of the batch at base offset {header.base_offset} is wrong")
    codec = header.attributes & CODEC_MASK
    if codec > compression.ZSTD:
        raise UnsupportedCompressionType(f"compression codec {codec} is not known")
    count = header.count
    if stored:
        if count < 0:
            raise InvalidRecord(f"a batch says it has {count} records")
        return header
    if count <= 0 or count != header.last_offset_delta + 1:
        raise InvalidRecord(f"a batch of {count} records has last offset delta {header.last_offset_delta}")
    if not codec:
        _walk(buf, pos + HEADER_SIZE, batch_end, count)
    return header


def check_compressed(
    buf: Buffer, pos: int, header: BatchHeader, *, max_bytes: int = MAX_UNPACKED_BYTES
) -> bytes:
    """Unpack a compressed batch and hold its records to the same count; returns what was inside."""
    payload = _payload(buf, pos, header, max_bytes)
    _walk(payload, 0, len(payload), header.count)
    return bytes(payload)


def _refuse_old_magic(buf: Buffer, pos: int, end: int) -> None:
    if end - pos > MAGIC_POSITION and buf[pos + MAGIC_POSITION] in (0, 1):
        magic = buf[pos + MAGIC_POSITION]
        raise UnsupportedForMessageFormat(f"record format {magic} is too old; this broker takes format 2")


def _walk(buf: Buffer, pos: int, end: int, count: int) -> None:
    # The hottest loop of the broker. Positions only grow, so one look at the end finds any step
    # over it; the first test keeps the number of steps below the number of bytes.
    if count * _MIN_RECORD > end - pos:
        raise InvalidRecord(f"{count} records do not fit in {end - pos} bytes")
    try:
        for _ in range(count):
            size = buf[pos]
            if size > 127:
                byte = buf[pos + 1]
                if byte > 127 or not byte or size & 1:
                    pos = _after_odd_length(buf, pos)
                else:  # two bytes b, c: a length of (b - 128 + c * 128) / 2
                    pos += (size >> 1) + (byte << 6) - 62
            elif size & 1 or size < 2 * _MIN_RECORD - 2:
                raise InvalidRecord("a record has an impossible length")
            else:
                pos += (size >> 1) + 1
    except IndexError:
        raise InvalidRecord("the records of a batch go past its end") from None
    if pos != end:
        raise InvalidRecord(f"a batch's {count} records end {pos - end} bytes after the batch")


def _after_odd_length(buf: Buffer, pos: int) -> int:
    """Where the record at pos ends, when its length is long, negative or has needless bytes."""
    raw = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            if raw & 1 or raw < 2 * _MIN_RECORD - 2 or raw >> 32:
                break
            return pos + (raw >> 1)
    raise InvalidRecord("a record has an impossible length")


def stamp(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Write what the leader decides, in place. Neither field is under the CRC."""
    _OFFSET.pack_into(buf, pos, base_offset)
    _INT.pack_into(buf, pos + LOG_OVERHEAD, leader_epoch)


def set_log_append_time(buf: bytearray | memoryview, pos: int, timestamp: int) -> None:
    """Give every record of the batch this time: a bit, the maximum, and the CRC again."""
    (length,) = _INT.unpack_from(buf, pos + 8)
    (attributes,) = _ATTRIBUTES.unpack_from(buf, pos + ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(buf, pos + ATTRIBUTES_POSITION, attributes | LOG_APPEND_TIME)
    _APPEND_TIME.pack_into(buf, pos + _MAX_TIMESTAMP_POSITION, timestamp)
    crc = crc32c(memoryview(buf)[pos + ATTRIBUTES_POSITION : pos + LOG_OVERHEAD + length])
    _UINT.pack_into(buf, pos + CRC_POSITION, crc)


class Record(NamedTuple):
    """One record. The deltas are as they stood in the batch; build_batch works them out anew."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset_delta: int = 0
    timestamp_delta: int = 0


def _payload(buf: Buffer, pos: int, header: BatchHeader, max_bytes: int) -> Buffer:
    end = pos + LOG_OVERHEAD + header.length
    if end > len(buf) or header.length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptMessage(f"a batch says it has {header.length} bytes, {len(buf) - pos} are there")
    packed = memoryview(buf)[pos + HEADER_SIZE : end]
    codec = header.attributes & CODEC_MASK
    return bytes(packed) if not codec else compression.decompress(codec, packed, max_bytes)


def iter_records(buf: Buffer, pos: int = 0, *, max_bytes: int = MAX_UNPACKED_BYTES) -> Iterator[Record]:
    """The records of the batch at pos. The CRC is the caller's to check; all else is checked here."""
    header = read_header(buf, pos)
    if header.magic != 2:
        _refuse_old_magic(buf, pos, len(buf))
        raise CorruptMessage(f"magic {header.magic} is not a record format")
    data = bytes(_payload(buf, pos, header, max_bytes))
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    at, end = 0, len(data)
    try:
        for _ in range(header.count):
            size, at = _varint(data, at)
            record_end = at + size
            if size < 0 or record_end > end:
                raise InvalidRecord("a record goes past the end of its batch")
            at += 1  # attributes: none are defined
            timestamp_delta, at = _varint(data, at)
            offset_delta, at = _varint(data, at)
            key, at = _nullable(data, at, record_end)
            value, at = _nullable(data, at, record_end)
            number, at = _varint(data, at)
            headers: tuple[tuple[str, bytes | None], ...] = ()
            if number:
                headers, at = _headers(data, at, record_end, number)
            if at != record_end:
                raise InvalidRecord("a record's length and its fields disagree")
            yield Record(
                base_offset + offset_delta,
                base_timestamp + timestamp_delta if append_time is None else append_time,
                key,
                value,
                headers,
                offset_delta,
                timestamp_delta,
            )
    except IndexError:
        raise InvalidRecord("a record goes past the end of its batch") from None
    if at != end:
        raise InvalidRecord(f"{end - at} bytes follow the last record of a batch")


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    byte = data[pos]
    pos += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), pos
    raw = byte & 127
    shift = 7
    while True:
        byte = data[pos]
        pos += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), pos
        shift += 7
        if shift > 63:
            raise InvalidRecord("a varint is longer than 64 bits")


def _nullable(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    size, pos = _varint(data, pos)
    if size < 0:
        if size == -1:
            return None, pos
        raise InvalidRecord(f"a field of a record has length {size}")
    stop = pos + size
    if stop > end:
        raise InvalidRecord("a field goes past the end of its record")
    return data[pos:stop], stop


def _headers(
    data: bytes, pos: int, end: int, number: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    if number < 0 or number > end - pos:
        raise InvalidRecord(f"a record says it has {number} headers")
    found = []
    for _ in range(number):
        key, pos = _nullable(data, pos, end)
        if key is None:
            raise InvalidRecord("a header has no key")
        value, pos = _nullable(data, pos, end)
        try:
            found.append((key.decode(), value))
        except UnicodeDecodeError:
            raise InvalidRecord("a header's key is not UTF-8") from None
    return tuple(found), pos


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = compression.NONE,
    level: int | None = None,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    delete_horizon: int | None = None,
    offsets: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """A batch of these records.

    Offsets count up from base_offset, unless `offsets` names each record's own: then holes stay
    holes, and `last_offset_delta` keeps the end of a batch whose last records are gone. A
    delete_horizon takes the place of the base timestamp, as Kafka's cleaner writes it.
    """
    items = list(records)
    count = len(items)
    if base_timestamp is None:
        base_timestamp = items[0].timestamp if items else NO_TIMESTAMP
    if delete_horizon is not None:
        base_timestamp = delete_horizon
    if max_timestamp is None:
        max_timestamp = max((item.timestamp for item in items), default=NO_TIMESTAMP)
    if log_append_time is not None:
        max_timestamp = log_append_time
    if offsets is None:
        deltas: Sequence[int] = range(count)
    else:
        deltas = [offset - base_offset for offset in offsets]
        if len(deltas) != count:
            raise ValueError(f"{count} records but {len(deltas)} offsets")
    if last_offset_delta is None:
        last_offset_delta = deltas[-1] if deltas else 0

    out = bytearray()
    for item, delta in zip(items, deltas, strict=True):
        _write_record(out, item, item.timestamp - base_timestamp, delta)
    packed = compression.compress(codec, out, level) if codec else bytes(out)

    attributes = (
        codec
        | (LOG_APPEND_TIME if log_append_time is not None else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (DELETE_HORIZON if delete_horizon is not None else 0)
    )
    body = _AFTER_CRC.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    crc = crc32c(packed, crc32c(body))
    length = HEADER_SIZE - LOG_OVERHEAD + len(packed)
    return _BEFORE_CRC.pack(base_offset, length, leader_epoch, 2, crc) + body + packed


def _write_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(b"\x00")
    _put_varint(body, timestamp_delta)
    _put_varint(body, offset_delta)
    _put_nullable(body, record.key)
    _put_nullable(body, record.value)
    _put_varint(body, len(record.headers))
    for key, value in record.headers:
        _put_nullable(body, key.encode())
        _put_nullable(body, value)
    _put_varint(out, len(body))
    out += body


def _put_varint(out: bytearray, value: int) -> None:
    raw = value << 1 if value >= 0 else ~(value << 1)
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)


def _put_nullable(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
        return
    _put_varint(out, len(data))
    out += data


def control_marker(
    kind: Literal["commit", "abort"],
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """The control batch that ends a transaction in a partition."""
    marker = Record(
        base_offset,
        timestamp,
        _CONTROL_KEY.pack(0, 1 if kind == "commit" else 0),
        _CONTROL_VALUE.pack(0, coordinator_epoch),
    )
    return build_batch(
        [marker],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def parse_control(record: Record) -> tuple[str, int]:
    """("commit" or "abort", coordinator epoch) of a marker; other control records: (type number, -1)."""
    key, value = record.key, record.value
    if key is None or len(key) < _CONTROL_KEY.size:
        raise InvalidRecord("a control record has no type")
    _, kind = _CONTROL_KEY.unpack_from(key)
    if kind not in (0, 1):
        return str(kind), -1
    if value is None or len(value) < _CONTROL_VALUE.size:
        raise InvalidRecord("a transaction marker has no coordinator epoch")
    _, coordinator_epoch = _CONTROL_VALUE.unpack_from(value)
    return ("commit" if kind else "abort"), coordinator_epoch
