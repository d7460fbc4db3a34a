"""Every version of every API that is advertised gets a well-formed answer, byte by byte."""

from __future__ import annotations

import struct

import pytest

from penstock.errors import PenstockError
from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message, decode_response, encode_request
from tests.clients.every_request import REQUESTS, advertised, errors_in, fetch, software
from tests.clients.raw import batch_of, old_message, produce_request

# What section 3 of the promise names, with the oldest and newest versions of Kafka 4's brokers.
PROMISED = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 17),
    ApiKey.LIST_OFFSETS: (1, 10),
    ApiKey.METADATA: (0, 13),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
    ApiKey.DESCRIBE_CLUSTER: (0, 1),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
}
UNSUPPORTED_VERSION = 35


@pytest.mark.promise(
    "protocol", "ApiVersions advertises exactly what the broker serves; every advertised version is tested"
)
def test_all_that_is_promised_is_advertised(wire: WireClient) -> None:
    found = advertised(wire)
    for api, (oldest, newest) in PROMISED.items():
        low, high = found[api]
        assert low <= oldest and high >= newest, f"{api.name}: {low}-{high}"


@pytest.mark.promise(
    "protocol", "ApiVersions advertises exactly what the broker serves; every advertised version is tested"
)
def test_every_version_of_every_advertised_api_answers_also_a_request_that_says_nothing(
    broker: PenstockBroker,
) -> None:
    """All fields at their defaults: mostly an error, but one that the client of that version can read."""
    with WireClient(broker.port) as wire:
        served = advertised(wire)
        for api, (oldest, newest) in served.items():
            if api == ApiKey.PRODUCE:
                oldest = 3  # the versions before are all of old record formats, tested below
            for version in range(oldest, newest + 1):
                try:
                    # Produce would not be answered without this field.
                    nothing = Message(acks=1) if api == ApiKey.PRODUCE else Message()
                    wire.request(ApiKey(api), version, nothing)
                except (OSError, PenstockError) as error:
                    raise AssertionError(f"{ApiKey(api).name} v{version}: {error}") from error


@pytest.mark.promise(
    "protocol", "A request with an unknown version of ApiVersions gets error 35 in a version 0 response"
)
@pytest.mark.parametrize("version", [5, 99, 32767])
def test_an_unknown_version_of_api_versions_gets_error_35_in_the_oldest_shape(
    broker: PenstockBroker, version: int
) -> None:
    with WireClient(broker.port) as wire:
        # The newest header, as a newer client would send it, with a body that we cannot know.
        wire.send_frame(struct.pack(">hhihx", ApiKey.API_VERSIONS, version, 77, -1) + b"\x05body\x00")
        frame = wire.receive_frame()
        assert struct.unpack_from(">i", frame) == (77,)
        answer = decode_response(ApiKey.API_VERSIONS, 0, frame, 4)
        assert answer.error_code == UNSUPPORTED_VERSION
        assert any(api.api_key == ApiKey.API_VERSIONS for api in answer.api_keys)
        # The connection stays usable: the client tries again with a version it was told.
        assert wire.request(ApiKey.API_VERSIONS, 3, software()).error_code == 0


@pytest.mark.promise(
    "protocol", "ApiVersions advertises exactly what the broker serves; every advertised version is tested"
)
@pytest.mark.promise("groups", "Every served version of the group APIs works")
@pytest.mark.parametrize("api", list(REQUESTS), ids=lambda api: api.name)
def test_every_version_is_answered(broker: PenstockBroker, wire: WireClient, topic: str, api: ApiKey) -> None:
    broker.produce(topic, [b"a record"])
    oldest, newest = advertised(wire)[api]
    for version in range(oldest, newest + 1):
        answer = wire.request(api, version, REQUESTS[api](wire, topic, version))
        codes = list(errors_in(answer))
        assert set(codes) <= {0}, f"{api.name} v{version}: {codes}"


