"""A JSON Schema as a graph of typed nodes, one per kind of constraint: what the compatibility rules compare.

Keywords are grouped as Everit's loader groups them, whose model Confluent's rules are written for: a schema
with several groups (an enum and a type, keywords of two types) is an allOf of its groups, a list of types an
anyOf. The drafts' spellings of the same thing (`definitions`, `dependentRequired`, `prefixItems`, boolean
`exclusiveMaximum`) become one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012

from penstock.registry.formats.schema import MAX_DEPTH, InvalidSchema

DRAFTS = {
    "http://json-schema.org/draft-04/schema": 4,
    "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "https://json-schema.org/draft/2020-12/schema": 2020,
}
SPECIFICATIONS: dict[int, Any] = {4: DRAFT4, 6: DRAFT6, 7: DRAFT7, 2019: DRAFT201909, 2020: DRAFT202012}

_STRING = ("minLength", "maxLength", "pattern")
_NUMBER = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_OBJECT = (
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "minProperties",
    "maxProperties",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "propertyNames",
    "unevaluatedProperties",
)
_ARRAY = (
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedItems",
)


def draft_of(value: Any) -> int:
    """The draft that `$schema` names; 7 for an unknown one, as in Confluent's registry."""
    declared = value.get("$schema") if isinstance(value, dict) else None
    if not isinstance(declared, str):
        return 7
    url = declared.rstrip("#")
    for known, draft in DRAFTS.items():
        if url.partition("://")[2] == known.partition("://")[2]:
            return draft
    return 7


@dataclass(eq=False, slots=True)
class Node:
    """One constraint. Nodes are compared by identity: references make a graph of them."""

    default: bool = False
    """Whether the schema has a default value."""


@dataclass(eq=False, slots=True)
class Anything(Node):
    pass


@dataclass(eq=False, slots=True)
class Nothing(Node):
    pass


@dataclass(eq=False, slots=True)
class Simple(Node):
    """null or boolean."""

    type: str = ""


@dataclass(eq=False, slots=True)
class Text(Node):
    typed: bool = False
    limits: dict[str, Any] = field(default_factory=dict)
    pattern: str | None = None
    encoding: str | None = None
    """`contentEncoding`: does not affect compatibility, only the meaning of the text."""


@dataclass(eq=False, slots=True)
class Number(Node):
    typed: bool = False
    integer: bool = False
    limits: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Object(Node):
    typed: bool = False
    properties: dict[str, Node] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    patterns: dict[str, Node] = field(default_factory=dict)
    additional: Node | None = None
    """None: anything may be added; a `Nothing` node: nothing may."""
    unevaluated: Node | None = None
    names: Node | None = None
    limits: dict[str, Any] = field(default_factory=dict)
    needs: dict[str, frozenset[str]] = field(default_factory=dict)
    dependent: dict[str, Node] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Array(Node):
    typed: bool = False
    every: Node | None = None
    items: list[Node] = field(default_factory=list)
    additional: Node | None = None
    unevaluated: Node | None = None
    contains: Node | None = None
    unique: bool = False
    limits: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Values(Node):
    """enum or const: the allowed values, by a key that is equal for equal JSON values."""

    keys: frozenset[str] = frozenset()
    const: bool = False


@dataclass(eq=False, slots=True)
class Combined(Node):
    criterion: str = "allOf"
    parts: list[Node] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    """A text for each part; equal schemas have equal texts. Duplicates count once."""


@dataclass(eq=False, slots=True)
class Not(Node):
    inner: Node = field(default_factory=Anything)


@dataclass(eq=False, slots=True)
class Conditional(Node):
    source: str = ""


@dataclass(eq=False, slots=True)
class Ref(Node):
    uri: str = ""
    target: Node | None = None


