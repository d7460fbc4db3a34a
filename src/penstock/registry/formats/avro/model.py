"""Avro's types, and the parser from JSON to them. As strict as Avro's Java library, which Confluent uses.

A name must be defined before it is used (the order of the specification). A second definition of a name is
rejected unless it equals the first: references may share their own references.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.registry.formats.schema import MAX_DEPTH, InvalidSchema

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
TYPE_NAMES: Final = PRIMITIVES | {"record", "enum", "array", "map", "union", "fixed"}

_SCHEMA_RESERVED = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
_ENUM_RESERVED = _SCHEMA_RESERVED | {"default"}
_FIELD_RESERVED = frozenset({"default", "doc", "name", "order", "type", "aliases"})

_ASCII_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_JAVA_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?)\Z")

MISSING: Final[Any] = object()
"""The default of a field without one; None is the default null."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name and its namespace, "" where there is none."""

    short: str
    space: str

    @property
    def full(self) -> str:
        return f"{self.space}.{self.short}" if self.space else self.short

    def qualified(self, space: str) -> str:
        """The name as written in a schema whose enclosing namespace is `space`."""
        if self.space and self.space == space and self.short not in TYPE_NAMES:
            return self.short
        return self.full

    @classmethod
    def of(cls, text: str, space: str) -> Name:
        around, dot, short = text.rpartition(".")
        return cls(short, around) if dot else cls(text, space)


# Types are compared by identity: recursive types form a graph, and the compatibility check stores pairs.


@dataclass(eq=False, slots=True)
class Primitive:
    type: str
    props: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Array:
    items: AvroType
    props: dict[str, Any] = field(default_factory=dict)
    type: str = "array"


@dataclass(eq=False, slots=True)
class Map:
    values: AvroType
    props: dict[str, Any] = field(default_factory=dict)
    type: str = "map"


@dataclass(eq=False, slots=True)
class Union:
    branches: list[AvroType]
    type: str = "union"


@dataclass(eq=False, slots=True)
class Fixed:
    name: Name
    size: int
    doc: str | None = None
    aliases: list[Name] = field(default_factory=list)
    props: dict[str, Any] = field(default_factory=dict)
    type: str = "fixed"


@dataclass(eq=False, slots=True)
class Enum:
    name: Name
    symbols: list[str]
    default: str | None = None
    doc: str | None = None
    aliases: list[Name] = field(default_factory=list)
    props: dict[str, Any] = field(default_factory=dict)
    type: str = "enum"


@dataclass(eq=False, slots=True)
class Field:
    name: str
    type: AvroType
    default: Any = MISSING
    doc: str | None = None
    order: str = "ascending"
    aliases: list[str] = field(default_factory=list)
    props: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Record:
    name: Name
    fields: list[Field] | None = None
    """None while the record is being parsed."""
    doc: str | None = None
    aliases: list[Name] = field(default_factory=list)
    props: dict[str, Any] = field(default_factory=dict)
    is_error: bool = False
    type: str = "record"


Named = Fixed | Enum | Record
AvroType = Primitive | Array | Map | Union | Fixed | Enum | Record