@pytest.mark.promise(
    "protocol", "ApiVersions advertises exactly what the broker serves; every advertised version is tested"
)
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_of_produce_is_answered(
    broker: PenstockBroker, wire: WireClient, topic: str, acks: int
) -> None:
    newest = advertised(wire)[ApiKey.PRODUCE][1]
    for offset, version in enumerate(range(3, newest + 1)):
        request = produce_request(wire, topic, version, batch_of([f"v{version}".encode()]), acks)
        partition = wire.request(ApiKey.PRODUCE, version, request).responses[0].partition_responses[0]
        assert (partition.error_code, partition.base_offset) == (0, offset)
    assert len(broker.consume(topic)) == newest - 2


@pytest.mark.promise(
    "protocol", "Record batches in message formats 0 and 1 are rejected with UNSUPPORTED_FOR_MESSAGE_FORMAT"
)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_versions_of_produce_that_carry_old_formats_answer_that_they_are_not_kept(
    broker: PenstockBroker, wire: WireClient, topic: str, version: int
) -> None:
    """librdkafka compresses only if these are advertised; who sends them has records of format 0 or 1."""
    name = topic.encode()
    records = old_message(1 if version == 2 else 0, b"old")
    body = struct.pack(">hii", -1, 1000, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 1, 0, len(records)) + records
    sent = wire.send(ApiKey.PRODUCE, version, body)
    answer = wire.receive_body(ApiKey.PRODUCE, version, sent)
    expected = struct.pack(">ih", 1, len(name)) + name + struct.pack(">ii", 1, 0)
    assert answer.startswith(expected)
    error_code, base_offset = struct.unpack_from(">hq", answer, len(expected))
    assert (error_code, base_offset) == (43, -1)
    extra = {0: 0, 1: 4, 2: 12}[version]
    assert len(answer) == len(expected) + 10 + extra
    assert broker.consume(topic) == []


@pytest.mark.promise(
    "protocol",
    "Responses are sent in the order of the requests; a produce request with acks=0 has no response",
)
def test_acks_0_has_no_answer_and_the_next_request_is_answered(
    broker: PenstockBroker, wire: WireClient, topic: str
) -> None:
    request = produce_request(wire, topic, 9, batch_of([b"fire and forget"]), acks=0)
    wire.send(ApiKey.PRODUCE, 9, encode_request(ApiKey.PRODUCE, 9, request))
    assert wire.request(ApiKey.API_VERSIONS, 0, Message()).error_code == 0
    assert [record.value for record in broker.consume(topic)] == [b"fire and forget"]


@pytest.mark.promise(
    "protocol",
    "Responses are sent in the order of the requests; a produce request with acks=0 has no response",
)
def test_answers_come_in_the_order_of_the_requests(broker: PenstockBroker, topic: str) -> None:
    """A fetch that waits holds back what was asked after it on the same connection, and only there."""
    with WireClient(broker.port) as wire:
        waiting = fetch(wire, topic, 12)
        waiting.max_wait_ms, waiting.min_bytes = 20_000, 1
        first = wire.send(ApiKey.FETCH, 12, encode_request(ApiKey.FETCH, 12, waiting))
        second = wire.send(ApiKey.API_VERSIONS, 0, b"")
        broker.produce(topic, [b"wake up"])
        answer = wire.receive(ApiKey.FETCH, 12, first)
        assert answer.responses[0].partitions[0].records
        assert wire.receive(ApiKey.API_VERSIONS, 0, second).error_code == 0


@pytest.mark.promise("protocol", "An API that is not served is not advertised")
def test_an_api_that_is_not_served_is_not_advertised_and_costs_the_connection(broker: PenstockBroker) -> None:
    with WireClient(broker.port) as wire:
        assert ApiKey.DESCRIBE_QUORUM not in advertised(wire)
        wire.send_frame(struct.pack(">hhihx", ApiKey.DESCRIBE_QUORUM, 2, 1, -1) + b"\x01\x00")
        with pytest.raises(ConnectionError):
            wire.receive_frame()
    with WireClient(broker.port) as another:
        assert advertised(another)