class Loader:
    """Converts a schema value to nodes; each place of the text becomes one node, however often it is
    referenced.
    """

    def __init__(self, registry: Registry[Any], draft: int) -> None:
        self._registry = registry
        self._draft = draft
        self._known: dict[int, Node] = {}
        self._keep: list[Any] = []
        self._unresolved: list[tuple[Ref, Any, int]] = []

    def load(self, value: Any, resolver: Any) -> Node:
        root = self._node(value, resolver, self._draft, 0)
        while self._unresolved:
            ref, where, draft = self._unresolved.pop()
            ref.target = self._target(ref.uri, where, draft)
        return root

    def _target(self, uri: str, resolver: Any, draft: int) -> Node:
        contents, where = _lookup(uri, resolver)
        if not isinstance(contents, (dict, bool)):
            raise InvalidSchema(
                f"The reference {uri[:200]!r} leads to {type(contents).__name__}, which is not a schema"
            )
        own = contents.get("$schema") if isinstance(contents, dict) else None
        return self._node(contents, where, draft_of(contents) if own else draft, 0)

    def _node(self, value: Any, resolver: Any, draft: int, depth: int) -> Node:
        if isinstance(value, bool):
            return Anything() if value else Nothing()
        if not isinstance(value, dict):
            raise InvalidSchema(f"A schema must be an object or a boolean, not {type(value).__name__}")
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"The schemas are nested more than {MAX_DEPTH} deep")
        known = self._known.get(id(value))
        if known is not None:
            return known
        if depth:
            resolver = _inside(resolver, value, draft)
        parts = list(_Parts(self, value, resolver, draft, depth + 1).all())
        if not parts:
            node: Node = Anything()
        elif len(parts) == 1:
            node = parts[0]
        else:
            node = Combined(criterion="allOf", parts=parts, sources=[str(i) for i in range(len(parts))])
        node.default = "default" in value
        self._known[id(value)] = node
        self._keep.append(value)
        return node

    def ref(self, uri: Any, resolver: Any, draft: int) -> Ref:
        if not isinstance(uri, str):
            raise InvalidSchema("A $ref must be a string")
        node = Ref(uri=uri)
        self._unresolved.append((node, resolver, draft))
        return node


class _Parts:
    """The groups of keywords of one schema object."""

    def __init__(self, loader: Loader, value: dict[str, Any], resolver: Any, draft: int, depth: int) -> None:
        self._loader = loader
        self._value = value
        self._resolver = resolver
        self._draft = draft
        self._depth = depth

    def all(self) -> Iterator[Node]:
        value, draft = self._value, self._draft
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if keyword in value and (keyword == "$ref" or draft >= 2019):
                yield self._loader.ref(value[keyword], self._resolver, draft)
                if draft < 2019:
                    return  # siblings of a $ref are ignored
        if "enum" in value:
            yield Values(keys=frozenset(key_of(item) for item in _list(value, "enum")))
        if "const" in value and draft >= 6:
            yield Values(keys=frozenset({key_of(value["const"])}), const=True)
        for criterion in ("allOf", "anyOf", "oneOf"):
            if criterion in value:
                subschemas = _list(value, criterion)
                yield Combined(
                    criterion=criterion,
                    parts=[self._sub(item) for item in subschemas],
                    sources=[key_of(item) for item in subschemas],
                )
        if "not" in value:
            yield Not(inner=self._sub(value["not"]))
        if "if" in value and draft >= 7:
            for keyword in ("if", "then", "else"):
                if keyword in value:
                    self._sub(value[keyword])
            yield Conditional(source=key_of([value.get(k) for k in ("if", "then", "else")]))
        yield from self._typed()

    def _typed(self) -> Iterator[Node]:
        types = self._value.get("type")
        if isinstance(types, str):
            yield self._of_type(types)
        elif isinstance(types, list):
            parts = [self._of_type(kind) for kind in types]
            if len(parts) == 1:
                yield parts[0]
            else:
                yield Combined(criterion="anyOf", parts=parts, sources=[str(kind) for kind in types])
        else:
            has = self._value.keys()
            if not has.isdisjoint(_STRING):
                yield self._text(False)
            if not has.isdisjoint(_NUMBER):
                yield self._number(False, False)
            if not has.isdisjoint(_OBJECT):
                yield self._object(False)
            if not has.isdisjoint(_ARRAY):
                yield self._array(False)

    def _of_type(self, kind: Any) -> Node:
        if kind == "string":
            return self._text(True)
        if kind in ("number", "integer"):
            return self._number(True, kind == "integer")
        if kind == "object":
            return self._object(True)
        if kind == "array":
            return self._array(True)
        if kind in ("null", "boolean"):
            return Simple(type=kind)
        raise InvalidSchema(f"{str(kind)[:100]!r} is not a type of JSON Schema")

    def _sub(self, value: Any) -> Node:
        return self._loader._node(value, self._resolver, self._draft, self._depth)

    def _optional(self, keyword: str) -> Node | None:
        return self._sub(self._value[keyword]) if keyword in self._value else None

    def _limits(self, *keywords: str) -> dict[str, Any]:
        return {k: self._value[k] for k in keywords if _is_number(self._value.get(k))}

    def _text(self, typed: bool) -> Text:
        pattern = self._value.get("pattern")
        encoding = self._value.get("contentEncoding")
        return Text(
            typed=typed,
            limits=self._limits("maxLength", "minLength"),
            pattern=pattern if isinstance(pattern, str) else None,
            encoding=encoding.lower() if isinstance(encoding, str) else None,
        )

    def _number(self, typed: bool, integer: bool) -> Number:
        limits = self._limits("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf")
        for limit, exclusive in (("maximum", "exclusiveMaximum"), ("minimum", "exclusiveMinimum")):
            if self._value.get(exclusive) is True and limit in limits:  # draft 4
                limits[exclusive] = limits.pop(limit)
        return Number(typed=typed, integer=integer, limits=limits)

    def _object(self, typed: bool) -> Object:
        value = self._value
        needs: dict[str, frozenset[str]] = {}
        dependent: dict[str, Node] = {}
        for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
            for name, needed in _dict(value, keyword).items():
                if isinstance(needed, list):
                    needs[name] = frozenset(map(str, needed))
                elif isinstance(needed, str):
                    needs[name] = frozenset({needed})
                else:
                    dependent[name] = self._sub(needed)
        required = value.get("required")
        return Object(
            typed=typed,
            properties={name: self._sub(item) for name, item in _dict(value, "properties").items()},
            required=frozenset(map(str, required)) if isinstance(required, list) else frozenset(),
            patterns={name: self._sub(item) for name, item in _dict(value, "patternProperties").items()},
            additional=_open(self._optional("additionalProperties")),
            unevaluated=self._optional("unevaluatedProperties") if self._draft >= 2019 else None,
            names=self._optional("propertyNames") if self._draft >= 6 else None,
            limits=self._limits("maxProperties", "minProperties"),
            needs=needs,
            dependent=dependent,
        )

    def _array(self, typed: bool) -> Array:
        value = self._value
        node = Array(
            typed=typed,
            unique=value.get("uniqueItems") is True,
            limits=self._limits("maxItems", "minItems"),
            contains=self._optional("contains") if self._draft >= 6 else None,
            unevaluated=self._optional("unevaluatedItems") if self._draft >= 2019 else None,
        )
        if node.contains is not None and self._draft >= 2019:
            node.limits |= {"minContains": 1} | self._limits("maxContains", "minContains")
        items = value.get("items")
        if self._draft >= 2020:
            node.items = (
                [self._sub(item) for item in _list(value, "prefixItems")] if "prefixItems" in value else []
            )
            rest = self._optional("items")
            if isinstance(rest, Nothing) or (rest is not None and node.items):
                node.additional = _open(rest)
            else:
                node.every = _open(rest)
        elif isinstance(items, list):
            node.items = [self._sub(item) for item in items]
        else:
            node.every = _open(self._optional("items"))
        if self._draft < 2020 and not isinstance(items, (dict, bool)):
            node.additional = _open(self._optional("additionalItems"))
        return node


