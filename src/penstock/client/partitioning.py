"""The partition of a key: the hash of Kafka's Java clients, for every producer here.

Producers with different hashes put the same key into two partitions, which breaks the order of its records
and the compaction of tables. librdkafka's default (`consistent_random`, CRC32) differs from Java's, so all
librdkafka producers here are created with `KEY_PARTITIONER`.
"""

from __future__ import annotations

KEY_PARTITIONER = "murmur2_random"
"""The value of librdkafka's `partitioner`: like Java's clients; records without a key go to any partition."""

_SEED, _M, _MASK = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


def partition_for_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """MurmurHash2 of 32 bits with Kafka's seed, unsigned."""
    size = len(data)
    hashed = _SEED ^ size
    whole = size & ~3
    for place in range(0, whole, 4):
        block = int.from_bytes(data[place : place + 4], "little") * _M & _MASK
        block = (block ^ block >> 24) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ block
    if whole < size:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15
