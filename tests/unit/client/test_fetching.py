"""Fetch as the client writes and reads it, against the broker's own codec, in every version."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest

from penstock.client.fetching import FetchQuery, decode_fetch, encode_fetch
from penstock.errors import WireError
from penstock.wire.fetch import FetchPartitionResult, encode_fetch_response, parse_fetch

VERSIONS = range(4, 19)
TOPIC_ID = UUID(int=77)
QUERY = FetchQuery("orders", 3, 1000, max_bytes=50, min_bytes=2, max_wait_ms=9, isolation=1)


def answer(version: int, result: FetchPartitionResult, error_code: int = 0) -> bytearray:
    chunks = encode_fetch_response(version, 0, error_code, 0, [("orders", TOPIC_ID, [result])])
    return bytearray(struct.pack(">i", 1) + b"\0" * (version >= 12) + b"".join(map(bytes, chunks)))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_reads_the_request(version: int) -> None:
    body = encode_fetch(version, QUERY, TOPIC_ID, 5, "rack")
    request = parse_fetch(body, 0, len(body), version)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (9, 2, 50)
    assert (request.isolation_level, request.replica_id, request.session_epoch) == (1, -1, -1)
    ((name, topic_id, (partition,)),) = request.topics
    assert (name, topic_id) == (("orders", None) if version <= 12 else (None, TOPIC_ID))
    assert (partition.partition, partition.fetch_offset, partition.max_bytes) == (3, 1000, 50)
    assert partition.current_leader_epoch == (5 if version >= 9 else -1)
    assert request.rack_id == ("rack" if version >= 11 else "")


@pytest.mark.parametrize("aborted", [None, [], [(7, 990), (8, 1001)]])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_is_read_without_a_copy(version: int, aborted: list[tuple[int, int]] | None) -> None:
    result = FetchPartitionResult(3, 0, 2000, 1900, 10, aborted, 4, [b"records"])
    frame = answer(version, result)
    found = decode_fetch(version, frame, "orders")
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 2000, 1900)
    assert found.log_start_offset == (10 if version >= 5 else -1)
    assert found.aborted == tuple(aborted or ())
    assert found.preferred_read_replica == (4 if version >= 11 else -1)
    assert found.data == b"records"
    assert found.data.obj is frame


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_is_cut_anywhere_is_refused(version: int) -> None:
    frame = answer(version, FetchPartitionResult(3, 0, 2000, 1900, 10, [(7, 990)], -1, [b"records"]))
    after_records = frame.index(b"records") + len(b"records")
    for size in range(after_records):
        with pytest.raises(WireError):
            decode_fetch(version, frame[:size], "orders")


@pytest.mark.parametrize("version", range(7, 19))
def test_an_error_of_the_whole_request_is_told(version: int) -> None:
    frame = answer(version, FetchPartitionResult(3), error_code=71)
    assert decode_fetch(version, frame, "orders").error_code == 71
