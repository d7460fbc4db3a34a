"""The consumer protocol of classic members, embedded in JoinGroup and SyncGroup: subscription, assignment.

Subscriptions are read in versions 0 to 3; a newer one is read as far as version 3 goes, as clients expect.
Malformed bytes raise WireError.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from penstock.errors import WireError
from penstock.wire.primitives import INT16, INT32, encode_string, nullable_string

PROTOCOL_TYPE = "consumer"
_HIGHEST = 3

ByName = dict[str, frozenset[int]]
"""Partitions by topic name: this protocol has no topic ids."""


class Subscription(NamedTuple):
    version: int
    topics: frozenset[str]
    owned: ByName
    rack_id: str | None


def read_subscription(raw: bytes) -> Subscription:
    try:
        reader = _Reader(raw)
        version = reader.version()
        topics = frozenset(reader.string() for _ in range(reader.count()))
        reader.skip_bytes()
        owned = reader.partitions() if version >= 1 else {}
        if version >= 2:
            reader.int32()  # the generation in which it owned them
        rack_id = reader.nullable_string() if version >= 3 else None
    except (struct.error, IndexError):
        raise WireError("a subscription is cut short") from None
    return Subscription(version, topics, owned, rack_id)


def subscription_version(raw: bytes) -> int:
    """The version in which the member gets its assignment. Never fails: only the protocol with which the
    member joined was parsed, and another of its protocols may be selected later.
    """
    return min(max(INT16.unpack_from(raw)[0], 0), _HIGHEST) if len(raw) >= INT16.size else 0


def read_assignment(raw: bytes) -> ByName:
    """Empty bytes mean no partitions: the member has no assignment yet."""
    if not raw:
        return {}
    try:
        reader = _Reader(raw)
        reader.version()
        return reader.partitions()
    except (struct.error, IndexError):
        raise WireError("an assignment is cut short") from None


def write_assignment(assigned: Mapping[str, frozenset[int]], version: int) -> bytes:
    """Written in the version of the member's subscription; all have the same layout."""
    parts = [INT16.pack(version), INT32.pack(len(assigned))]
    for topic in sorted(assigned):
        numbers = sorted(assigned[topic])
        parts += (encode_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    parts.append(b"\xff\xff\xff\xff")  # no user data
    return b"".join(parts)


class _Reader:
    __slots__ = ("_end", "_pos", "_raw")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._pos = 0
        self._end = len(raw)

    def version(self) -> int:
        (version,) = INT16.unpack_from(self._raw, 0)
        self._pos = 2
        if version < 0:
            raise WireError(f"the consumer protocol has no version {version}")
        return min(int(version), _HIGHEST)

    def int32(self) -> int:
        (number,) = INT32.unpack_from(self._raw, self._pos)
        self._pos += 4
        return int(number)

    def count(self) -> int:
        count = self.int32()
        if not 0 <= count <= self._end - self._pos:
            raise WireError(f"{count} items do not fit in {self._end - self._pos} bytes")
        return count

    def nullable_string(self) -> str | None:
        text, self._pos = nullable_string(self._raw, self._pos, self._end)
        return text

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise WireError("a topic has no name")
        return text

    def skip_bytes(self) -> None:
        size = self.int32()
        if size < -1 or size > self._end - self._pos:
            raise WireError(f"{size} bytes of user data do not fit")
        self._pos += max(size, 0)

    def partitions(self) -> ByName:
        found: ByName = {}
        for _ in range(self.count()):
            topic = self.string()
            count = self.count()
            numbers = struct.unpack_from(f">{count}i", self._raw, self._pos)
            self._pos += 4 * count
            found[topic] = found.get(topic, frozenset()) | frozenset(numbers)
        return found
