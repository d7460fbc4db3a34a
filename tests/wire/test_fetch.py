"""Fetch by hand against the generated codec and kio, in every version."""

from __future__ import annotations

import itertools
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.wire import codec
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.fetch import FetchPartitionResult, encode_fetch_response, parse_fetch

VERSIONS = range(4, 19)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
small = st.integers(0, 1000)
names = st.text(max_size=20)
ids = st.uuids()

requests = st.builds(
    Message,
    cluster_id=st.none() | names,
    replica_id=int32,
    replica_state=st.builds(Message, replica_id=int32, replica_epoch=int64),
    max_wait_ms=st.integers(0, 2**31 - 1),
    min_bytes=int32,
    max_bytes=int32,
    isolation_level=st.sampled_from([0, 1]),
    session_id=int32,
    session_epoch=int32,
    topics=st.lists(
        st.builds(
            Message,
            topic=names,
            topic_id=ids,
            partitions=st.lists(
                st.builds(
                    Message,
                    partition=int32,
                    current_leader_epoch=int32,
                    fetch_offset=int64,
                    last_fetched_epoch=int32,
                    log_start_offset=int64,
                    partition_max_bytes=int32,
                    replica_directory_id=ids,
                    high_watermark=int64,
                ),
                max_size=3,
            ),
        ),
        max_size=3,
    ),
    forgotten_topics_data=st.lists(
        st.builds(Message, topic=names, topic_id=ids, partitions=st.lists(int32, max_size=3)), max_size=2
    ),
    rack_id=names,
)


def topic_key(version: int, topic: Message) -> tuple[str | None, uuid.UUID | None]:
    return (None, topic.topic_id) if version >= 13 else (topic.topic, None)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40)
