"""Avro, JSON Schema and Protobuf: parse, normalise, compare. Pure functions over text.

The interface to the service: it passes text and resolved references, and gets a `ParsedSchema` or
`InvalidSchema`, never another exception. `check` returns reasons, none if the schemas are compatible; the
service combines the checks for FULL and the TRANSITIVE levels. The libraries of a format are imported when
its first schema is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from penstock.registry.formats.schema import (
    MAX_CHARS,
    InvalidSchema,
    ParsedSchema,
    Reference,
    ResolvedReference,
    Words,
)

__all__ = [
    "BACKWARD",
    "FORWARD",
    "MAX_CHARS",
    "SCHEMA_TYPES",
    "Direction",
    "InvalidSchema",
    "ParsedSchema",
    "Reference",
    "ResolvedReference",
    "check",
    "parse",
]

SCHEMA_TYPES = ("JSON", "PROTOBUF", "AVRO")

Direction = Literal["BACKWARD", "FORWARD"]
BACKWARD: Direction = "BACKWARD"
FORWARD: Direction = "FORWARD"

DIFFERENT_TYPE = "Incompatible because of different schema type"


def parse(
    schema_type: str,
    text: str,
    references: Sequence[ResolvedReference] = (),
    *,
    strict: bool = True,
    validate_new: bool = True,
) -> ParsedSchema:
    """Parse a schema.

    `strict` is for new schemas. Schemas that are already in the topic were accepted by some registry and must
    stay readable: with False, names and default values are not validated. `validate_new` is Confluent's
    `validateNewSchemas`: without it, only names and default values of new Avro schemas are not validated.
    """
    if strict and len(text) > MAX_CHARS:
        raise InvalidSchema(f"The schema has {len(text)} characters, at most {MAX_CHARS} are allowed")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidSchema("The schema holds half of a surrogate pair, which is not a character") from None
    parser = _parser(schema_type)
    try:
        return parser(text, tuple(references), strict and (validate_new or schema_type != "AVRO"))
    except RecursionError:
        raise InvalidSchema("The schema is nested too deeply") from None


def check(new: ParsedSchema, old: ParsedSchema, direction: Direction, *, policy: str = "STRICT") -> list[str]:
    """Why `new` is incompatible with `old`. BACKWARD: it cannot read old data; FORWARD: the old one cannot
    read its data.

    `policy` is Confluent's compatibilityPolicy; LENIENT accepts more changes of JSON Schema.
    """
    if new.schema_type != old.schema_type:
        return [DIFFERENT_TYPE]
    if new.references == old.references and new.canonical() == old.canonical():
        return []
    try:
        if direction == BACKWARD:
            return new.differences(old, Words("new", "old"), policy)
        return old.differences(new, Words("old", "new"), policy)
    except RecursionError:
        return ["Unexpected exception during compatibility check: the schemas are nested too deeply"]


def _parser(schema_type: str) -> Callable[[str, tuple[ResolvedReference, ...], bool], ParsedSchema]:
    # Imported here: each format has a library that a registry without schemas of that type does not need.
    if schema_type == "AVRO":
        from penstock.registry.formats.avro.parsed import parse_avro

        return parse_avro
    if schema_type == "JSON":
        from penstock.registry.formats.json_schema.parsed import parse_json_schema

        return parse_json_schema
    if schema_type == "PROTOBUF":
        from penstock.registry.formats.protobuf.parsed import parse_protobuf

        return parse_protobuf
    raise InvalidSchema(f"Invalid schema type {schema_type}: the registry takes {', '.join(SCHEMA_TYPES)}")
