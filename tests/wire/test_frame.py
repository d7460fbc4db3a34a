"""Headers of requests and responses."""

from __future__ import annotations

import io

import pytest
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.serial import entity_writer

from penstock.errors import WireError
from penstock.wire.frame import parse_request_header, request_frame, response_start


def header_bytes(entity: type, **fields: object) -> bytes:
    out = io.BytesIO()
    entity_writer(entity)(out, entity(**fields))
    return out.getvalue()


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "größe"])
@pytest.mark.parametrize(
    ("key", "version", "entity"), [(3, 8, HeaderV1), (3, 9, HeaderV2), (18, 3, HeaderV2)]
)
def test_the_header_gives_the_body(client_id: str | None, key: int, version: int, entity: type) -> None:
    data = header_bytes(
        entity, request_api_key=key, request_api_version=version, correlation_id=-7, client_id=client_id
    )
    buf = bytearray(b"..." + data + b"body")
    assert parse_request_header(buf, 3) == (key, version, -7, client_id, 3 + len(data))
    assert parse_request_header(buf, 3, 3 + len(data)) == (key, version, -7, client_id, 3 + len(data))
    for end in range(len(data)):
        with pytest.raises(WireError):
            parse_request_header(buf, 3, 3 + end)
        with pytest.raises(WireError):
            parse_request_header(data[:end], 0)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    data = b"\x00\x03\x00\x0c\x00\x00\x00\x01\x00\x01c" + b"\x01\x07\x02ab"
    assert parse_request_header(data, 0) == (3, 12, 1, "c", len(data))


def test_an_unknown_api_or_version_still_gives_its_correlation_id() -> None:
    assert parse_request_header(b"\x7f\xff\x00\x00\x00\x00\x00\x09\xff\xff", 0) == (32767, 0, 9, None, 10)
    assert parse_request_header(b"\x00\x12\x00\x63\x00\x00\x00\x09\xff\xff\x00", 0)[:3] == (18, 99, 9)
    assert parse_request_header(b"\xff\xff\xff\xff\x00\x00\x00\x09\xff\xff", 0)[:3] == (-1, -1, 9)


@pytest.mark.parametrize("length", [b"\xff\xfe", b"\x80\x00", b"\x7f\xff"])
def test_an_impossible_client_id_is_a_wire_error(length: bytes) -> None:
    with pytest.raises(WireError):
        parse_request_header(b"\x00\x03\x00\x01\x00\x00\x00\x01" + length + b"abc", 0)


def test_a_client_id_that_is_not_text_is_a_wire_error() -> None:
    with pytest.raises(WireError):
        parse_request_header(b"\x00\x03\x00\x01\x00\x00\x00\x01\x00\x01\xff", 0)


@pytest.mark.parametrize(("key", "version", "entity"), [(3, 8, HeaderV1), (3, 9, HeaderV2)])
def test_a_request_of_ours_has_the_header_of_an_independent_codec(
    key: int, version: int, entity: type
) -> None:
    header = header_bytes(
        entity, request_api_key=key, request_api_version=version, correlation_id=7, client_id="größe"
    )
    frame = request_frame(key, version, 7, "größe".encode(), b"body")
    assert frame == len(header + b"body").to_bytes(4, "big") + header + b"body"


def test_the_body_of_a_response_begins_after_the_tagged_fields_of_its_header() -> None:
    number = b"\x00\x00\x00\x07"
    assert response_start(3, 8, number + b"\x00body") == 4
    assert response_start(3, 9, number + b"\x00body") == 5
    assert response_start(3, 9, number + b"\x01\x07\x02abbody") == 9
    assert response_start(18, 3, number + b"\x00body") == 4, "ApiVersions has the oldest header (KIP-511)"
    with pytest.raises(WireError):
        response_start(3, 9, number)