class Parser:
    """Parses JSON values to types. `names` grows with every definition: references are parsed first."""

    def __init__(self, *, strict: bool) -> None:
        self.names: dict[str, Named] = {}
        self.strict = strict
        self._redefined: list[tuple[Named, Named]] = []

    def parse(self, value: Any) -> AvroType:
        self._redefined.clear()
        result = self._type(value, "", 0)
        for again, first in self._redefined:
            if not same(again, first):
                raise InvalidSchema(f"Can't redefine: {again.name.full}")
        return result

    def _type(self, value: Any, space: str, depth: int) -> AvroType:
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"The types are nested more than {MAX_DEPTH} deep")
        if isinstance(value, str):
            if value in PRIMITIVES:
                return Primitive(value)
            return self._lookup(value, space)
        if isinstance(value, list):
            return self._union(value, space, depth)
        if not isinstance(value, dict):
            raise InvalidSchema(f"Schema not yet supported: {_shown(value)}")
        kind = value.get("type")
        if not isinstance(kind, str):
            raise InvalidSchema(f"No type: {_shown(value)}")
        if kind in PRIMITIVES:
            return Primitive(kind, _props(value, _SCHEMA_RESERVED))
        if kind in ("record", "error"):
            return self._record(value, space, depth)
        if kind == "enum":
            return self._enum(value, space)
        if kind == "fixed":
            return self._fixed(value, space)
        if kind == "array":
            if "items" not in value:
                raise InvalidSchema(f"Array has no items type: {_shown(value)}")
            return Array(self._type(value["items"], space, depth + 1), _props(value, _SCHEMA_RESERVED))
        if kind == "map":
            if "values" not in value:
                raise InvalidSchema(f"Map has no values type: {_shown(value)}")
            return Map(self._type(value["values"], space, depth + 1), _props(value, _SCHEMA_RESERVED))
        return self._lookup(kind, space)

    def _lookup(self, text: str, space: str) -> Named:
        found = self.names.get(Name.of(text, space).full) or self.names.get(text)
        if found is None:
            raise InvalidSchema(
                f'"{_shown(text)}" is not a defined name. The type must be a defined name or primitive'
            )
        return found

    def _union(self, value: list[Any], space: str, depth: int) -> Union:
        branches = [self._type(branch, space, depth + 1) for branch in value]
        seen: set[str] = set()
        for branch in branches:
            if isinstance(branch, Union):
                raise InvalidSchema(f"Nested union: {_shown(value)}")
            key = branch.name.full if isinstance(branch, Named) else branch.type
            if key in seen:
                raise InvalidSchema(f"Duplicate in union: {key}")
            seen.add(key)
        return Union(branches)

    def _record(self, value: dict[str, Any], space: str, depth: int) -> Record:
        result = Record(self._name(value, space), doc=_text(value, "doc"), is_error=value["type"] == "error")
        result.aliases = self._aliases(value, result.name)
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"Record has no fields: {_shown(value)}")
        first = self._define(result)
        # Fields may name the record itself; inside a second definition that is the first one.
        parsed = [self._field(item, result, depth) for item in fields]
        seen: set[str] = set()
        for item in parsed:
            if item.name in seen:
                raise InvalidSchema(f"Duplicate field {item.name} in record {result.name.full}")
            seen.add(item.name)
        result.fields = parsed
        result.props = _props(value, _SCHEMA_RESERVED)
        return first if isinstance(first, Record) and first.fields is not None else result

    def _field(self, value: Any, record: Record, depth: int) -> Field:
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise InvalidSchema(f"No field name: {_shown(value)}")
        name: str = value["name"]
        self._check_name(name)
        if "type" not in value:
            raise InvalidSchema(f"No field type: {_shown(value)}")
        schema = self._type(value["type"], record.name.space, depth + 1)
        default = value.get("default", MISSING)
        if isinstance(default, str) and schema.type in ("float", "double"):
            if not _JAVA_DOUBLE.match(default):
                raise InvalidSchema(
                    f"Invalid default for field {name}: {_shown(default)} not a {schema.type}"
                )
            default = float(default.rstrip("fFdD") if default[-1] in "fFdD" else default)
        order = value.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in ("ascending", "descending", "ignore"):
            raise InvalidSchema(f"Invalid order for field {name}: {_shown(order)}")
        if self.strict and default is not MISSING and not is_valid_default(schema, default):
            raise InvalidSchema(f"Invalid default for field {name}: {_shown(default)} not a {_kind(schema)}")
        return Field(
            name,
            schema,
            default,
            _text(value, "doc"),
            order.lower(),
            _alias_texts(value),
            _props(value, _FIELD_RESERVED),
        )

    def _enum(self, value: dict[str, Any], space: str) -> Named:
        name = self._name(value, space)
        symbols = value.get("symbols")
        if not isinstance(symbols, list):
            raise InvalidSchema(f"Enum has no symbols: {_shown(value)}")
        seen: set[str] = set()
        for symbol in symbols:
            self._check_name(symbol)
            if symbol in seen:
                raise InvalidSchema(f"Duplicate enum symbol: {symbol}")
            seen.add(symbol)
        default = value.get("default")
        if default is not None and (not isinstance(default, str) or default not in seen):
            raise InvalidSchema(
                f"The Enum Default: {_shown(default)} is not in the enum symbol set: {_shown(symbols)}"
            )
        result = Enum(name, symbols, default, _text(value, "doc"))
        result.aliases = self._aliases(value, name)
        result.props = _props(value, _ENUM_RESERVED)
        return self._define(result)

    def _fixed(self, value: dict[str, Any], space: str) -> Named:
        name = self._name(value, space)
        size = value.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
            raise InvalidSchema(f"Invalid or no size: {_shown(value)}")
        result = Fixed(name, size, _text(value, "doc"))
        result.aliases = self._aliases(value, name)
        result.props = _props(value, _SCHEMA_RESERVED)
        return self._define(result)

    def _define(self, result: Named) -> Named:
        """Define a name. Returns the first definition if it was defined before."""
        full = result.name.full
        first = self.names.setdefault(full, result)
        if first is not result:
            if isinstance(first, Record) and first.fields is None:
                raise InvalidSchema(f"Can't redefine: {full}")
            self._redefined.append((result, first))
        return first

    def _name(self, value: dict[str, Any], space: str) -> Name:
        text = value.get("name")
        if not isinstance(text, str):
            raise InvalidSchema(f"No name in schema: {_shown(value)}")
        own = value.get("namespace")
        name = Name.of(text, own if isinstance(own, str) else space)
        self._check_name(name.short)
        if name.full in PRIMITIVES:
            raise InvalidSchema(f"Schemas may not be named after primitives: {name.full}")
        if self.strict and name.space:
            for part in name.space.split("."):
                if not _ASCII_NAME.match(part):
                    raise InvalidSchema(
                        f'Namespace part "{_shown(part)}" is invalid: Illegal character in: {name.full}'
                    )
        return name

    def _aliases(self, value: dict[str, Any], name: Name) -> list[Name]:
        aliases = [Name.of(text, name.space) for text in _alias_texts(value)]
        for alias in aliases:
            self._check_name(alias.short)
        return aliases

    def _check_name(self, name: Any) -> None:
        if not isinstance(name, str):
            raise InvalidSchema("Null name")
        if _ASCII_NAME.match(name):
            return
        if not name:
            raise InvalidSchema("Empty name")
        if self.strict or not re.match(r"[^\W\d]\w*\Z", name):
            where = "Illegal initial character" if not re.match("[A-Za-z_]", name) else "Illegal character in"
            raise InvalidSchema(f"{where}: {_shown(name)}")


