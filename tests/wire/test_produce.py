"""Produce by hand against the generated codec and kio, in every version."""

from __future__ import annotations

import struct
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.wire import codec
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.produce import PartitionResult, encode_produce_response, parse_produce

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=20)
texts = st.none() | names
error_codes = st.sampled_from([-1, 0, 3, 6, 87])
ids = st.uuids()

requests = st.builds(
    Message,
    transactional_id=texts,
    acks=st.sampled_from([-1, 0, 1]),
    timeout_ms=st.integers(0, 2**31 - 1),
    topic_data=st.lists(
        st.builds(
            Message,
            name=names,
            topic_id=ids,
            partition_data=st.lists(
                st.builds(Message, index=int32, records=st.none() | st.binary(max_size=300)), max_size=3
            ),
        ),
        max_size=3,
    ),
)


def old_request(version: int, request: Message) -> bytes:
    """Versions 0-2, for which there is no schema: version 3 without its transactional id."""
    request.transactional_id = None
    data = codec.encode_request(ApiKey.PRODUCE, 3, request)
    assert data[:2] == b"\xff\xff"
    return data[2:]


@pytest.mark.parametrize("version", range(14))
@settings(max_examples=40)
@given(request_=requests, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_a_request_is_parsed_in_place_in_every_version(
    version: int, request_: Message, before: bytes, after: bytes
) -> None:
    if version < 3:
        body = old_request(version, request_)
    else:
        body = codec.encode_request(ApiKey.PRODUCE, version, request_)
    buf = bytearray(before + body + after)
    parsed = parse_produce(buf, len(before), len(before) + len(body), version)
    assert parsed.transactional_id == request_.transactional_id
    assert (parsed.acks, parsed.timeout_ms) == (request_.acks, request_.timeout_ms)
    assert len(parsed.topics) == len(request_.topic_data)
    for (name, topic_id, partitions), topic in zip(parsed.topics, request_.topic_data):
        assert (name, topic_id) == ((None, topic.topic_id) if version >= 13 else (topic.name, None))
        found = [(index, None if start < 0 else bytes(buf[start:end])) for index, start, end in partitions]
        assert found == [(one.index, one.records) for one in topic.partition_data]


results = st.lists(
    st.tuples(
        names,
        ids,
        st.lists(
            st.builds(
                PartitionResult,
                index=int32,
                error_code=error_codes,
                base_offset=int64,
                log_append_time=st.integers(-1, 2**40),
                log_start_offset=int64,
                error_message=texts,
                record_errors=st.lists(st.tuples(int32, texts), max_size=2),
                current_leader=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
            ),
            max_size=3,
        ),
    ),
    max_size=3,
)
endpoints = st.lists(st.tuples(int32, names, int32, texts), max_size=2)


def as_message(topics, throttle_ms: int, nodes) -> Message:
    return Message(
        responses=[
            Message(
                name=name,
                topic_id=topic_id,
                partition_responses=[
                    Message(
                        index=one.index,
                        error_code=one.error_code,
                        base_offset=one.base_offset,
                        log_append_time_ms=one.log_append_time,
                        log_start_offset=one.log_start_offset,
                        record_errors=[
                            Message(batch_index=index, batch_index_error_message=text)
                            for index, text in one.record_errors
                        ],
                        error_message=one.error_message,
                        current_leader=one.current_leader
                        and Message(leader_id=one.current_leader[0], leader_epoch=one.current_leader[1]),
                    )
                    for one in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ],
        throttle_time_ms=throttle_ms,
        node_endpoints=[Message(node_id=a, host=b, port=c, rack=d) for a, b, c, d in nodes],
    )


@pytest.mark.promise(
    "protocol",
    "Each version of each protocol message is encoded to the same bytes as by an independent codec",
)
@pytest.mark.parametrize("version", range(3, 14))
@settings(max_examples=40)
@given(topics=results, throttle_ms=st.integers(0, 2**31 - 1), nodes=endpoints)
def test_a_response_is_what_the_generated_codec_writes(version: int, topics, throttle_ms: int, nodes) -> None:
    expected = codec.encode_response(ApiKey.PRODUCE, version, as_message(topics, throttle_ms, nodes))
    assert encode_produce_response(version, topics, throttle_ms, nodes) == expected


def test_a_lone_successful_partition_is_written_as_any_other() -> None:
    topics = [("t", uuid.uuid4(), [PartitionResult(3, 0, 42, -1, 7)])]
    for version in range(3, 14):
        expected = codec.encode_response(ApiKey.PRODUCE, version, as_message(topics, 5, []))
        assert encode_produce_response(version, topics, 5) == expected


def test_the_oldest_responses_have_their_own_shape() -> None:
    topics = [("t", None, [PartitionResult(3, 2, 42, 9, 7)])]
    head = b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01"
    assert encode_produce_response(0, topics, 5) == head + struct.pack(">ihq", 3, 2, 42)
    assert encode_produce_response(1, topics, 5) == head + struct.pack(">ihqi", 3, 2, 42, 5)
    assert encode_produce_response(2, topics, 5) == head + struct.pack(">ihqqi", 3, 2, 42, 9, 5)


@pytest.mark.parametrize("version", range(14))
def test_a_request_cut_anywhere_or_with_more_behind_it_is_a_wire_error(version: int) -> None:
    request = Message(
        acks=1,
        topic_data=[Message(name="t", partition_data=[Message(index=0, records=b"abc")])],
    )
    if version < 3:
        body = old_request(version, request)
    else:
        body = codec.encode_request(ApiKey.PRODUCE, version, request)
    parse_produce(body, 0, len(body), version)
    for end in range(len(body)):
        with pytest.raises(WireError):
            parse_produce(body, 0, end, version)
        with pytest.raises(WireError):
            parse_produce(body[:end], 0, end, version)
    with pytest.raises(WireError):
        parse_produce(body + b"\x00", 0, len(body) + 1, version)
