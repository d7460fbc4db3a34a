"""Validates every record in a producer's batch, without creating objects for records.

Lengths, offset deltas, keys, values and headers must match exactly, as in Kafka: one invalid record would
block every reader of the partition permanently. This is the hottest loop of the broker. Records of a producer
often have the same shape: a run of such records is compared with strided slices, without a loop iteration for
each record. Other records are checked many at a time, field by field. If neither is possible they are read
one by one, which also finds the error.
"""

from __future__ import annotations

from penstock.errors import InvalidRecord
from penstock.wire.primitives import Buffer

_MIN_RECORD = 7  # length, attributes, two deltas, key, value and header count: a byte each
_FEWEST = 16  # the minimum of remaining records to look for a run
_FIRST_RUN = 64  # records that are checked together; grows by a factor of four while that succeeds
_LONGEST_RUN = 4096
_BLOCK = 8192  # offset deltas for which the third byte of the varint stays the same
_WIDER = (64, _BLOCK)  # offset deltas from which on the varint has one more byte
_HIGH = bytes(range(128, 256))  # varint bytes with the continuation bit
_SIZES = bytes((1, *range(0, 256, 2)))  # first bytes of lengths: even, or 1 for null

# The bytes of the zigzag varints of 0 to 8191 by position, with and without the continuation bit.
_FIRST = bytes((2 * delta) & 127 for delta in range(_BLOCK))
_FIRST_MORE = bytes(byte | 128 for byte in _FIRST)
_SECOND = bytes((2 * delta) >> 7 for delta in range(_BLOCK))
_SECOND_MORE = bytes(byte | 128 for byte in _SECOND)


def check_records(buf: Buffer, pos: int, end: int, count: int) -> tuple[int, bool]:
    """Check that buf[pos:end] is exactly `count` records.

    Returns an upper bound of their timestamp deltas, and whether one has no key.
    """
    if count * _MIN_RECORD > end - pos:
        raise InvalidRecord(f"{count} records do not fit in {end - pos} bytes")
    try:
        return _check(buf, pos, end, count)
    except IndexError:
        raise InvalidRecord("the records of a batch go past its end") from None