@given(request_=requests, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_a_request_says_the_same_in_every_version(
    version: int, request_: Message, before: bytes, after: bytes
) -> None:
    body = codec.encode_request(ApiKey.FETCH, version, request_)
    buf = bytearray(before + body + after)
    parsed = parse_fetch(buf, len(before), len(before) + len(body), version)
    # The reference: what the generated reader, itself checked against kio, makes of the bytes.
    known = codec.decode_request(ApiKey.FETCH, version, body)
    assert parsed.max_wait_ms == known.max_wait_ms
    assert parsed.min_bytes == known.min_bytes
    assert parsed.max_bytes == known.max_bytes
    assert parsed.isolation_level == known.isolation_level
    assert parsed.session_id == known.session_id
    assert parsed.session_epoch == known.session_epoch
    assert parsed.rack_id == known.rack_id
    assert parsed.cluster_id == known.cluster_id
    if version >= 15:
        assert parsed.replica_id == known.replica_state.replica_id
        assert parsed.replica_epoch == known.replica_state.replica_epoch
    else:
        assert parsed.replica_id == known.replica_id
    expected = []
    for topic in known.topics:
        partitions = [
            (
                one.partition,
                one.current_leader_epoch,
                one.fetch_offset,
                one.last_fetched_epoch,
                one.log_start_offset,
                one.partition_max_bytes,
                one.replica_directory_id,
                one.high_watermark,
            )
            for one in topic.partitions
        ]
        expected.append((*topic_key(version, topic), partitions))
    assert parsed.topics == expected
    assert parsed.forgotten == [
        (*topic_key(version, topic), topic.partitions) for topic in known.forgotten_topics_data
    ]


class Slice:
    """Stands for bytes in a file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.length = len(data)


pairs = st.tuples(small, small)
results = st.lists(
    st.tuples(
        names,
        ids,
        st.lists(
            st.builds(
                FetchPartitionResult,
                index=int32,
                error_code=st.sampled_from([-1, 0, 1, 3, 6]),
                high_watermark=int64,
                last_stable_offset=int64,
                log_start_offset=int64,
                aborted=st.none() | st.lists(st.tuples(int64, int64), max_size=3),
                preferred_read_replica=int32,
                slices=st.lists(
                    st.binary(max_size=200) | st.builds(Slice, st.binary(max_size=200)), max_size=3
                ),
                diverging_epoch=st.none() | pairs,
                current_leader=st.none() | pairs,
            ),
            max_size=3,
        ),
    ),
    max_size=3,
)
endpoints = st.lists(st.tuples(int32, names, int32, st.none() | names), max_size=2)


def piece(chunk) -> bytes:
    return chunk if isinstance(chunk, bytes) else chunk.data


def as_message(topics, throttle_ms: int, error_code: int, session_id: int, nodes) -> Message:
    return Message(
        throttle_time_ms=throttle_ms,
        error_code=error_code,
        session_id=session_id,
        responses=[
            Message(
                topic=name,
                topic_id=topic_id,
                partitions=[
                    Message(
                        partition_index=one.index,
                        error_code=one.error_code,
                        high_watermark=one.high_watermark,
                        last_stable_offset=one.last_stable_offset,
                        log_start_offset=one.log_start_offset,
                        diverging_epoch=one.diverging_epoch
                        and Message(epoch=one.diverging_epoch[0], end_offset=one.diverging_epoch[1]),
                        current_leader=one.current_leader
                        and Message(leader_id=one.current_leader[0], leader_epoch=one.current_leader[1]),
                        aborted_transactions=None
                        if one.aborted is None
                        else [Message(producer_id=a, first_offset=b) for a, b in one.aborted],
                        preferred_read_replica=one.preferred_read_replica,
                        records=b"".join(map(piece, one.slices)),
                    )
                    for one in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ],
        node_endpoints=[Message(node_id=a, host=b, port=c, rack=d) for a, b, c, d in nodes],
    )


@pytest.mark.promise(
    "protocol",
    "Each version of each protocol message is encoded to the same bytes as by an independent codec",
)
@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40)
@given(
    topics=results,
    throttle_ms=small,
    error_code=st.sampled_from([0, 70, 71]),
    session_id=int32,
    nodes=endpoints,
)
def test_a_response_is_what_the_generated_codec_writes(
    version: int, topics, throttle_ms: int, error_code: int, session_id: int, nodes
) -> None:
    chunks = encode_fetch_response(version, throttle_ms, error_code, session_id, topics, nodes)
    message = as_message(topics, throttle_ms, error_code, session_id, nodes)
    assert b"".join(map(piece, chunks)) == codec.encode_response(ApiKey.FETCH, version, message)


@given(topics=results)
def test_slices_go_through_untouched_and_bytes_between_them_are_one_chunk(topics) -> None:
    chunks = encode_fetch_response(12, 0, 0, 0, topics)
    given_slices = [s for _, _, ps in topics for one in ps for s in one.slices if isinstance(s, Slice)]
    assert [chunk for chunk in chunks if isinstance(chunk, Slice)] == given_slices
    assert all(chunks)
    kinds = [isinstance(chunk, bytes) for chunk in chunks]
    assert (True, True) not in itertools.pairwise(kinds)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_or_with_more_behind_it_is_a_wire_error(version: int) -> None:
    body = codec.encode_request(
        ApiKey.FETCH,
        version,
        Message(
            cluster_id="c",
            replica_state=Message(replica_id=1, replica_epoch=2),
            topics=[Message(topic="t", partitions=[Message(partition=1, high_watermark=5)])],
            forgotten_topics_data=[Message(topic="t", partitions=[1, 2])],
            rack_id="r",
        ),
    )
    parse_fetch(body, 0, len(body), version)
    for end in range(len(body)):
        with pytest.raises(WireError):
            parse_fetch(body, 0, end, version)
        with pytest.raises(WireError):
            parse_fetch(body[:end], 0, end, version)
    with pytest.raises(WireError):
        parse_fetch(body + b"\x00", 0, len(body) + 1, version)
