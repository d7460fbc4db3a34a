"""The options of typed columns: `value.format`, `key.format`, and what goes with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from penstock.registry.client import RegistrySettings
from penstock.spark.errors import BadOption

Errors = Literal["fail", "dead-letter", "skip", "null"]

PARTS: tuple[Literal["key", "value"], ...] = ("key", "value")
JSON_TEXT, CSV_TEXT = "JSON-TEXT", "CSV-TEXT"
TEXTS = (JSON_TEXT, CSV_TEXT)
"""Formats that have no registry: their schema is a type of Spark's."""
SCHEMA_TYPES = {
    "avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF", "json-text": JSON_TEXT, "csv-text": CSV_TEXT,
}  # fmt: skip
_OF_PART = ("format", "schema", "schema.version", "subject", "message", "decode.errors", "delimiter")
_OF_REGISTRY = (
    "schema.registry.url",
    "schema.registry.basic.auth.user.info",
    "schema.registry.ssl.ca.location",
    "schema.registry.ssl.certificate.location",
    "schema.registry.ssl.key.location",
)
TYPED_OPTIONS = (
    *(f"{part}.{name}" for part in PARTS for name in _OF_PART),
    *_OF_REGISTRY,
    "dead.letter.topic",
    "dead.letter.query",
)
_PATIENCE = 30.0
"""Seconds in which a registry may be away before a task fails."""


@dataclass(frozen=True)
class PartOptions:
    """How the key or the value is decoded."""

    part: Literal["key", "value"]
    schema_type: str
    subject: str
    """Also selects the context of the ids; empty, if `schema` is given, for the default one."""
    schema: str | None
    version: str
    message: str | None
    errors: Errors
    delimiter: str = ","

    @property
    def is_text(self) -> bool:
        return self.schema_type in TEXTS


@dataclass(frozen=True)
class TypedOptions:
    registry: RegistrySettings | None
    """None where all is text."""
    parts: tuple[PartOptions, ...]
    dead_letter_topic: str | None
    dead_letter_query: str | None = field(default=None, compare=False)
    """The name of the query in dead letters. Not compared: it does not change the decoding, and workers cache
    decoders.
    """


class Given(Protocol):
    def __contains__(self, name: str) -> bool: ...
    def get(self, name: str) -> str | None: ...
    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str: ...


def parse_typed_options(given: Given, topics: frozenset[str] | None) -> TypedOptions | None:
    """None if keys and values stay bytes. `topics` are those that the query names, if any."""
    parts = tuple(part for name in PARTS if (part := _part(given, name, topics)) is not None)
    if not parts:
        for name in TYPED_OPTIONS:
            if name in given:
                raise BadOption(f"{name} requires value.format or key.format")
        return None
    dead_letters = (given.get("dead.letter.topic") or "").strip() or None
    wants = [part.part for part in parts if part.errors == "dead-letter"]
    if wants and dead_letters is None:
        raise BadOption(f"{wants[0]}.decode.errors=dead-letter requires dead.letter.topic")
    if dead_letters is not None and not wants:
        raise BadOption("dead.letter.topic requires value.decode.errors=dead-letter")
    if dead_letters is not None and dead_letters in (topics or ()):
        raise BadOption(f"dead.letter.topic={dead_letters} is a topic that this query reads")
    query = (given.get("dead.letter.query") or "").strip() or None
    if query is not None and dead_letters is None:
        raise BadOption("dead.letter.query requires dead.letter.topic")
    registry = None if all(part.is_text for part in parts) else registry_settings(given)
    return TypedOptions(registry, parts, dead_letters, query)


def registry_settings(given: Given) -> RegistrySettings:
    url = (given.get("schema.registry.url") or "").strip()
    if not url:
        raise BadOption("value.format requires schema.registry.url, e.g. http://localhost:8081")
    return RegistrySettings(
        url=url,
        user=given.get("schema.registry.basic.auth.user.info"),
        ca=given.get("schema.registry.ssl.ca.location"),
        certificate=given.get("schema.registry.ssl.certificate.location"),
        key=given.get("schema.registry.ssl.key.location"),
        patience=_PATIENCE,
    )


def _part(given: Given, name: Literal["key", "value"], topics: frozenset[str] | None) -> PartOptions | None:
    if f"{name}.format" not in given:
        for option in _OF_PART:
            if f"{name}.{option}" in given:
                raise BadOption(f"{name}.{option} requires {name}.format, one of {', '.join(SCHEMA_TYPES)}")
        return None
    form = given.choice(f"{name}.format", tuple(SCHEMA_TYPES), "")
    if SCHEMA_TYPES[form] in TEXTS:
        return _text_part(given, name, form)
    if f"{name}.delimiter" in given:
        raise BadOption(f"{name}.delimiter requires {name}.format=csv-text")
    text = given.get(f"{name}.schema")
    subject = (given.get(f"{name}.subject") or "").strip()
    message = (given.get(f"{name}.message") or "").strip() or None
    version = (given.get(f"{name}.schema.version") or "latest").strip().lower()
    if version != "latest" and not (version.isdecimal() and int(version) > 0):
        raise BadOption(f"{name}.schema.version must be a number from 1 on, or latest, not '{version}'")
    if message is not None and form != "protobuf":
        raise BadOption(f"{name}.message requires {name}.format=protobuf")
    if text is not None and f"{name}.schema.version" in given:
        raise BadOption(f"{name}.schema and {name}.schema.version exclude each other")
    if not subject and text is None:
        if topics is None or len(topics) != 1:
            raise BadOption(
                f"{name}.subject or {name}.schema must say which schema the column {name} has: "
                f"it is that of <topic>-{name} only where one topic is read"
            )
        subject = f"{next(iter(topics))}-{name}"
    return PartOptions(name, SCHEMA_TYPES[form], subject, text, version, message, _errors(given, name))


def _errors(given: Given, name: str) -> Errors:
    errors: dict[str, Errors] = {each: each for each in get_args(Errors)}
    return errors[given.choice(f"{name}.decode.errors", tuple(errors), "fail")]


def _text_part(given: Given, name: Literal["key", "value"], form: str) -> PartOptions:
    for option in ("schema.version", "subject", "message"):
        if f"{name}.{option}" in given:
            raise BadOption(f"{name}.{option} requires a schema registry; {name}.format={form} uses none")
    schema = (given.get(f"{name}.schema") or "").strip()
    if not schema:
        raise BadOption(
            f"{name}.schema must say the columns of {name}.format={form}, e.g. 'id BIGINT, price DOUBLE'"
        )
    delimiter = given.get(f"{name}.delimiter")
    if delimiter is not None and form != "csv-text":
        raise BadOption(f"{name}.delimiter requires {name}.format=csv-text")
    delimiter = "," if delimiter is None else "\t" if delimiter == "\\t" else delimiter
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise BadOption(f"{name}.delimiter must be one character of ASCII, not '{delimiter}'")
    return PartOptions(name, SCHEMA_TYPES[form], "", schema, "latest", None, _errors(given, name), delimiter)