def _check(buf: Buffer, pos: int, end: int, count: int) -> tuple[int, bool]:
    delta = newest = 0
    keyless = False
    ahead, together, patience, failures = _FIRST_RUN, _FIRST_RUN, 0, 0
    while delta < count:
        start = pos
        # Most numbers have one or two bytes; longer ones are read by a function.
        raw = buf[pos]
        pos += 1
        if raw > 127:
            byte = buf[pos]
            if byte < 128:
                pos += 1
                raw += (byte << 7) - 128
            else:
                raw, pos = _unsigned(buf, start, 5)
        record_end = pos + (raw >> 1)
        if raw & 1 or record_end > end:
            raise InvalidRecord("a record has an impossible length")
        pos += 1  # attributes: none are defined
        raw = buf[pos]
        pos += 1
        if raw > 127:
            byte = buf[pos]
            if byte < 128:
                pos += 1
                raw += (byte << 7) - 128
            else:
                raw, pos = _unsigned(buf, pos - 1, 10)
        if raw > newest and not raw & 1:
            newest = raw
        raw = buf[pos]
        pos += 1
        if raw > 127:
            byte = buf[pos]
            if byte < 128:
                pos += 1
                raw += (byte << 7) - 128
            else:
                raw, pos = _unsigned(buf, pos - 1, 5)
        if raw != 2 * delta:
            raise InvalidRecord(f"record {delta} of a batch has an unexpected offset delta")
        delta += 1
        raw = buf[pos]  # the key
        pos += 1
        if raw != 1:
            if raw > 127:
                raw, pos = _unsigned(buf, pos - 1, 5)
            if raw & 1:
                raise InvalidRecord("a key has an impossible length")
            pos += raw >> 1
        else:
            keyless = True
        raw = buf[pos]  # the value
        pos += 1
        if raw != 1:
            if raw > 127:
                byte = buf[pos]
                if byte < 128:
                    pos += 1
                    raw += (byte << 7) - 128
                else:
                    raw, pos = _unsigned(buf, pos - 1, 5)
            if raw & 1:
                raise InvalidRecord("a value has an impossible length")
            pos += raw >> 1
        headers = buf[pos]
        pos += 1
        if headers:
            pos = _after_headers(buf, pos - 1, record_end)
        if pos != record_end:
            raise InvalidRecord("a record's length and its fields disagree")

        if patience:
            patience -= 1
        elif count - delta > _FEWEST and not headers and delta not in _WIDER:
            alike = 64 - delta if delta < 64 else _BLOCK - delta % _BLOCK  # as wide as the last one
            run = min(count - delta, ahead, alike, (end - pos) // (pos - start))
            bound = _run(buf, start, pos - start, run, delta) if run else -1
            if bound >= 0:
                newest = max(newest, bound)
                pos += run * (pos - start)
                delta += run
                ahead = min(4 * ahead, _LONGEST_RUN)
                failures = 0
                continue
            ahead = _FIRST_RUN
            some = min(count - delta, together, alike)
            found = _some(buf, pos, end, some, delta)
            if found is not None:
                pos, bound, without_key = found
                newest = max(newest, bound)
                keyless |= without_key
                delta += some
                together = min(4 * together, _LONGEST_RUN)
                failures = 0
            else:
                # irregular records: look for runs again later, at growing intervals
                failures += 1
                together = _FIRST_RUN
                patience = _FEWEST << min(failures, 6)
    if pos != end:
        raise InvalidRecord(f"{end - pos} bytes follow the last record of a batch")
    return newest >> 1, keyless


def _run(buf: Buffer, start: int, stride: int, run: int, delta: int) -> int:
    """Whether the `run` records after the one at `start` have its shape, and offset deltas from `delta` on.

    If all records have the same length, the bytes at the same position of all of them form one strided slice.
    Returns twice an upper bound of their timestamp deltas, or -1 if anything differs.
    """
    first = start + stride
    stop = first + run * stride

    def column(place: int) -> bytes:
        return bytes(buf[place + stride : stop : stride])

    # positions in the first record, which was checked
    _, time_at = _unsigned(buf, start, 5)
    time_at += 1
    _, offset_at = _unsigned(buf, time_at, 10)
    _, key_at = _unsigned(buf, offset_at, 5)
    size, key_end = _varint(buf, key_at)
    value_at = key_end + max(size, 0)
    _, value_end = _varint(buf, value_at)

    # the same length, key length, value length, and no headers, as in the first record
    same = (*range(start, time_at - 1), *range(key_at, key_end), *range(value_at, value_end), first - 1)
    for place in same:
        if column(place) != buf[place].to_bytes(1, "big") * run:
            return -1
    for place in range(time_at, offset_at - 1):
        if column(place).translate(None, _HIGH):
            return -1
    times = column(offset_at - 1)
    if not times.isascii():
        return -1
    # Two bytes are a few seconds: close enough for an upper bound, and finding the largest byte is slow.
    last = 127 if offset_at - time_at <= 2 else max(times)
    for place, wanted in enumerate(_delta_bytes(delta, run, key_at - offset_at), offset_at):
        if column(place) != wanted:
            return -1
    return (last + 1) << (7 * (offset_at - 1 - time_at))


def _some(buf: Buffer, pos: int, end: int, number: int, delta: int) -> tuple[int, int, bool] | None:
    """Check `number` records from `pos`, with offset deltas from `delta` on, one field of all records at a
    time.

    Returns their end, twice an upper bound of their timestamp deltas, and whether one has no key. None if one
    is invalid, has headers, or has a number with more bytes than usual.
    """
    bodies, ends, sizes = [], [], 0
    at = buf.__getitem__
    try:
        for _ in range(number):
            size = buf[pos]
            pos += 1
            if size > 127:
                byte = buf[pos]
                pos += 1
                if byte > 127:
                    return None
                size += (byte << 7) - 128
            sizes |= size
            bodies.append(pos)
            pos += size >> 1
            ends.append(pos)
        if sizes & 1 or pos > end:
            return None
        places = [body + 1 for body in bodies]  # the timestamps, after the attributes
        times = bytes(map(at, places))
        bound = 128
        if not times.isascii():
            if _both_high(times, bytes(map(at, [place + 1 for place in places]))):
                return None
            bound <<= 7
        places = [place + 1 + (byte >> 7) for place, byte in zip(places, times)]
        width = 1 if delta < 64 else 2 if delta < _BLOCK else 3
        for wanted in _delta_bytes(delta, number, width):
            if bytes(map(at, places)) != wanted:
                return None
            places = [place + 1 for place in places]
        keys = bytes(map(at, places))
        if not keys.isascii() or keys.translate(None, _SIZES):
            return None
        places = [place + 1 + (byte >> 1) for place, byte in zip(places, keys)]
        values = bytes(map(at, places))
        if values.translate(None, _SIZES):
            return None
        if values.isascii():
            places = [place + 1 + (byte >> 1) for place, byte in zip(places, values)]
        else:
            more = bytes(map(at, [place + 1 for place in places]))
            if _both_high(values, more):
                return None
            places = [
                place + 1 + (byte >> 1) if byte < 128 else place + 2 + ((byte + (second << 7) - 128) >> 1)
                for place, byte, second in zip(places, values, more)
            ]
        if any(map(at, places)) or [place + 1 for place in places] != ends:
            return None
    except IndexError:
        return None
    return pos, bound, 1 in keys


def _both_high(one: bytes, other: bytes) -> bool:
    """Whether both have a byte with the continuation bit at the same position."""
    return bool(int.from_bytes(one) & int.from_bytes(other) & int.from_bytes(b"\x80" * len(one)))


def _delta_bytes(delta: int, run: int, width: int) -> tuple[bytes, ...]:
    """The varint bytes of `run` offset deltas by position; none can match if their width changes."""
    low = delta % _BLOCK
    high = low + run
    if width == 1 and delta + run <= 64:
        return (_FIRST[low:high],)
    if width == 2 and delta + run <= _BLOCK:
        return _FIRST_MORE[low:high], _SECOND[low:high]
    if width == 3 and high <= _BLOCK and delta < 128 * _BLOCK:
        return _FIRST_MORE[low:high], _SECOND_MORE[low:high], (delta // _BLOCK).to_bytes(1, "big") * run
    return (b"",)


def _after_headers(buf: Buffer, pos: int, end: int) -> int:
    number, pos = _varint(buf, pos)
    if number < 0:
        raise InvalidRecord(f"a record says it has {number} headers")
    for _ in range(number):
        size, pos = _varint(buf, pos)
        if size < 0:
            raise InvalidRecord("a header has no key")
        pos += size
        size, pos = _varint(buf, pos)
        if size < -1:
            raise InvalidRecord("a header has an impossible length")
        pos += max(size, 0)
        if pos > end:
            raise InvalidRecord("a header goes past the end of its record")
    return pos


def _unsigned(buf: Buffer, pos: int, longest: int) -> tuple[int, int]:
    raw = 0
    for i in range(longest):
        byte = buf[pos]
        pos += 1
        raw |= (byte & 127) << (7 * i)
        if byte < 128:
            return raw, pos
    raise InvalidRecord("a number in a record is too long")


def _varint(buf: Buffer, pos: int) -> tuple[int, int]:
    raw, pos = _unsigned(buf, pos, 5)
    return (raw >> 1) ^ -(raw & 1), pos
