"""Encodes and decodes all messages except Produce and Fetch, in all versions.

A Message is independent of versions. Decoding sets the fields of the version, and the defaults of fields that
only newer versions have. Encoding omits fields that the version does not have, and writes defaults for fields
that the message does not have. A field that no version has is an error. Names are Kafka's (schema.py has the
one rule). Readers and writers are generated at the first use of a version, which takes a few milliseconds
each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from penstock.errors import WireError
from penstock.wire.api_keys import is_flexible, response_header_version
from penstock.wire.message import Message
from penstock.wire.primitives import MAX_ANSWERED_ITEMS, MAX_ITEMS, Buffer

__all__ = [
    "Message",
    "decode_data",
    "decode_request",
    "decode_response",
    "encode_data",
    "encode_request",
    "encode_response",
    "is_flexible",
    "prepare",
    "response_header_version",
    "valid_versions",
]


def valid_versions(api_key: int) -> range:
    """The versions that can be encoded and decoded; UnsupportedVersion for an unknown key."""
    from penstock.wire import schema

    return schema.versions(schema.message_name(api_key))


def prepare(api_key: int, version: int) -> None:
    """Generates the codec of an API's requests and responses, instead of at their first use. This takes tens
    of milliseconds, because schemas are loaded and compiled to code."""
    _api_reader(api_key, version, "request")
    _api_writer(api_key, version, "response")


def decode_request(api_key: int, version: int, buf: Buffer, pos: int = 0, end: int | None = None) -> Message:
    """The request whose body is between pos and end (default: the end of buf)."""
    return _decode(_api_reader(api_key, version, "request"), buf, pos, end)


def decode_response(api_key: int, version: int, buf: Buffer, pos: int = 0, end: int | None = None) -> Message:
    return _decode(_api_reader(api_key, version, "response"), buf, pos, end)


def decode_data(name: str, version: int, buf: Buffer, pos: int = 0, end: int | None = None) -> Message:
    """A message that is not a request or response, for example "consumer_protocol_subscription"."""
    return _decode(_reader(name, version, "data"), buf, pos, end)


def encode_request(api_key: int, version: int, message: Message) -> bytes:
    return _api_writer(api_key, version, "request")(message)


def encode_response(api_key: int, version: int, message: Message) -> bytes:
    """The body of a response, without length and header."""
    return _api_writer(api_key, version, "response")(message)


def encode_data(name: str, version: int, message: Message) -> bytes:
    return _writer(name, version, "data")(message)


def _decode(read: Callable[..., Message], buf: Buffer, pos: int, end: int | None) -> Message:
    try:
        return read(buf, pos, len(buf) if end is None else end)
    except (struct.error, IndexError):
        raise WireError("a message is cut short") from None
    except UnicodeDecodeError:
        raise WireError("a string is not UTF-8") from None


@cache
def _api_reader(api_key: int, version: int, kind: str) -> Callable[..., Message]:
    from penstock.wire import schema

    return _reader(schema.message_name(api_key), version, kind)


@cache
def _api_writer(api_key: int, version: int, kind: str) -> Callable[[Any], bytes]:
    from penstock.wire import schema

    return _writer(schema.message_name(api_key), version, kind)


@cache
def _reader(name: str, version: int, kind: str) -> Callable[..., Message]:
    from penstock.wire import readers, schema

    known = schema.load(name, version, kind)
    max_items = MAX_ANSWERED_ITEMS if kind == "response" else MAX_ITEMS
    return readers.reader(known, schema.load(name, schema.versions(name)[-1], kind), max_items)


@cache
def _writer(name: str, version: int, kind: str) -> Callable[[Any], bytes]:
    from penstock.wire import schema, writers

    return writers.writer(schema.load(name, version, kind), lambda: schema.field_names(name, kind))
