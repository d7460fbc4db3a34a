"""Reads and writes Avro's bytes with fastavro, for schemas of the registry: references, defaults, a reader's
schema.

Logical types are left to the callers: here they are the stored numbers and bytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

from penstock.registry.formats.avro.model import MISSING, Array, AvroType, Map, Record, Union
from penstock.registry.formats.avro.parsed import AvroSchema
from penstock.registry.serdes.framing import Undecodable


def fast_schema(schema: AvroSchema) -> Any:
    """For fastavro, with references written out, and without logical types."""
    import fastavro

    parsed = fastavro.parse_schema(_without_logical_types(json.loads(schema.formatted("resolved"))))
    _set_defaults(parsed, {record.name.full: record for record in _records(schema.raw, set())})
    return parsed


def _records(schema: AvroType, seen: set[int]) -> Iterator[Record]:
    if id(schema) in seen:
        return
    seen.add(id(schema))
    if isinstance(schema, Record):
        yield schema
        for field in schema.fields or ():
            yield from _records(field.type, seen)
    elif isinstance(schema, Array):
        yield from _records(schema.items, seen)
    elif isinstance(schema, Map):
        yield from _records(schema.values, seen)
    elif isinstance(schema, Union):
        for branch in schema.branches:
            yield from _records(branch, seen)


def _set_defaults(parsed: Any, records: dict[str, Record]) -> None:
    """Defaults of missing fields: fastavro returns them as the JSON in the schema."""
    if isinstance(parsed, list):
        for item in parsed:
            _set_defaults(item, records)
    elif isinstance(parsed, dict):
        record = records.get(parsed.get("name", "")) if parsed.get("type") in ("record", "error") else None
        if record is not None:
            for field, model in zip(parsed["fields"], record.fields or ()):
                if model.default is not MISSING:
                    field["default"] = _default(model.type, model.default)
        for name in ("type", "items", "values", "fields"):
            _set_defaults(parsed.get(name), records)
        for named in parsed.get("__named_schemas", {}).values():
            _set_defaults(named, records)


def _default(schema: AvroType, value: Any) -> Any:
    """Converts a default to the value that decoding would give."""
    if isinstance(schema, Union):
        # A value of the first branch, or of one that accepts it.
        kinds = {type(None): ("null",), bool: ("boolean",), str: ("string", "bytes", "enum", "fixed"),
                 list: ("array",), dict: ("record", "map"), int: ("int", "long", "float", "double"),
                 float: ("float", "double")}[type(value)]  # fmt: skip
        return next((_default(each, value) for each in schema.branches if each.type in kinds), value)
    if schema.type in ("bytes", "fixed") and isinstance(value, str):
        return value.encode("iso-8859-1", "replace")
    if schema.type in ("float", "double") and isinstance(value, (int, float)):
        return float(value)
    if isinstance(schema, Array) and isinstance(value, list):
        return [_default(schema.items, item) for item in value]
    if isinstance(schema, Map) and isinstance(value, dict):
        return {name: _default(schema.values, item) for name, item in value.items()}
    if isinstance(schema, Record) and isinstance(value, dict):
        return {
            field.name: _default(field.type, value.get(field.name, field.default))
            for field in schema.fields or ()
            if field.name in value or field.default is not MISSING
        }
    return value


def _without_logical_types(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_logical_types(item) for item in value]
    if not isinstance(value, dict):
        return value
    copy = {name: item for name, item in value.items() if name != "logicalType"}
    for name in ("items", "values", "type"):
        if name in copy:
            copy[name] = _without_logical_types(copy[name])
    if "fields" in copy:
        copy["fields"] = [
            {**field, "type": _without_logical_types(field["type"])} for field in copy["fields"]
        ]
    return copy


def read(
    data: bytes | memoryview, writer: Any, reader: Any = None, *, named: bool = False, name: str = ""
) -> Any:
    """Decodes Avro's bytes; with a reader's schema, the value is resolved to it.

    With `named`, values of records, enums and fixed types in unions are pairs of name and value.
    """
    import fastavro

    try:
        return fastavro.schemaless_reader(io.BytesIO(data), writer, reader, return_named_type=named)
    except EOFError:
        raise Undecodable(f"its {len(data)} bytes end before the value that its schema {name} says") from None
    except fastavro.read.SchemaResolutionError as error:
        raise Undecodable(
            f"its schema does not resolve to the one to read with: {str(error)[:300]}"
        ) from None
    except (
        ValueError, TypeError, LookupError, ArithmeticError, RecursionError, MemoryError, AttributeError,
    ) as error:  # fmt: skip
        raise Undecodable(
            f"its {len(data)} bytes do not match writer schema {name}: "
            f"{str(error)[:200] or type(error).__name__}"
        ) from None
