r"""Records as text, in and out: text, json, hex, base64, and templates for output.

JSON lines are the form that loses nothing: {"key", "value", "headers", "partition", "timestamp"}, where bytes
that are not UTF-8 stand in "key_base64" and "value_base64". What `consume --format json` prints,
`produce --format json` takes. (Only the timestamp 0 becomes the present: librdkafka cannot send it.)
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from penstock.admin.positions import iso_time
from penstock.admin.reader import IncomingRecord

FORMATS = ("text", "json", "hex", "base64")
Headers = Sequence[tuple[str, bytes | None]]
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_OF_CONSUME = {"topic", "offset", "timestamp_type", "key_schema_id", "value_schema_id"}
_NAMED = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


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


def unescape(text: str) -> bytes:
    r"""The bytes that `text` names with \t \n \r \0 \\ and \xNN."""
    out = bytearray()  # words of the command line that are not UTF-8 keep their bytes
    position = 0
    for match in _ESCAPE.finditer(text):
        out += text[position : match.start()].encode(errors="surrogateescape")
        word = match[1]
        if word[0] == "x" and len(word) == 3:
            out.append(int(word[1:], 16))
        else:
            out += _NAMED.get(word, word.encode(errors="surrogateescape"))
        position = match.end()
    return bytes(out + text[position:].encode(errors="surrogateescape"))


# Input


def line_decoder(
    form: str,
    *,
    key_separator: bytes | None,
    null_value: bytes | None,
    json_parts: frozenset[str] = frozenset(),
) -> Callable[[bytes], OutgoingRecord]:
    """A function from a line without its end to a record; it raises BadRecord.

    `json_parts` says whether the key and the value are JSON that is encoded later: strings stay quoted.
    """
    if form == "json":
        return lambda line: _decode_json(line, json_parts)
    decode = _DECODERS[form]

    def decode_line(line: bytes) -> OutgoingRecord:
        key: bytes | None = None
        if key_separator is not None:
            head, found, line = line.partition(key_separator)
            if not found:
                raise BadRecord(f"no key separator {key_separator.decode(errors='replace')!r}")
            key = decode(head)
        return OutgoingRecord(None if line == null_value else decode(line), key)

    return decode_line


def _decode_json(line: bytes, json_parts: frozenset[str]) -> OutgoingRecord:
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
        return _from_base64(encoded.encode())
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


def _from_hex(text: bytes) -> bytes:
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError as error:
        raise BadRecord(f"not hexadecimal: {_short(text)}") from error


def _from_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRecord(f"not base64: {_short(text)}") from error


_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "text": bytes,
    "hex": _from_hex,
    "base64": _from_base64,
}


def _short(text: bytes) -> str:
    return repr(text[:40].decode(errors="replace"))


# Output


@dataclass(frozen=True, slots=True)
class Layout:
    """What text, hex and base64 lines show beside the value."""

    keys: bool = False
    headers: bool = False
    timestamps: bool = False
    separator: bytes = b"\t"
    delimiter: bytes = b"\n"
    null: bytes = b"null"


def record_encoder(form: str, layout: Layout) -> Callable[[IncomingRecord], bytes]:
    """A function from a consumed record to the bytes to print. A `form` with a % in it is a template."""
    if form == "json":
        return _encode_json
    if "%" in form:
        return _template_encoder(form, layout)
    encode = _ENCODERS[form]

    def show(data: bytes | None) -> bytes:
        return layout.null if data is None else encode(data)

    if not (layout.keys or layout.headers or layout.timestamps):
        return lambda record: show(record.value()) + layout.delimiter

    def encode_line(record: IncomingRecord) -> bytes:
        parts: list[bytes] = []
        if layout.timestamps:
            parts.append(iso_time(record.timestamp()[1]).encode())
        if layout.headers:
            parts.append(_headers_text(record.headers(), show))
        if layout.keys:
            parts.append(show(record.key()))
        parts.append(show(record.value()))
        return layout.separator.join(parts) + layout.delimiter

    return encode_line


def check_template(template: str) -> str:
    """The template itself, or a usage error that names the wrong directive."""
    for directive in re.findall(r"%(.?)", template, re.DOTALL):
        if directive not in _DIRECTIVES and directive != "%":
            raise click.BadParameter(
                f"'%{directive}' is not one of {' '.join('%' + d for d in _DIRECTIVES)} %%"
            )
    return template


def _to_hex(data: bytes) -> bytes:
    return data.hex().encode()


_ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "text": bytes,
    "hex": _to_hex,
    "base64": base64.b64encode,
}


def _headers_text(headers: Any, show: Callable[[bytes | None], bytes]) -> bytes:
    return b",".join(name.encode() + b"=" + show(value) for name, value in headers or ())


_DIRECTIVES: dict[str, Callable[[IncomingRecord, bytes], bytes]] = {
    "t": lambda record, null: (record.topic() or "").encode(),
    "p": lambda record, null: str(record.partition()).encode(),
    "o": lambda record, null: str(record.offset()).encode(),
    "k": lambda record, null: _or(record.key(), null),
    "v": lambda record, null: _or(record.value(), null),
    "s": lambda record, null: _or(record.value(), null),
    "K": lambda record, null: _length(record.key()),
    "V": lambda record, null: _length(record.value()),
    "h": lambda record, null: _headers_text(record.headers(), lambda data: _or(data, null)),
    "T": lambda record, null: str(record.timestamp()[1]).encode(),
    "D": lambda record, null: iso_time(record.timestamp()[1]).encode(),
}


def _or(data: bytes | None, null: bytes) -> bytes:
    return null if data is None else data


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else str(len(data)).encode()


def _template_encoder(template: str, layout: Layout) -> Callable[[IncomingRecord], bytes]:
    pieces: list[bytes | Callable[[IncomingRecord, bytes], bytes]] = []
    for literal, directive in re.findall(r"([^%]*)(?:%(.))?", check_template(template), re.DOTALL):
        pieces.append(unescape(literal))
        if directive:
            pieces.append(b"%" if directive == "%" else _DIRECTIVES[directive])
    if not unescape(template).endswith(layout.delimiter):
        pieces.append(layout.delimiter)
    null = layout.null

    def encode_record(record: IncomingRecord) -> bytes:
        return b"".join([piece if isinstance(piece, bytes) else piece(record, null) for piece in pieces])

    return encode_record


def _encode_json(record: IncomingRecord) -> bytes:
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
