"""The generated codec against kio's own readers and writers, for every message and version."""

from __future__ import annotations

import dataclasses
import importlib
import io
import random
import subprocess
import sys
import uuid

import pytest
from kio.serial import entity_reader, entity_writer

from penstock.errors import UnsupportedVersion, WireError
from penstock.wire import api_keys, codec, schema
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.writers import UnknownField
from tests.wire.messages import random_message

NAMES = {key: key.name.lower() for key in ApiKey if schema.versions(key.name.lower())}
DATA = ["consumer_protocol_assignment", "consumer_protocol_subscription", "end_txn_marker"]


def kio_entity(name: str, version: int, kind: str) -> type:
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    (entity,) = (
        item
        for item in vars(module).values()
        if isinstance(item, type) and getattr(getattr(item, "__type__", None), "name", None) == kind
    )
    return entity


def kio_bytes(entity: type, value: object) -> bytes:
    out = io.BytesIO()
    entity_writer(entity)(out, value)
    return out.getvalue()


def check_against_kio(name: str, version: int, kind: str, encode, decode) -> None:
    rng = random.Random(f"{name} {version} {kind}")
    known = schema.load(name, version, kind)
    entity = kio_entity(name, version, kind)
    assert known.flexible == entity.__flexible__
    for _ in range(4):
        message = random_message(known, rng)
        data = encode(message)
        value, size = entity_reader(entity)(data, 0)
        assert size == len(data)
        assert kio_bytes(entity, value) == data
        back = decode(data)
        for field in known.fields:
            assert getattr(back, field.name) == getattr(message, field.name) or field.type == "struct"
        assert encode(back) == data


@pytest.mark.promise(
    "protocol",
    "Each version of each protocol message is encoded to the same bytes as by an independent codec",
)
@pytest.mark.parametrize("key", NAMES, ids=NAMES.values())
@pytest.mark.parametrize("kind", ["request", "response"])
def test_every_version_reads_and_writes_as_kio_does(key: ApiKey, kind: str) -> None:
    encode = codec.encode_request if kind == "request" else codec.encode_response
    decode = codec.decode_request if kind == "request" else codec.decode_response
    for version in codec.valid_versions(key):
        check_against_kio(
            NAMES[key],
            version,
            kind,
            lambda message, v=version: encode(key, v, message),
            lambda data, v=version: decode(key, v, data),
        )


@pytest.mark.parametrize("name", DATA)
def test_messages_that_are_no_apis_read_and_write_as_kio_does(name: str) -> None:
    for version in schema.versions(name):
        check_against_kio(
            name,
            version,
            "data",
            lambda message, v=version: codec.encode_data(name, v, message),
            lambda data, v=version: codec.decode_data(name, v, data),
        )


@pytest.mark.parametrize("key", NAMES, ids=NAMES.values())
def test_the_table_of_flexible_versions_and_headers_is_kios(key: ApiKey) -> None:
    for version in codec.valid_versions(key):
        request = kio_entity(NAMES[key], version, "request")
        response = kio_entity(NAMES[key], version, "response")
        assert int(request.__api_key__) == key
        assert api_keys.is_flexible(key, version) == request.__flexible__
        assert api_keys.request_header_version(key, version) == request.__header_schema__.__version__
        assert api_keys.response_header_version(key, version) == response.__header_schema__.__version__


def test_times_keep_kafkas_names_and_are_plain_milliseconds() -> None:
    data = codec.encode_request(ApiKey.CREATE_TOPICS, 7, Message(topics=[], timeout_ms=1234))
    assert codec.decode_request(ApiKey.CREATE_TOPICS, 7, data).timeout_ms == 1234
    for key, name in NAMES.items():
        for kind in ("request", "response"):
            names = [field.name for field in schema.load(name, codec.valid_versions(key)[-1], kind).fields]
            assert "throttle_time" not in names and "timeout" not in names
    names = [field.name for field in schema.load("join_group", 9, "request").fields]
    assert names[:4] == ["group_id", "session_timeout_ms", "rebalance_timeout_ms", "member_id"]


def test_decoding_an_old_version_sets_the_defaults_of_the_newest() -> None:
    old = codec.decode_request(
        ApiKey.LIST_OFFSETS,
        1,
        codec.encode_request(
            ApiKey.LIST_OFFSETS,
            1,
            Message(
                replica_id=-1,
                topics=[Message(name="t", partitions=[Message(partition_index=0, timestamp=-1)])],
            ),
        ),
    )
    assert old.isolation_level == 0
    assert old.timeout_ms == 0
    assert old.topics[0].partitions[0].current_leader_epoch == -1


def test_decoded_defaults_are_not_shared_between_messages() -> None:
    data = codec.encode_request(ApiKey.CREATE_TOPICS, 7, Message())
    first = codec.decode_request(ApiKey.CREATE_TOPICS, 7, data)
    first.topics.append("mine")
    assert codec.decode_request(ApiKey.CREATE_TOPICS, 7, data).topics == []


