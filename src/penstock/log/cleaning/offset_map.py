"""The newest offset of each key, in a fixed amount of memory.

Keys are stored as 128-bit hashes in flat arrays, with 24 bytes per slot; millions of Python objects would
take ten times as much. A cleaning pass builds it from the dirty part of a log and then discards it.
"""

from __future__ import annotations

import struct
from array import array
from hashlib import blake2b

SLOT_BYTES = 24
_DIGEST = struct.Struct("<QQ")


class OffsetMap:
    """Open addressing with double hashing. A slot's offset is stored plus one; 0 means free."""

    __slots__ = ("_high", "_low", "_mask", "_offsets", "capacity", "size")

    def __init__(self, memory_bytes: int, load_factor: float = 0.9, expected: int | None = None) -> None:
        """At most `memory_bytes`; less if `expected` keys need less. Always room for one key."""
        slots = 2
        while slots * 2 * SLOT_BYTES <= memory_bytes and (expected is None or slots < 2 * expected):
            slots *= 2
        self._mask = slots - 1
        zeros = bytes(8 * slots)
        self._high: array[int] = array("Q", zeros)
        self._low: array[int] = array("Q", zeros)
        self._offsets: array[int] = array("Q", zeros)
        # One slot always stays free, to end the search for a missing key.
        self.capacity = max(1, min(slots - 1, int(slots * load_factor)))
        self.size = 0

    @property
    def utilization(self) -> float:
        return self.size / self.capacity

    def put(self, key: bytes, offset: int) -> bool:
        """Set the offset of `key`. Returns False, and changes nothing, if a new key does not fit."""
        high, low = _DIGEST.unpack(blake2b(key, digest_size=16).digest())
        offsets, highs, lows, mask = self._offsets, self._high, self._low, self._mask
        slot, step = high & mask, low | 1
        while offsets[slot]:
            if highs[slot] == high and lows[slot] == low:
                offsets[slot] = offset + 1
                return True
            slot = (slot + step) & mask
        if self.size >= self.capacity:
            return False
        highs[slot] = high
        lows[slot] = low
        offsets[slot] = offset + 1
        self.size += 1
        return True

    def get(self, key: bytes) -> int:
        """The newest offset of `key`, or -1."""
        high, low = _DIGEST.unpack(blake2b(key, digest_size=16).digest())
        offsets, highs, lows, mask = self._offsets, self._high, self._low, self._mask
        slot, step = high & mask, low | 1
        while offsets[slot]:
            if highs[slot] == high and lows[slot] == low:
                newest: int = offsets[slot] - 1
                return newest
            slot = (slot + step) & mask
        return -1
