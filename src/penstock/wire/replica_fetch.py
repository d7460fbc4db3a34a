"""Fetch requests of followers (version 17), and their responses, whose records are not copied.

Brokers of a cluster use only this version. The server side of Fetch is `wire/fetch.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.errors import WireError
from penstock.wire.primitives import encode_uvarint, skip_tags, uuid_at, uvarint

VERSION = 17

_HEAD = struct.Struct(">iiibii")  # max wait, min and max bytes, isolation level, session id and epoch
_PARTITION = struct.Struct(">iiqiqix")
_REPLICA_STATE = struct.Struct(">BBBiqx")  # one tag: number 1, 13 bytes
_ANSWER = struct.Struct(">ihi")
_RESULT = struct.Struct(">ihqqq")
_INT32 = struct.Struct(">i")
_DIVERGING = struct.Struct(">iq")
_LEADER = struct.Struct(">ii")


class ReplicaPartition(NamedTuple):
    """One partition of a follower's fetch request."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class ReplicaResult(NamedTuple):
    """The result of one partition. The records are frame[start:end]."""

    topic_id: UUID
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging_epoch: tuple[int, int] | None
    current_leader: tuple[int, int] | None
    start: int
    end: int


class ReplicaAnswer(NamedTuple):
    error_code: int
    session_id: int
    results: list[ReplicaResult]


def encode_request(
    replica_id: int,
    replica_epoch: int,
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    session_id: int,
    session_epoch: int,
    topics: Mapping[UUID, Sequence[ReplicaPartition]],
    forgotten: Mapping[UUID, Iterable[int]],
) -> bytes:
    out = bytearray(_HEAD.pack(max_wait_ms, min_bytes, max_bytes, 0, session_id, session_epoch))
    out += encode_uvarint(len(topics) + 1)
    for topic_id, partitions in topics.items():
        out += topic_id.bytes
        out += encode_uvarint(len(partitions) + 1)
        for one in partitions:
            out += _PARTITION.pack(*one)
        out.append(0)
    out += encode_uvarint(len(forgotten) + 1)
    for topic_id, indexes in forgotten.items():
        numbers = list(indexes)
        out += topic_id.bytes
        out += encode_uvarint(len(numbers) + 1)
        out += struct.pack(f">{len(numbers)}i", *numbers)
        out.append(0)
    out.append(1)  # no rack: an empty string
    out += _REPLICA_STATE.pack(1, 1, 13, replica_id, replica_epoch)
    return bytes(out)


def decode_answer(frame: bytearray, pos: int) -> ReplicaAnswer:
    """Decodes the body from `pos` to the end of the frame; WireError if it is malformed."""
    try:
        return _decode(frame, pos)
    except (struct.error, IndexError):
        raise WireError("an answer to a follower's fetch is cut short") from None


def _decode(frame: bytearray, pos: int) -> ReplicaAnswer:
    limit = len(frame)
    _, error_code, session_id = _ANSWER.unpack_from(frame, pos)
    count, pos = uvarint(frame, pos + _ANSWER.size)
    results: list[ReplicaResult] = []
    for _ in range(count - 1):
        topic_id = uuid_at(frame, pos)
        partitions, pos = uvarint(frame, pos + 16)
        for _ in range(partitions - 1):
            index, code, high_watermark, _, log_start = _RESULT.unpack_from(frame, pos)
            aborted, pos = uvarint(frame, pos + _RESULT.size)
            for _ in range(aborted - 1):
                pos = skip_tags(frame, pos + 16, limit)
            size, pos = uvarint(frame, pos + 4)  # past the preferred replica
            start, pos = pos, pos + max(size - 1, 0)
            if pos > limit:
                raise WireError("records go past the end of an answer")
            end = pos
            diverging, leader, pos = _tags(frame, pos, limit)
            results.append(
                ReplicaResult(topic_id, index, code, high_watermark, log_start, diverging, leader, start, end)
            )
        pos = skip_tags(frame, pos, limit)
    return ReplicaAnswer(error_code, session_id, results)


def _tags(
    frame: bytearray, pos: int, limit: int
) -> tuple[tuple[int, int] | None, tuple[int, int] | None, int]:
    diverging = leader = None
    count, pos = uvarint(frame, pos)
    for _ in range(count):
        tag, pos = uvarint(frame, pos)
        size, pos = uvarint(frame, pos)
        if pos + size > limit:
            raise WireError("a tagged field goes past the end of an answer")
        if tag == 0:
            diverging = _DIVERGING.unpack_from(frame, pos)
        elif tag == 1:
            leader = _LEADER.unpack_from(frame, pos)
        pos += size
    return diverging, leader, pos
