"""The records of MirrorMaker 2's own topics: heartbeats, checkpoints and offset syncs, byte for byte as
Java's.

A string is its length in two bytes and UTF-8; numbers are big-endian. Values of heartbeats and checkpoints
start with a version, which is 0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from penstock.connect.errors import DataError

_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_VERSION = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """`source` was being replicated to `target` at this time (ms)."""

    source: str
    target: str
    timestamp: int

    def key(self) -> bytes:
        return _text(self.source) + _text(self.target)

    def value(self) -> bytes:
        return _INT16.pack(_VERSION) + _INT64.pack(self.timestamp)

    @classmethod
    def of(cls, key: bytes, value: bytes) -> Heartbeat:
        reader = _Reader(key)
        source, target = reader.text(), reader.text()
        reader = _Reader(value)
        reader.version()
        return cls(source, target, reader.int64())


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A group's committed offset in the source, and the corresponding offset in the target."""

    group: str
    topic: str
    """In the target."""
    partition: int
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""

    def key(self) -> bytes:
        return _text(self.group) + _text(self.topic) + _INT32.pack(self.partition)

    def value(self) -> bytes:
        offsets = _INT64.pack(self.upstream_offset) + _INT64.pack(self.downstream_offset)
        return _INT16.pack(_VERSION) + offsets + _text(self.metadata)

    @classmethod
    def of(cls, key: bytes, value: bytes) -> Checkpoint:
        reader = _Reader(key)
        place = reader.text(), reader.text(), reader.int32()
        reader = _Reader(value)
        reader.version()
        return cls(*place, reader.int64(), reader.int64(), reader.text())


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """The record at `upstream_offset` of a source partition is at `downstream_offset` in the target."""

    topic: str
    """In the source."""
    partition: int
    upstream_offset: int
    downstream_offset: int

    def key(self) -> bytes:
        return _text(self.topic) + _INT32.pack(self.partition)

    def value(self) -> bytes:
        return _INT64.pack(self.upstream_offset) + _INT64.pack(self.downstream_offset)

    @classmethod
    def of(cls, key: bytes, value: bytes) -> OffsetSync:
        reader = _Reader(key)
        topic, partition = reader.text(), reader.int32()
        reader = _Reader(value)
        return cls(topic, partition, reader.int64(), reader.int64())


def _text(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _number(self, kind: struct.Struct) -> int:
        try:
            (number,) = kind.unpack_from(self._data, self._at)
        except struct.error:
            raise DataError(f"a record of MirrorMaker's is cut short: {self._data!r}") from None
        self._at += kind.size
        return int(number)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def version(self) -> None:
        version = self._number(_INT16)
        if version != _VERSION:
            raise DataError(f"a record of MirrorMaker's has version {version}; only {_VERSION} is known")

    def text(self) -> str:
        size = self._number(_INT16)
        data = self._data[self._at : self._at + size]
        if size < 0 or len(data) < size:
            raise DataError(f"a record of MirrorMaker's is cut short: {self._data!r}")
        self._at += size
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"a record of MirrorMaker's is not UTF-8: {data!r}") from error
