"""Converts Avro values to JSON and back.

JSON values are plain where they are clear: a union with null is null or the value itself. In other unions a
value is wrapped with the name of its branch, as in Avro's own JSON encoding: {"string": "x"}. Input may have
either form. Bytes are strings of characters up to U+00FF, as in that encoding; times are ISO 8601, decimals
strings of digits.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
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
from penstock.registry.formats.avro.parsed import AvroSchema
from penstock.registry.serdes.avro_bytes import fast_schema, read
from penstock.registry.serdes.avro_logical import from_json, to_json
from penstock.registry.serdes.values import Unencodable, shown

Convert = Callable[[Any], Any]
_RANGES = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}


class AvroJson:
    """Values of one schema, from and to JSON."""

    def __init__(self, schema: AvroSchema) -> None:
        self._fast = fast_schema(schema)
        self._schema = schema.raw
        self._name = schema.name or ""
        self._shown: dict[int, Convert] = {}
        self._taken: dict[int, Convert] = {}

    def decode(self, data: bytes | memoryview) -> Any:
        return self._show(self._schema)(read(data, self._fast, named=True, name=self._name))

    def encode(self, value: Any) -> bytes:
        import fastavro

        taken = self._take(self._schema)(value)
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, self._fast, taken)
        except (ValueError, TypeError, LookupError, OverflowError, AttributeError) as error:
            raise Unencodable(str(error)[:300]) from None
        return out.getvalue()

    # From Avro to JSON

    def _show(self, schema: AvroType) -> Convert:
        known = self._shown.get(id(schema))
        if known is None:
            # Recursive types refer to this entry while they are being converted.
            self._shown[id(schema)] = lambda value: self._shown[id(schema)](value)
            known = self._shown[id(schema)] = self._make_show(schema)
        return known

    def _make_show(self, schema: AvroType) -> Convert:
        if isinstance(schema, Record):
            fields = [(field.name, self._show(field.type)) for field in schema.fields or ()]
            return lambda value: {name: show(value[name]) for name, show in fields}
        if isinstance(schema, Array):
            items = self._show(schema.items)
            return lambda value: [items(item) for item in value]
        if isinstance(schema, Map):
            values = self._show(schema.values)
            return lambda value: {name: values(item) for name, item in value.items()}
        if isinstance(schema, Union):
            return self._show_union(schema)
        logical = to_json(schema)
        if logical is not None:
            return logical
        if schema.type in ("bytes", "fixed"):
            return lambda value: value.decode("iso-8859-1")
        if schema.type in ("float", "double"):
            return lambda value: value if math.isfinite(value) else str(value)
        return lambda value: value

    def _show_union(self, schema: Union) -> Convert:
        branches = [branch for branch in schema.branches if branch.type != "null"]
        shows = {branch_name(branch): self._show(branch) for branch in branches}
        if len(branches) == 1:
            (only,) = shows.values()
            return lambda value: None if value is None else only(value[1] if type(value) is tuple else value)
        plain = {branch.type: branch_name(branch) for branch in branches if not isinstance(branch, Named)}

        def show(value: Any) -> Any:
            if value is None:
                return None
            if type(value) is tuple:
                name, value = value
            else:
                name = plain[next(kind for kind in _KINDS[type(value)] if kind in plain)]
            return {name: shows[name](value)}

        return show

    # From JSON to what fastavro writes

    def _take(self, schema: AvroType) -> Convert:
        known = self._taken.get(id(schema))
        if known is None:
            self._taken[id(schema)] = lambda value: self._taken[id(schema)](value)
            known = self._taken[id(schema)] = self._make_take(schema)
        return known

    def _make_take(self, schema: AvroType) -> Convert:
        if isinstance(schema, Record):
            return self._take_record(schema)
        if isinstance(schema, Array):
            items = self._take(schema.items)
            return lambda value: [
                _inside(f"[{at}]", items, item) for at, item in enumerate(_of(list, "an array", value))
            ]
        if isinstance(schema, Map):
            values = self._take(schema.values)
            return lambda value: {
                name: _inside(name, values, item) for name, item in _of(dict, "an object", value).items()
            }
        if isinstance(schema, Union):
            return self._take_union(schema)
        if isinstance(schema, Enum):
            return _enum(schema)
        return _primitive(schema)

    def _take_record(self, schema: Record) -> Convert:
        fields = [(field, self._take(field.type)) for field in schema.fields or ()]
        known = {field.name for field, _ in fields}

        def take(value: Any) -> Any:
            _of(dict, f"an object with the fields of {schema.name.full}", value)
            if unknown := value.keys() - known:
                raise Unencodable(f"{schema.name.full} has no field '{min(unknown)}'")
            taken = {}
            for field, convert in fields:
                if field.name in value:
                    taken[field.name] = _inside(field.name, convert, value[field.name])
                elif field.default is MISSING:
                    raise Unencodable("the field is missing, and has no default", field.name)
                else:
                    default = field.default
                    if isinstance(field.type, Union):  # a default belongs to the first branch that accepts it
                        taken[field.name] = _inside(field.name, _default_of(self, field.type), default)
                    else:
                        taken[field.name] = _inside(field.name, convert, default)
            return taken

        return take

    def _take_union(self, schema: Union) -> Convert:
        takes = [(branch_name(branch), branch.type, self._take(branch)) for branch in schema.branches]
        several = len([branch for branch in schema.branches if branch.type != "null"]) > 1

        def tagged(value: Any) -> Any:
            if isinstance(value, dict) and len(value) == 1:
                (name, inner), *_ = value.items()
                for branch, _, convert in takes:
                    if name == branch or name == branch.rpartition(".")[2]:
                        return (branch, convert(inner))
            raise Unencodable("no branch is named")

        def plain(value: Any) -> Any:
            reasons = []
            for branch, kind, convert in takes:
                if (kind == "null") != (value is None):
                    continue
                try:
                    taken = convert(value)
                    return None if kind == "null" else (branch, taken)
                except Unencodable as error:
                    reasons.append((branch, error))
            if len(reasons) == 1:
                raise reasons[0][1]
            names = " or ".join(branch for branch, _, _ in takes)
            raise Unencodable(f"{shown(value)} is not of type {names}")

        # The printed form is tried first, so that it is read back unchanged.
        ways = (tagged, plain) if several else (plain, tagged)

        def take(value: Any) -> Any:
            try:
                return ways[0](value)
            except Unencodable as first:
                try:
                    return ways[1](value)
                except Unencodable as second:
                    raise (second if several else first) from None

        return take


def _default_of(serde: AvroJson, schema: Union) -> Convert:
    def take(value: Any) -> Any:
        for branch in schema.branches:
            try:
                taken = serde._take(branch)(value)
            except Unencodable:
                continue
            return None if branch.type == "null" else (branch_name(branch), taken)
        raise Unencodable(f"the default {shown(value)} fits no branch")

    return take


def branch_name(schema: AvroType) -> str:
    return schema.name.full if isinstance(schema, Named) else schema.type


_KINDS: dict[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("long", "int"),
    float: ("double", "float"),
    str: ("string",),
    bytes: ("bytes",),
    list: ("array",),
    dict: ("map",),
}


def _inside(place: str, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except Unencodable as error:
        raise Unencodable(error.reason, place, *error.path) from None


def _of(kind: type, what: str, value: Any) -> Any:
    if not isinstance(value, kind):
        raise Unencodable(f"{shown(value)} is not {what}")
    return value


def _enum(schema: Enum) -> Convert:
    symbols = frozenset(schema.symbols)

    def take(value: Any) -> Any:
        if value not in symbols if isinstance(value, str) else True:
            raise Unencodable(f"{shown(value)} is not a symbol of {schema.name.full}")
        return value

    return take


def _primitive(schema: Primitive | Fixed) -> Convert:
    logical = from_json(schema)
    kind = schema.type
    size = schema.size if isinstance(schema, Fixed) else None

    def take(value: Any) -> Any:
        if logical is not None:
            value = logical(value)
        if kind == "null" and value is None:
            return None
        if kind == "boolean" and isinstance(value, bool):
            return value
        if kind in _RANGES and isinstance(value, int) and not isinstance(value, bool):
            least, most = _RANGES[kind]
            if least <= value <= most:
                return value
            raise Unencodable(f"{value} does not fit into {kind}")
        if kind in ("float", "double") and not isinstance(value, bool):
            if isinstance(value, (int, float)):
                return float(value)
            if value in ("nan", "inf", "-inf", "NaN", "Infinity", "-Infinity"):
                return float(value)
        if kind == "string" and isinstance(value, str):
            return value
        if kind in ("bytes", "fixed"):
            if isinstance(value, str):
                try:
                    value = value.encode("iso-8859-1")
                except UnicodeEncodeError:
                    raise Unencodable(
                        f"{shown(value)} has characters beyond U+00FF: these are not bytes"
                    ) from None
            if isinstance(value, bytes) and size in (None, len(value)):
                return value
            if isinstance(value, bytes):
                raise Unencodable(f"{len(value)} bytes, where {size} are wanted")
        raise Unencodable(f"{shown(value)} is not of type {kind}")

    return take
