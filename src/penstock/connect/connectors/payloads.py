"""Keys and values of records as bytes and names, for systems without schemas."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from penstock.connect.api import DataError, Schema, SinkRecord
from penstock.connect.converters.json import JsonConverter

_JSON = JsonConverter({"schemas.enable": "false"})
_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


def payload(schema: Schema | None, value: Any) -> bytes:
    """Bytes and text unchanged, anything else as JSON; DataError for a value that JSON cannot express."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    if value is None:
        return b""
    return _JSON.to_bytes("", schema, value) or b""


def text(schema: Schema | None, value: Any, what: str) -> str:
    """Like `payload`, as text; DataError for bytes that are not UTF-8."""
    try:
        return payload(schema, value).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{what} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def fields(record: SinkRecord, what: str) -> dict[str, Any]:
    """The value, which must be a struct or a map, as plain JSON data."""
    value = record.value
    if isinstance(value, dict) and record.value_schema is not None:
        value = _JSON.json_of(record.value_schema, value)
    if not isinstance(value, dict):
        raise DataError(f"{what} needs a struct or a map as value, not {type(record.value).__name__}")
    return value


def placeholders(template: str) -> set[str]:
    """The names in a template such as `${topic}/${key}`."""
    return set(_PLACEHOLDER.findall(template))


def filled(template: str, record: SinkRecord, quote: Callable[[str], str] = str) -> str:
    """`${topic}`, `${partition}`, `${offset}` and `${key}` of a record; DataError if it lacks a key."""

    def one(match: re.Match[str]) -> str:
        name = match[1]
        if name == "key":
            if record.key is None:
                raise DataError(f"The record has no key, which {template} needs")
            return quote(text(record.key_schema, record.key, "The key"))
        return quote(str(getattr(record, name)))

    return _PLACEHOLDER.sub(one, template)


RECORD_PLACEHOLDERS = frozenset({"topic", "partition", "offset", "key"})


def placeholder_problem(name: str, template: str, known: frozenset[str] = RECORD_PLACEHOLDERS) -> list[str]:
    """What is wrong with a template of a setting; empty if nothing is."""
    unknown = sorted(placeholders(template) - known)
    if not unknown:
        return []
    allowed = ", ".join(f"${{{each}}}" for each in sorted(known))
    return [f"Invalid value {template} for configuration {name}: ${{{unknown[0]}}} is unknown; use {allowed}"]
