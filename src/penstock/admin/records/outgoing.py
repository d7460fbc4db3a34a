r"""Records to produce, and JSON lines: the form that loses nothing.

A line is {"key", "value", "headers", "partition", "timestamp"}; bytes that are not UTF-8 are in "key_base64"
and "value_base64". What `encode_json` writes, `decode_json` reads. (Only the timestamp 0 becomes the present:
librdkafka cannot send it.)
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.admin.reader import IncomingRecord

Headers = Sequence[tuple[str, bytes | None]]
_OF_CONSUME = {"topic", "offset", "timestamp_type", "key_schema_id", "value_schema_id"}


class BadRecord(ValueError):
    """A line of input that is not a record in the chosen format."""


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to produce; what is None is left to the producer and the broker."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


class JsonText(bytes):
    """A key or value that was decoded with its schema: JSON as bytes, and the value that it is."""

    parsed: Any
    schema_id: int | None

    @classmethod
    def of(cls, value: Any, schema_id: int | None) -> JsonText:
        text = cls(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace"))
        text.parsed, text.schema_id = value, schema_id
        return text


# Reading


def decode_json(line: bytes, json_parts: frozenset[str] = frozenset()) -> OutgoingRecord:
    """Raises BadRecord. `json_parts` are the parts whose strings stay quoted."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise BadRecord(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BadRecord('not a JSON object such as {"key": "k", "value": "v"}')
    known = {"key", "value", "key_base64", "value_base64", "headers", "partition", "timestamp"}
    # What consume adds is not a field of a new record, and is skipped.
    unknown = fields.keys() - known - _OF_CONSUME
    if unknown:
        raise BadRecord(f"unknown field '{min(unknown)}' (known: {', '.join(sorted(known))})")
    return OutgoingRecord(
        _json_bytes(fields, "value", "value" in json_parts),
        _json_bytes(fields, "key", "key" in json_parts),
        _json_headers(fields.get("headers")),
        _json_integer(fields, "partition", 2**31),
        _json_integer(fields, "timestamp", 2**63),
    )


def _json_bytes(fields: dict[str, Any], name: str, quoted: bool = False) -> bytes | None:
    """A string is its UTF-8 unless it is to stay `quoted`; null is null, any other value its JSON text."""
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        if not isinstance(encoded, str) or fields.get(name) is not None:
            raise BadRecord(f"'{name}_base64' must be a string, and excludes '{name}'")
        return from_base64(encoded.encode())
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, str) and not quoted:
        return _utf8(value)
    return _utf8(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadRecord(f"{text[:40]!r} has half of a surrogate pair, which is not text") from error


def _json_headers(value: Any) -> Headers:
    if value is None:
        return ()
    if isinstance(value, dict):
        value = [{"key": key, "value": item} for key, item in value.items()]
    if not isinstance(value, list):
        raise BadRecord('\'headers\' must be an object, or a list of {"key", "value"}')
    headers: list[tuple[str, bytes | None]] = []
    for item in value:
        if not isinstance(item, dict) or not isinstance(item.get("key"), str):
            raise BadRecord('each of \'headers\' must be {"key": string, "value": string or null}')
        _utf8(item["key"])
        headers.append((item["key"], _json_bytes(item, "value")))
    return headers


def _json_integer(fields: dict[str, Any], name: str, limit: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < limit:
        raise BadRecord(f"'{name}' must be a whole number from 0 to {limit - 1}, not {value!r}")
    return value


def from_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRecord(f"not base64: {short(text)}") from error


def short(text: bytes) -> str:
    return repr(text[:40].decode(errors="replace"))


# Writing


def encode_json(record: IncomingRecord) -> bytes:
    """One line with its end."""
    fields: dict[str, Any] = {
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
        "timestamp": record.timestamp()[1] if record.timestamp()[0] else None,
    }
    _put(fields, "key", record.key())
    _put(fields, "value", record.value())
    headers: list[dict[str, Any]] = []
    for name, value in record.headers() or ():
        header: dict[str, Any] = {"key": name}
        _put(header, "value", value)
        headers.append(header)
    fields["headers"] = headers
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _put(fields: dict[str, Any], name: str, data: bytes | None) -> None:
    if data is None:
        fields[name] = None
        return
    if isinstance(data, JsonText):
        fields[name] = data.parsed
        fields[f"{name}_schema_id"] = data.schema_id
        return
    try:
        fields[name] = data.decode("utf-8")
    except UnicodeDecodeError:
        fields[f"{name}_base64"] = base64.b64encode(data).decode()
