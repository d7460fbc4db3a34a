r"""Records as text, in and out: text, json, hex, base64, and templates for output.

JSON lines are those of `penstock.admin.records.outgoing`: what `consume --format json` prints,
`produce --format json` takes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from penstock.admin.positions import iso_time
from penstock.admin.reader import IncomingRecord
from penstock.admin.records.outgoing import (
    BadRecord,
    OutgoingRecord,
    decode_json,
    encode_json,
    from_base64,
    short,
)

FORMATS = ("text", "json", "hex", "base64")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_NAMED = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


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
        return lambda line: decode_json(line, json_parts)
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


def _from_hex(text: bytes) -> bytes:
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError as error:
        raise BadRecord(f"not hexadecimal: {short(text)}") from error


_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "text": bytes,
    "hex": _from_hex,
    "base64": from_base64,
}


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
        return encode_json
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
