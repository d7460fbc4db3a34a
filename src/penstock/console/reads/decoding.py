"""Keys, values and headers as text: null, text, JSON, decoded with the registry, or hexadecimal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.registry.client import RegistryClient
    from penstock.registry.serdes import Decoder

MOST_SHOWN = 100_000
"""The maximum number of characters of a value on a page; an export has all of it."""
_MOST_BYTES = 512


@dataclass(frozen=True, slots=True)
class Part:
    """A key, a value or a header's value.

    `kind` is null, text, json or bytes; or avro, json-schema or protobuf if the registry has the schema.
    """

    kind: str
    text: str
    size: int
    schema_id: int | None = None
    note: str = ""
    """Why it is shown as bytes although it has a schema id."""
    data: bytes | None = field(default=None, repr=False)

    @property
    def short(self) -> str:
        """One line for a table."""
        if self.kind == "null":
            return "null"
        line = " ".join(self.text[:400].split())
        return line if len(line) <= 160 else line[:160] + "…"

    @property
    def shown(self) -> str:
        """Pretty-printed if it is JSON, cut if it is long."""
        text = self.text
        if self.kind not in ("null", "text", "bytes") and len(text) <= MOST_SHOWN:
            try:
                text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
            except (ValueError, RecursionError):
                pass
        if len(text) <= MOST_SHOWN:
            return text
        more = len(text) - MOST_SHOWN
        return f"{text[:MOST_SHOWN]}\n… {more:,} more characters: export the message to see them"


NULL = Part("null", "", 0)

Describe = Callable[[bytes, str, Iterable[tuple[str, bytes | None]]], tuple[str, Any, int | None] | None]
"""Returns the type, JSON and schema id of bytes with a schema id; None for others; Undecodable has the
reason.
"""


def decode(
    data: bytes | None, describe: Describe | None = None, part: str = "value", headers: Any = ()
) -> Part:
    if data is None:
        return NULL
    note = ""
    if describe is not None and data[:1] in (b"\x00", b"\x01"):
        try:
            found = describe(data, part, headers or ())
        except PenstockError as error:
            found, note = None, str(error)
        if found is not None:
            kind, value, schema_id = found
            text = json.dumps(value, ensure_ascii=False, default=str)
            return Part(kind, text, len(data), schema_id, data=data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _bytes(data, note)
    if any(character < " " and character not in "\t\r\n" for character in text[:1000]):
        return _bytes(data, note)
    return Part("json" if _is_json(text) else "text", text, len(data), note=note, data=data)


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _bytes(data: bytes, note: str) -> Part:
    more = f" … {len(data) - _MOST_BYTES:,} more bytes" if len(data) > _MOST_BYTES else ""
    return Part("bytes", data[:_MOST_BYTES].hex(" ") + more, len(data), note=note, data=data)


class Registered:
    """`Describe` with a registry: looks up the type of each schema once. For one thread at a time."""

    _NAMES = {"AVRO": "avro", "JSON": "json-schema", "PROTOBUF": "protobuf"}

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._decoders: dict[tuple[str, str], Decoder] = {}

    def __call__(
        self, data: bytes, part: str, headers: Iterable[tuple[str, bytes | None]]
    ) -> tuple[str, Any, int | None] | None:
        # Imported here, because it takes long and most topics do not need it.
        from penstock.registry.serdes import Decoder
        from penstock.registry.serdes.framing import Undecodable, take_apart

        try:
            framed = take_apart(data, part, headers)
        except Undecodable:
            return None  # bytes that happen to look like it
        schema = (
            self._client.by_id(framed.schema_id)
            if framed.schema_id is not None
            else self._client.by_guid(framed.guid or "")
        )
        key = (schema.schema_type, part)
        if key not in self._decoders:
            self._decoders[key] = Decoder(self._client, schema.schema_type, part)
        value, schema_id = self._decoders[key].decode(data, headers)
        return self._NAMES.get(schema.schema_type, schema.schema_type.lower()), value, schema_id
