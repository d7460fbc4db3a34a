"""Converts Avro types to JSON text, byte for byte as Avro's Java `Schema.toString()`, which Confluent stores.

If normalised, properties, aliases and the keys of default values are also sorted, and empty docs of named
types removed; logical types come before other properties.
"""

from __future__ import annotations

import math
from typing import Any

from penstock.registry.formats.avro.model import (
    MISSING,
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Union,
)
from penstock.registry.formats.json_text import dump, quote

_LOGICAL_TYPES = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "big-decimal": ("bytes",),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
    "decimal": ("bytes", "fixed"),
}


def render(schema: AvroType, known: frozenset[str] = frozenset(), *, normalize: bool = False) -> str:
    """The text of a type; types in `known` are only named, since a reference defines them."""
    out: list[str] = []
    _Writer(out, set(known), normalize).write(schema, "")
    return "".join(out)


class _Writer:
    def __init__(self, out: list[str], known: set[str], normalize: bool) -> None:
        self._out = out
        self._known = known
        self._normalize = normalize

    def write(self, schema: AvroType, space: str) -> None:
        out = self._out
        if isinstance(schema, Primitive):
            if not schema.props:
                out.append(f'"{schema.type}"')
                return
            out.append(f'{{"type":"{schema.type}"')
            self._props(schema, schema.props)
        elif isinstance(schema, Union):
            out.append("[")
            for i, branch in enumerate(schema.branches):
                if i:
                    out.append(",")
                self.write(branch, space)
            out.append("]")
            return
        elif isinstance(schema, Array):
            out.append('{"type":"array","items":')
            self.write(schema.items, space)
            self._props(schema, schema.props)
        elif isinstance(schema, Map):
            out.append('{"type":"map","values":')
            self.write(schema.values, space)
            self._props(schema, schema.props)
        else:
            if schema.name.full in self._known:
                out.append(quote(schema.name.qualified(space)))
                return
            self._known.add(schema.name.full)
            self._named(schema, space)
        out.append("}")

    def _named(self, schema: Named, space: str) -> None:
        out, name = self._out, schema.name
        kind = "error" if isinstance(schema, Record) and schema.is_error else schema.type
        out.append(f'{{"type":"{kind}","name":{quote(name.short)}')
        if name.space != space:
            out.append(f',"namespace":{quote(name.space)}')
        if schema.doc is not None and not (self._normalize and not schema.doc):
            out.append(f',"doc":{quote(schema.doc)}')
        if isinstance(schema, Record):
            self._fields(schema)
        elif isinstance(schema, Enum):
            out.append(f',"symbols":[{",".join(map(quote, schema.symbols))}]')
            if schema.default is not None:
                out.append(f',"default":{quote(schema.default)}')
        else:
            out.append(f',"size":{schema.size}')
        self._props(schema, schema.props)
        aliases = sorted(schema.aliases, key=lambda alias: alias.full) if self._normalize else schema.aliases
        self._aliases([alias.qualified(name.space) for alias in aliases])

    def _fields(self, record: Record) -> None:
        out = self._out
        out.append(',"fields":[')
        for i, field in enumerate(record.fields or ()):
            out.append(f'{"," if i else ""}{{"name":{quote(field.name)},"type":')
            self.write(field.type, record.name.space)
            if field.doc is not None:
                out.append(f',"doc":{quote(field.doc)}')
            if field.default is not MISSING:
                out.append(f',"default":{dump(field.default, ordered=self._normalize)}')
            if field.order != "ascending":
                out.append(f',"order":"{field.order}"')
            self._aliases(sorted(field.aliases) if self._normalize else field.aliases)
            props = sorted(field.props.items()) if self._normalize else field.props.items()
            out.extend(f",{quote(k)}:{dump(v, ordered=self._normalize)}" for k, v in props)
            out.append("}")
        out.append("]")

    def _aliases(self, aliases: list[str]) -> None:
        if aliases:
            self._out.append(f',"aliases":[{",".join(map(quote, aliases))}]')

    def _props(self, schema: Primitive | Array | Map | Named, props: dict[str, Any]) -> None:
        names = list(props)
        if self._normalize:
            first = _logical_properties(schema, props)
            names = first + sorted(name for name in names if name not in first)
        self._out.extend(f",{quote(name)}:{dump(props[name], ordered=self._normalize)}" for name in names)


def _logical_properties(schema: Primitive | Array | Map | Named, props: dict[str, Any]) -> list[str]:
    """The properties of a valid logical type; those of an invalid one are ordinary properties."""
    logical = props.get("logicalType")
    if not isinstance(logical, str) or schema.type not in _LOGICAL_TYPES.get(logical, ()):
        return []
    if isinstance(schema, Fixed) and schema.size != {"uuid": 16, "duration": 12}.get(logical, schema.size):
        return []
    if logical != "decimal":
        return ["logicalType"]
    precision, scale = props.get("precision"), props.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision == 0:
        return []
    if isinstance(schema, Fixed) and precision > math.floor(math.log10(2) * (8 * schema.size - 1)):
        return []
    return ["logicalType", "precision", "scale"] if scale else ["logicalType", "precision"]
