"""The differences between two schemas, field by field. Pure: takes two parsed schemas, returns a list of
changes.

A schema is converted to a list of parts, each with a path such as `address.street` and a description; a
change is a part that only one of the two schemas has, or that differs.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MOST_DEEP = 50


@dataclass(frozen=True, slots=True)
class Change:
    """`before` is None for an added part, `after` for a removed one."""

    place: str
    before: str | None
    after: str | None

    @property
    def kind(self) -> str:
        return "added" if self.before is None else "removed" if self.after is None else "changed"


def changes(old: Any, new: Any) -> list[Change]:
    """The differences between two parsed schemas, in the order of their texts."""
    before, after = dict(parts_of(old)), dict(parts_of(new))
    found = [
        Change(place, text, after.get(place)) for place, text in before.items() if text != after.get(place)
    ]
    found += [Change(place, None, text) for place, text in after.items() if place not in before]
    return found


def text_difference(old: str, new: str, old_name: str, new_name: str) -> list[str]:
    """The lines of a unified diff."""
    return list(
        difflib.unified_diff(
            readable(old).splitlines(), readable(new).splitlines(), old_name, new_name, lineterm=""
        )
    )


def readable(text: str) -> str:
    """JSON is pretty-printed; other texts stay unchanged."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text.rstrip("\n")


def parts_of(schema: Any) -> Iterator[tuple[str, str]]:
    if schema.schema_type == "AVRO":
        yield from _avro(schema.raw, "", [])
    elif schema.schema_type == "PROTOBUF":
        yield from _protobuf(schema)
    else:
        yield from _json("", schema.raw)


# Avro


def _avro(schema: Any, place: str, open_: list[Any]) -> Iterator[tuple[str, str]]:
    yield place or "(schema)", _avro_name(schema)
    if schema in open_ or len(open_) > MOST_DEEP:
        return
    inside = [*open_, schema]
    for name in ("doc", "aliases", "props"):
        value = getattr(schema, name, None)
        if value:
            shown = ", ".join(alias.full for alias in value) if name == "aliases" else _shown(value)
            yield f"{place or '(schema)'} {'properties' if name == 'props' else name}", shown
    if schema.type == "enum":
        for symbol in schema.symbols:
            yield f"{place or '(schema)'} symbol {symbol}", "symbol"
        if schema.default is not None:
            yield f"{place or '(schema)'} default", schema.default
    elif schema.type == "array":
        yield from _avro(schema.items, f"{place}[]", inside)
    elif schema.type == "map":
        yield from _avro(schema.values, f"{place}{{}}", inside)
    elif schema.type == "union":
        for branch in schema.branches:
            if branch.type in ("record", "enum", "array", "map"):
                yield from list(_avro(branch, place, inside))[1:]
    elif schema.type == "record":
        for field in schema.fields or ():
            yield from _avro_field(field, f"{place}.{field.name}".lstrip("."), inside)


def _avro_field(field: Any, place: str, inside: list[Any]) -> Iterator[tuple[str, str]]:
    from penstock.registry.formats.avro.model import MISSING

    below = _avro(field.type, place, inside)
    _, said = next(below)
    yield place, said if field.default is MISSING else f"{said}, default {json.dumps(field.default)}"
    for name in ("doc", "aliases", "props"):
        value = getattr(field, name)
        if value:
            yield f"{place} field {'properties' if name == 'props' else name}", _shown(value)
    yield from below


def _avro_name(schema: Any) -> str:
    if schema.type == "union":
        return "union of " + " | ".join(_avro_name(branch) for branch in schema.branches)
    if schema.type == "array":
        return f"array of {_avro_name(schema.items)}"
    if schema.type == "map":
        return f"map of {_avro_name(schema.values)}"
    name = getattr(schema, "name", None)
    said = schema.type if name is None else f"{schema.type} {name.full}"
    if schema.type == "fixed":
        said += f" of {schema.size} bytes"
    logical = schema.props.get("logicalType") if isinstance(getattr(schema, "props", None), dict) else None
    return f"{said} ({logical})" if logical else said


# JSON Schema


def _json(place: str, value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield place or "(schema)", _shown(value)
        return
    named = place or "(schema)"
    required = value.get("required")
    for keyword, item in value.items():
        if keyword in ("properties", "patternProperties", "$defs", "definitions") and isinstance(item, dict):
            for name, below in item.items():
                where = name if keyword == "properties" else f"{keyword} {name}"
                yield from _json(f"{place}.{where}".lstrip("."), below)
        elif keyword == "items" and isinstance(item, dict):
            yield from _json(f"{place}[]", item)
        elif keyword == "required" and isinstance(required, list):
            for name in required:
                yield f"{f'{place}.{name}'.lstrip('.')} required", "true"
        elif keyword == "type":
            yield named, " | ".join(map(str, item)) if isinstance(item, list) else str(item)
        else:
            yield f"{named} {keyword}", _shown(item)
    if "type" not in value:
        yield named, "any type" if "$ref" not in value else f"as {value['$ref']}"


# Protobuf


def _protobuf(schema: Any) -> Iterator[tuple[str, str]]:
    from google.protobuf import text_format

    file = schema.raw
    yield "package", file.package or "none"
    yield "syntax", file.syntax or "proto2"
    for name in file.dependency:
        yield f"import {name}", "imported"
    if options := text_format.MessageToString(file.options, as_one_line=True):
        yield "options", options
    for message in file.message_type:
        yield from _message(message, "")
    for enum in file.enum_type:
        yield from _enum(enum, "")
    for service in file.service:
        for method in service.method:
            yield f"{service.name}.{method.name}", f"rpc ({method.input_type}) returns ({method.output_type})"


def _message(message: Any, around: str) -> Iterator[tuple[str, str]]:
    place = f"{around}{message.name}"
    yield place, "message"
    nested = {kind.name: kind for kind in message.nested_type}
    for field in message.field:
        yield f"{place}.{field.name}", _protobuf_field(field, message, nested)
    for gone in message.reserved_range:
        yield f"{place} reserved {gone.start} to {gone.end - 1}", "reserved"
    for name in message.reserved_name:
        yield f"{place} reserved {name}", "reserved"
    for kind in message.nested_type:
        if not kind.options.map_entry:
            yield from _message(kind, f"{place}.")
    for enum in message.enum_type:
        yield from _enum(enum, f"{place}.")


def _protobuf_field(field: Any, message: Any, nested: dict[str, Any]) -> str:
    kind = _protobuf_type(field)
    entry = nested.get(field.type_name.rpartition(".")[2])
    if entry is not None and entry.options.map_entry:
        said = f"map<{_protobuf_type(entry.field[0])}, {_protobuf_type(entry.field[1])}>"
    else:
        label = {2: "required ", 3: "repeated "}.get(
            field.label, "optional " if field.proto3_optional else ""
        )
        said = label + kind
    said += f" = {field.number}"
    if field.HasField("oneof_index") and not field.proto3_optional:
        said += f", in oneof {message.oneof_decl[field.oneof_index].name}"
    if field.default_value:
        said += f", default {field.default_value}"
    if field.options.deprecated:
        said += ", deprecated"
    return said


def _protobuf_type(field: Any) -> str:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    if field.type_name:
        return str(field.type_name).lstrip(".")
    return str(FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_").lower()


def _enum(enum: Any, around: str) -> Iterator[tuple[str, str]]:
    yield f"{around}{enum.name}", "enum"
    for value in enum.value:
        yield f"{around}{enum.name}.{value.name}", f"= {value.number}"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 200 else text[:197] + "…"