def _open(node: Node | None) -> Node | None:
    """A schema that accepts anything counts as none."""
    return None if isinstance(node, Anything) else node


def _inside(resolver: Any, value: dict[str, Any], draft: int) -> Any:
    """References inside a schema with its own id are relative to that."""
    name = value.get("id" if draft == 4 else "$id")
    if not isinstance(name, str) or name.startswith("#"):
        return resolver
    try:
        return resolver.in_subresource(SPECIFICATIONS[draft].create_resource(value))
    except ValueError as error:
        raise InvalidSchema(f"The id {name[:200]!r} is not a URI: {error}") from None


def _lookup(uri: str, resolver: Any) -> tuple[Any, Any]:
    """The target of a reference. `#/$defs/X` also finds `definitions`, as in Confluent's registry."""
    for spelling in (uri, uri.replace("#/$defs/", "#/definitions/")):
        try:
            found = resolver.lookup(spelling)
            return found.contents, found.resolver
        except Unresolvable:
            continue
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise InvalidSchema(f"The reference {uri[:200]!r} cannot be followed: {error}") from None
    raise InvalidSchema(
        f"The reference {uri[:200]!r} leads nowhere: it is neither in the schema nor among its references"
    )


def key_of(value: Any) -> str:
    """A text that is equal for equal JSON values: 1 equals 1.0, and the order of keys does not matter."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return "'" + value + "'"
    if isinstance(value, dict):
        return "{" + ",".join(f"'{k}':{key_of(v)}" for k, v in sorted(value.items())) + "}"
    return "[" + ",".join(map(key_of, value)) + "]"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _list(value: dict[str, Any], keyword: str) -> list[Any]:
    found = value[keyword]
    if not isinstance(found, list):
        raise InvalidSchema(f"{keyword} must be an array")
    return found


def _dict(value: dict[str, Any], keyword: str) -> dict[str, Any]:
    found = value.get(keyword, {})
    if not isinstance(found, dict):
        raise InvalidSchema(f"{keyword} must be an object")
    return found