def test_encoding_sends_defaults_for_missing_fields_and_leaves_out_those_of_other_versions() -> None:
    message = Message(topics=[Message(name="t", is_internal=False)], controller_id=7)
    for version in codec.valid_versions(ApiKey.METADATA):
        back = codec.decode_response(
            ApiKey.METADATA, version, codec.encode_response(ApiKey.METADATA, version, message)
        )
        assert back.topics[0].name == "t"
        assert back.topics[0].partitions == []
        assert back.topics[0].topic_id == uuid.UUID(int=0)
        assert back.controller_id == (7 if version >= 1 else -1)


@pytest.mark.promise(
    "protocol", "A misspelled field of a message is rejected instead of sent with its default"
)
def test_a_misspelled_field_is_refused_with_its_name_and_not_sent_as_its_default() -> None:
    with pytest.raises(UnknownField, match="HeartbeatResponse has no field eror_code"):
        codec.encode_response(ApiKey.HEARTBEAT, 4, Message(throttle_time_ms=0, eror_code=27))
    with pytest.raises(UnknownField, match=r"MetadataResponse\.topics has no field no_such_field"):
        codec.encode_response(ApiKey.METADATA, 12, Message(topics=[Message(name="t", no_such_field=1)]))
    # a tagged struct that would not be sent, because the names that count have their defaults
    leader = Message(leader_ip=1, leader_epoch=-1)
    partition = Message(partition_index=0, current_leader=leader)
    answer = Message(responses=[Message(topic_id=uuid.uuid4(), partitions=[partition])])
    with pytest.raises(UnknownField, match="leader_ip"):
        codec.encode_response(ApiKey.FETCH, 16, answer)


def test_null_where_the_version_has_none_is_refused_with_the_fields_name() -> None:
    with pytest.raises(ValueError, match=r"topics\.name"):
        codec.encode_response(ApiKey.METADATA, 5, Message(topics=[Message(name=None)]))


def test_unknown_tagged_fields_are_skipped() -> None:
    data = codec.encode_request(ApiKey.METADATA, 12, Message(topics=None))
    assert data.endswith(b"\x00")
    tagged = data[:-1] + b"\x02" + b"\x05\x03abc" + b"\xff\x01\x00"
    assert codec.decode_request(ApiKey.METADATA, 12, tagged) == codec.decode_request(
        ApiKey.METADATA, 12, data
    )


def test_tagged_fields_at_their_default_are_not_sent() -> None:
    plain = codec.encode_response(ApiKey.API_VERSIONS, 4, Message(api_keys=[]))
    back = codec.decode_response(ApiKey.API_VERSIONS, 4, plain)
    assert back.finalized_features_epoch == -1
    assert codec.encode_response(ApiKey.API_VERSIONS, 4, back) == plain
    assert plain.endswith(b"\x00")


def test_a_message_in_the_middle_of_a_buffer_is_read_up_to_its_end() -> None:
    data = codec.encode_request(ApiKey.METADATA, 12, Message(topics=[Message(name="t")]))
    for kind in (bytes, bytearray, memoryview):
        buf = kind(b"before" + data + b"after")
        back = codec.decode_request(ApiKey.METADATA, 12, buf, 6, 6 + len(data))
        assert back.topics[0].name == "t"
        assert codec.decode_request(ApiKey.METADATA, 12, buf, 6) == back, "what follows is left alone"
        with pytest.raises(WireError):
            codec.decode_request(ApiKey.METADATA, 12, buf, 6, 5 + len(data))


@pytest.mark.parametrize("cut", range(0, 30))
def test_a_message_that_is_cut_short_is_a_wire_error(cut: int) -> None:
    data = codec.encode_request(
        ApiKey.CREATE_TOPICS, 7, Message(topics=[Message(name="topic", num_partitions=1)], timeout_ms=1)
    )
    if cut < len(data):
        with pytest.raises(WireError):
            codec.decode_request(ApiKey.CREATE_TOPICS, 7, data[:cut])


def test_an_unknown_api_or_version_is_unsupported() -> None:
    for key, version in [(3, 99), (3, -1), (1000, 0), (-1, 0), (ApiKey.STOP_REPLICA, 0)]:
        with pytest.raises(UnsupportedVersion):
            codec.decode_request(key, version, b"")


def test_every_schema_field_default_is_plain() -> None:
    def look(struct: schema.Struct) -> None:
        for field in struct.fields:
            assert field.default is None or type(field.default) in (
                int,
                float,
                str,
                bytes,
                bool,
                tuple,
                uuid.UUID,
            )
            if field.struct is not None:
                look(field.struct)

    for key, name in NAMES.items():
        for kind in ("request", "response"):
            look(schema.load(name, codec.valid_versions(key)[-1], kind))
    assert dataclasses.is_dataclass(schema.Field)


def test_importing_the_wire_layer_loads_no_schema_and_no_codec_library() -> None:
    script = (
        "import sys, penstock.wire.codec, penstock.wire.batches.records, penstock.wire.produce,"
        " penstock.wire.fetch, penstock.wire.frame;"
        " print([m for m in ('kio', 'cramjam', 'lz4', 'zstandard') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_reading_a_message_does_not_load_hypothesis_where_it_is_installed() -> None:
    script = (
        "import sys; from penstock.wire import codec; codec.encode_response(3, 12, codec.Message());"
        " print('hypothesis' in sys.modules); import hypothesis.strategies"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