def is_valid_default(schema: AvroType, value: Any) -> bool:
    """Whether a JSON value is a valid default of the type; any branch of a union may match (Avro 1.12)."""
    if isinstance(schema, Primitive):
        return _is_valid_primitive(schema.type, value)
    if isinstance(schema, (Enum, Fixed)):
        return isinstance(value, str)
    if isinstance(schema, Array):
        return isinstance(value, list) and all(is_valid_default(schema.items, item) for item in value)
    if isinstance(schema, Map):
        return isinstance(value, dict) and all(is_valid_default(schema.values, v) for v in value.values())
    if isinstance(schema, Union):
        return any(is_valid_default(branch, value) for branch in schema.branches)
    if not isinstance(value, dict):
        return False
    if schema.fields is None:
        raise InvalidSchema(
            f"A default inside of record {schema.name.full} needs the fields of that record itself"
        )
    # An omitted field takes its own default, which was validated with the field.
    return all(
        is_valid_default(f.type, value[f.name]) if f.name in value else f.default is not MISSING
        for f in schema.fields
    )


def _is_valid_primitive(kind: str, value: Any) -> bool:
    if kind in ("string", "bytes"):
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "null":
        return value is None
    if isinstance(value, bool):
        return False
    if kind == "int":
        return isinstance(value, int) and -(2**31) <= value < 2**31
    if kind == "long":
        return isinstance(value, int) and -(2**63) <= value < 2**63
    return isinstance(value, (int, float))


def same(a: AvroType, b: AvroType) -> bool:
    """Whether two types are equal, ignoring aliases and docs."""
    seen: set[tuple[int, int]] = set()
    todo: list[tuple[AvroType, AvroType]] = [(a, b)]
    while todo:
        x, y = todo.pop()
        if x is y or (id(x), id(y)) in seen:
            continue
        seen.add((id(x), id(y)))
        if x.type != y.type:
            return False
        if isinstance(x, Union) and isinstance(y, Union):
            if len(x.branches) != len(y.branches):
                return False
            todo.extend(zip(x.branches, y.branches))
            continue
        if isinstance(x, Union) or isinstance(y, Union) or x.props != y.props:
            return False
        if isinstance(x, Array) and isinstance(y, Array):
            todo.append((x.items, y.items))
        elif isinstance(x, Map) and isinstance(y, Map):
            todo.append((x.values, y.values))
        elif isinstance(x, Named) and isinstance(y, Named):
            if not _same_named(x, y):
                return False
            if isinstance(x, Record) and isinstance(y, Record):
                todo.extend((f.type, g.type) for f, g in zip(x.fields or (), y.fields or ()))
    return True


def _same_named(x: Named, y: Named) -> bool:
    if x.name != y.name:
        return False
    if isinstance(x, Fixed) and isinstance(y, Fixed):
        return x.size == y.size
    if isinstance(x, Enum) and isinstance(y, Enum):
        return x.symbols == y.symbols
    xs, ys = x.fields or [], y.fields or []  # type: ignore[union-attr]
    return len(xs) == len(ys) and all(
        f.name == g.name and _same_default(f.default, g.default) and f.order == g.order and f.props == g.props
        for f, g in zip(xs, ys)
    )


def _same_default(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and a == b)


def _props(value: dict[str, Any], reserved: frozenset[str]) -> dict[str, Any]:
    return {key: prop for key, prop in value.items() if key not in reserved}


def _text(value: dict[str, Any], key: str) -> str | None:
    text = value.get(key)
    return text if isinstance(text, str) else None


def _alias_texts(value: dict[str, Any]) -> list[str]:
    aliases = value.get("aliases")
    if aliases is None and "aliases" not in value:
        return []
    if not isinstance(aliases, list):
        raise InvalidSchema(f"aliases not an array: {_shown(aliases)}")
    for alias in aliases:
        if not isinstance(alias, str):
            raise InvalidSchema(f"alias not a string: {_shown(alias)}")
    return list(dict.fromkeys(aliases))


def _kind(schema: AvroType) -> str:
    if isinstance(schema, Union):
        return "[" + ",".join(_kind(branch) for branch in schema.branches[:20]) + "]"
    return schema.name.full if isinstance(schema, Named) else schema.type


def _shown(value: Any) -> str:
    """A value in an error message, truncated: some are megabytes."""
    from penstock.registry.formats.json_text import dump

    text = value if isinstance(value, str) else dump(value)
    return text if len(text) <= 200 else text[:200] + "…"
