"""Which changes of a JSON Schema keep old data valid: the rules of Confluent's registry over typed nodes.

A property may be added where the old schema was closed to it, and removed where the new one is open: the
content models decide. Where Confluent's rules look away (required properties that are not listed,
patternProperties, propertyNames, contains, if/then/else, a type added to bare keywords) this is stricter:
data that was valid would no longer be. As there, a oneOf that gets more branches is taken to stay exclusive.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

from penstock.registry.formats.json_schema_messages import COMPATIBLE, COMPATIBLE_LENIENT, sentence
from penstock.registry.formats.json_schema_model import (
    Anything,
    Array,
    Combined,
    Conditional,
    Node,
    Not,
    Nothing,
    Number,
    Object,
    Ref,
    Simple,
    Text,
    Values,
)
from penstock.registry.formats.json_schema_patterns import matches
from penstock.registry.formats.schema import Words

MAX_COMPARISONS = 100_000
"""Pairs of schemas looked at before a check gives up: beyond any real schema, and a few seconds of work."""

Path = tuple[str, ...]


class Difference(NamedTuple):
    kind: str
    path: Path

    def sentence(self, words: Words) -> str:
        return sentence(self.kind, "#/" + "/".join(self.path), words)


def incompatibilities(old: Node, new: Node, *, lenient: bool = False) -> list[Difference]:
    """What in the new schema refuses data that the old one took."""
    checker = _Checker(COMPATIBLE_LENIENT if lenient else COMPATIBLE)
    found = checker.compare(old, new)
    return list(dict.fromkeys(d for d in found if d.kind not in checker.compatible))


class _Checker:
    def __init__(self, compatible: frozenset[str]) -> None:
        self.compatible = compatible
        self._known: dict[tuple[int, int], list[Difference] | None] = {}
        self._order: list[tuple[int, int]] = []

    def compare(self, old: Node | None, new: Node | None, path: Path = ()) -> list[Difference]:
        """The differences of a pair, at `path`. None on one side: a schema was added or taken away."""
        if old is None and new is None:
            return []
        if old is None:
            return [Difference("SCHEMA_ADDED", path)]
        if new is None:
            return [Difference("SCHEMA_REMOVED", path)]
        old, new = _followed(old), _followed(new)
        pair = (id(old), id(new))
        if pair not in self._known:
            if len(self._order) >= MAX_COMPARISONS:
                return [Difference("TOO_COMPLEX", path)]
            self._known[pair] = None
            mark = len(self._order)
            self._order.append(pair)
            found = list(self._compare(old, new))
            if not self.is_compatible(found):
                # What was compatible on the belief that this pair is may not be: it is looked at again.
                for later in self._order[mark + 1 :]:
                    if later in self._known and self.is_compatible(self._known[later] or []):
                        del self._known[later]
            self._known[pair] = found
        # A pair that is being compared further up counts as compatible here: the answer is found there.
        return [Difference(kind, (*path, *below)) for kind, below in self._known[pair] or ()]

    def is_compatible(self, found: list[Difference]) -> bool:
        return all(difference.kind in self.compatible for difference in found)

    def _compare(self, old: Node, new: Node) -> list[Difference]:
        if old is new:
            return []
        combined = self._one_combined(old, new)
        if combined is not None:
            return combined
        if type(old) is not type(new) or (
            isinstance(old, Simple) and isinstance(new, Simple) and old.type != new.type
        ):
            if isinstance(old, Nothing) or isinstance(new, Anything):
                return []
            return [Difference("TYPE_CHANGED", ())]
        if isinstance(old, Text) and isinstance(new, Text):
            return self._text(old, new)
        if isinstance(old, Number) and isinstance(new, Number):
            return self._number(old, new)
        if isinstance(old, Values) and isinstance(new, Values):
            return self._values(old, new)
        if isinstance(old, Combined) and isinstance(new, Combined):
            return self._combined(old, new)
        if isinstance(old, Not) and isinstance(new, Not):
            # What must not match may only shrink.
            shrunk = self.is_compatible(self.compare(new.inner, old.inner))
            return [Difference("NOT_TYPE_NARROWED" if shrunk else "NOT_TYPE_EXTENDED", ("not",))]
        if isinstance(old, Conditional) and isinstance(new, Conditional):
            return [] if old.source == new.source else [Difference("CONDITION_CHANGED", ("if",))]
        if isinstance(old, Object) and isinstance(new, Object):
            return self._object(old, new)
        if isinstance(old, Array) and isinstance(new, Array):
            return self._array(old, new)
        return []

    def _one_combined(self, old: Node, new: Node) -> list[Difference] | None:
        """A plain schema beside a combined one; None when that alone does not decide."""
        if isinstance(new, Combined) and not isinstance(old, Combined):
            alone, kind = len(new.parts) == 1, "SUM_TYPE_EXTENDED"
            if not alone and new.criterion == "allOf":
                return None
            candidates = [(old, part) for part in new.parts]
        elif isinstance(old, Combined) and not isinstance(new, Combined):
            alone, kind = len(old.parts) == 1, "PRODUCT_TYPE_NARROWED"
            if not alone and old.criterion != "allOf":
                return None
            candidates = [(part, new) for part in old.parts]
        else:
            return None
        for was, becomes in candidates:
            found = self.compare(was, becomes)
            if self.is_compatible(found):
                return found if alone else [*found, Difference(kind, ())]
        return None

    # Each kind of node.

    def _text(self, old: Text, new: Text) -> list[Difference]:
        found = _limits(old.limits, new.limits, "maxLength", "minLength") + _typed(old.typed, new.typed)
        if old.pattern is None and new.pattern is not None:
            found.append(Difference("PATTERN_ADDED", ("pattern",)))
        elif old.pattern is not None and new.pattern is None:
            found.append(Difference("PATTERN_REMOVED", ("pattern",)))
        elif old.pattern != new.pattern:
            found.append(Difference("PATTERN_CHANGED", ("pattern",)))
        return found

    def _number(self, old: Number, new: Number) -> list[Difference]:
        found = _limits(old.limits, new.limits, "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum")
        found += _multiple_of(old.limits.get("multipleOf"), new.limits.get("multipleOf"))
        if old.integer != new.integer:
            found.append(Difference("TYPE_EXTENDED" if old.integer else "TYPE_NARROWED", ()))
        return found + _typed(old.typed, new.typed)

    def _values(self, old: Values, new: Values) -> list[Difference]:
        if old.keys == new.keys:
            return []
        if new.keys >= old.keys:
            kind = "ENUM_ARRAY_EXTENDED"
        elif old.keys >= new.keys:
            kind = "ENUM_ARRAY_NARROWED"
        else:
            kind = "ENUM_ARRAY_CHANGED"
        return [Difference(kind, ("const" if old.const and new.const else "enum",))]

    def _combined(self, old: Combined, new: Combined) -> list[Difference]:
        found: list[Difference] = []
        if old.criterion != new.criterion:
            single = len(old.parts) == 1, len(new.parts) == 1
            if (
                new.criterion == "anyOf"
                or all(single)
                or (single[0] and new.criterion == "oneOf")
                or (single[1] and old.criterion == "allOf")
            ):
                found.append(Difference("COMBINED_TYPE_EXTENDED", ()))
            else:
                return [Difference("COMBINED_TYPE_CHANGED", ())]
        before = list(dict(zip(old.sources, old.parts)).values())
        after = list(dict(zip(new.sources, new.parts)).values())
        if len(before) < len(after):
            kind = "PRODUCT_TYPE_EXTENDED" if new.criterion == "allOf" else "SUM_TYPE_EXTENDED"
            found.append(Difference(kind, ()))
        elif len(before) > len(after):
            kind = "PRODUCT_TYPE_NARROWED" if old.criterion == "allOf" else "SUM_TYPE_NARROWED"
            found.append(Difference(kind, ()))
        edges: list[dict[int, list[Difference]]] = []
        for i, was in enumerate(before):
            edges.append({})
            for j, becomes in enumerate(after):
                below = self.compare(was, becomes, (old.criterion, str(i)))
                if self.is_compatible(below):
                    edges[i][j] = below
        matching = _matching(edges)
        for i, j in matching.items():
            found += edges[i][j]
        if len(matching) < min(len(before), len(after)):
            found.append(Difference("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ()))
        return found

    def _object(self, old: Object, new: Object) -> list[Difference]:
        found = self._required(old, new)
        for name in {**old.properties, **new.properties}:
            here = ("properties", name)
            was, becomes = old.properties.get(name), new.properties.get(name)
            if becomes is None:
                assert was is not None
                found += self._property_removed(was, name, new, here)
            elif was is None:
                found += self._property_added(becomes, name, old, new, here)
            else:
                found += self.compare(was, becomes, here)
        found += self._patterns(old, new)
        found += self._dependencies(old, new)
        found += self._rest(old.additional, new.additional, "additionalProperties", "ADDITIONAL_PROPERTIES")
        found += self._unevaluated(old.unevaluated, new.unevaluated, "Properties")
        if new.names is not None:
            found += self.compare(old.names, new.names, ("propertyNames",))
        found += _limits(old.limits, new.limits, "maxProperties", "minProperties")
        return found + _typed(old.typed, new.typed)

    def _required(self, old: Object, new: Object) -> list[Difference]:
        found = []
        for name in sorted(old.required | new.required):
            listed = name in old.properties and name in new.properties
            if name in old.required and name in new.required:
                continue
            if name not in new.required:
                if listed:
                    found.append(Difference("REQUIRED_ATTRIBUTE_REMOVED", ("required", name)))
            elif listed or name not in new.properties:
                # Required and new in `properties` is told as a property that was added.
                has_default = name in new.properties and new.properties[name].default
                kind = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED" if has_default else "REQUIRED_ATTRIBUTE_ADDED"
                found.append(Difference(kind, ("required", name)))
        return found

    def _property_removed(self, was: Node, name: str, new: Object, path: Path) -> list[Difference]:
        if _is_open(new):
            return [Difference("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", path)]
        covering = _covering(new, name)
        if covering is not None:
            found = self.compare(was, covering, path)
            covers = "IS" if self.is_compatible(found) else "NOT"
            return [
                *found,
                Difference(f"PROPERTY_REMOVED_{covers}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path),
            ]
        if isinstance(_followed(was), Nothing):
            return [Difference("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)]
        return [Difference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)]

    def _property_added(
        self, becomes: Node, name: str, old: Object, new: Object, path: Path
    ) -> list[Difference]:
        is_required = name in new.required and name not in old.required
        if _is_open(old):
            if isinstance(_followed(becomes), Anything) and not is_required:
                kind = "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL"
            elif is_required:
                middle = "_WITH_DEFAULT" if becomes.default else ""
                kind = f"REQUIRED_PROPERTY{middle}_ADDED_TO_OPEN_CONTENT_MODEL"
            else:
                kind = "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
            return [Difference(kind, path)]
        found: list[Difference] = []
        covering = _covering(old, name)
        if covering is not None:
            found += self.compare(covering, becomes, path)
            covers = "IS" if self.is_compatible(found) else "NOT"
            found.append(Difference(f"PROPERTY_ADDED_{covers}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path))
        if is_required:
            middle = "_WITH_DEFAULT" if becomes.default else ""
            found.append(Difference(f"REQUIRED_PROPERTY{middle}_ADDED_TO_UNOPEN_CONTENT_MODEL", path))
        else:
            found.append(Difference("OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path))
        return found

    def _patterns(self, old: Object, new: Object) -> list[Difference]:
        found: list[Difference] = []
        for pattern, becomes in new.patterns.items():
            here = ("patternProperties", pattern)
            if pattern in old.patterns:
                found += self.compare(old.patterns[pattern], becomes, here)
            elif isinstance(old.additional, Nothing) and not old.patterns:
                # Only the listed properties could have been there.
                for name, was in old.properties.items():
                    if matches(pattern, name) is not False:
                        found += self.compare(was, becomes, here)
            elif not isinstance(_followed(becomes), Anything):
                found.append(Difference("PATTERN_PROPERTY_ADDED", here))
        for pattern, was in old.patterns.items():
            if pattern not in new.patterns and new.additional is not None:
                found += self.compare(was, new.additional, ("patternProperties", pattern))
        return found

    def _dependencies(self, old: Object, new: Object) -> list[Difference]:
        found: list[Difference] = []
        for name in {**old.needs, **new.needs}:
            here = ("dependencies", name)
            was, becomes = old.needs.get(name), new.needs.get(name)
            if becomes is None:
                found.append(Difference("DEPENDENCY_ARRAY_REMOVED", here))
            elif was is None:
                found.append(Difference("DEPENDENCY_ARRAY_ADDED", here))
            elif was != becomes:
                change = "EXTENDED" if becomes > was else "NARROWED" if becomes < was else "CHANGED"
                found.append(Difference(f"DEPENDENCY_ARRAY_{change}", here))
        for name in {**old.dependent, **new.dependent}:
            here = ("dependencies", name)
            if name not in new.dependent:
                found.append(Difference("DEPENDENCY_SCHEMA_REMOVED", here))
            elif name not in old.dependent:
                found.append(Difference("DEPENDENCY_SCHEMA_ADDED", here))
            else:
                found += self.compare(old.dependent[name], new.dependent[name], here)
        return found

    def _rest(self, old: Node | None, new: Node | None, keyword: str, kind: str) -> list[Difference]:
        """additionalProperties or additionalItems; None takes anything."""
        here = (keyword,)
        if isinstance(old, Nothing) != isinstance(new, Nothing):
            return [Difference(f"{kind}_{'ADDED' if isinstance(old, Nothing) else 'REMOVED'}", here)]
        if isinstance(old, Nothing) or (old is None and new is None):
            return []
        if old is None:
            return [Difference(f"{kind}_NARROWED", here)]
        if new is None:
            return [Difference(f"{kind}_EXTENDED", here)]
        return self.compare(old, new, here)

    def _unevaluated(self, old: Node | None, new: Node | None, what: str) -> list[Difference]:
        if isinstance(old, Anything):
            old = None
        if isinstance(new, Anything):
            new = None
        return self._rest(old, new, f"unevaluated{what}", f"UNEVALUATED_{what.upper()}")

    def _array(self, old: Array, new: Array) -> list[Difference]:
        found = self._every(old, new)
        for i in range(max(len(old.items), len(new.items))):
            here = ("items", str(i))
            if i >= len(new.items):
                found += self._item_removed(old.items[i], new, here)
            elif i >= len(old.items):
                found += self._item_added(new.items[i], old, here)
            else:
                found += self.compare(old.items[i], new.items[i], here)
        was = old.every if old.every is not None else old.additional
        if new.additional is not None or new.every is None:
            found += self._rest(was, new.additional, "additionalItems", "ADDITIONAL_ITEMS")
        found += self._unevaluated(old.unevaluated, new.unevaluated, "Items")
        if new.contains is not None:
            found += self.compare(old.contains, new.contains, ("contains",))
        found += _limits(old.limits, new.limits, "maxItems", "minItems", "maxContains", "minContains")
        if old.unique != new.unique:
            kind = "UNIQUE_ITEMS_REMOVED" if old.unique else "UNIQUE_ITEMS_ADDED"
            found.append(Difference(kind, ("uniqueItems",)))
        return found + _typed(old.typed, new.typed)

    def _every(self, old: Array, new: Array) -> list[Difference]:
        """The one schema of all items; the schemas of single places are compared place by place."""
        if new.every is not None and old.every is None and old.items:
            # A list of places became one schema: each place, and what may follow, must fit it.
            found = []
            for i, item in enumerate(old.items):
                found += self.compare(item, new.every, ("items", str(i)))
            if not isinstance(old.additional, Nothing):
                found += self.compare(old.additional, new.every, ("items",))
            return found
        return self.compare(old.every, new.every, ("items",))

    def _item_removed(self, was: Node, new: Array, path: Path) -> list[Difference]:
        if new.every is not None and not new.items:
            return []  # told by _every
        if _is_open_array(new):
            return [Difference("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL", path)]
        covering = _covering_items(new)
        if covering is not None:
            found = self.compare(was, covering, path)
            covers = "IS" if self.is_compatible(found) else "NOT"
            return [
                *found,
                Difference(f"ITEM_REMOVED_{covers}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path),
            ]
        if isinstance(_followed(was), Nothing):
            return [Difference("ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)]
        return [Difference("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)]

    def _item_added(self, becomes: Node, old: Array, path: Path) -> list[Difference]:
        covering = old.every if old.every is not None else _covering_items(old)
        if covering is None and _is_open_array(old):
            empty = isinstance(_followed(becomes), Anything)
            return [
                Difference(f"ITEM_{'WITH_EMPTY_SCHEMA_' if empty else ''}ADDED_TO_OPEN_CONTENT_MODEL", path)
            ]
        if covering is not None:
            found = self.compare(covering, becomes, path)
            covers = "IS" if self.is_compatible(found) else "NOT"
            return [*found, Difference(f"ITEM_ADDED_{covers}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)]
        return [Difference("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", path)]


def _followed(node: Node) -> Node:
    """Through references to the schema they name; a circle of nothing but references takes anything."""
    seen: set[int] = set()
    while isinstance(node, Ref):
        if id(node) in seen or node.target is None:
            return Anything()
        seen.add(id(node))
        node = node.target
    return node


def _is_open(node: Object) -> bool:
    """Whether a property that is not listed may hold anything."""
    open_rest = node.unevaluated is None or isinstance(node.unevaluated, Anything)
    return node.additional is None and not node.patterns and open_rest


def _covering(node: Object, name: str) -> Node | None:
    """The schema that a property takes which is not listed, if it is neither free nor forbidden."""
    for pattern, schema in node.patterns.items():
        if matches(pattern, name) is not False:
            return schema
    if node.additional is None:
        if node.unevaluated is not None and not isinstance(node.unevaluated, (Nothing, Anything)):
            return node.unevaluated
        return Anything() if node.patterns and node.unevaluated is None else None
    return None if isinstance(node.additional, Nothing) else node.additional


def _is_open_array(node: Array) -> bool:
    open_rest = node.unevaluated is None or isinstance(node.unevaluated, Anything)
    return node.additional is None and open_rest


def _covering_items(node: Array) -> Node | None:
    if node.additional is not None:
        return None if isinstance(node.additional, Nothing) else node.additional
    if node.unevaluated is not None and not isinstance(node.unevaluated, (Nothing, Anything)):
        return node.unevaluated
    return None


def _typed(old: bool, new: bool) -> list[Difference]:
    """Keywords without a type let every other type through."""
    if old == new:
        return []
    return [Difference("TYPE_EXTENDED" if old else "TYPE_NARROWED", ())]


def _limits(old: dict[str, Any], new: dict[str, Any], *keywords: str) -> list[Difference]:
    found = []
    for keyword in keywords:
        was, becomes = old.get(keyword), new.get(keyword)
        if was == becomes:
            continue
        if was is None:
            change = "ADDED"
        elif becomes is None:
            change = "REMOVED"
        else:
            change = "INCREASED" if becomes > was else "DECREASED"
        found.append(Difference(f"{_upper(keyword)}_{change}", (keyword,)))
    return found


def _upper(keyword: str) -> str:
    return "".join(f"_{c}" if c.isupper() else c.upper() for c in keyword)


def _multiple_of(old: Any, new: Any) -> list[Difference]:
    here = ("multipleOf",)
    if old == new:
        return []
    if old is None:
        return [Difference("MULTIPLE_OF_ADDED", here)]
    if new is None:
        return [Difference("MULTIPLE_OF_REMOVED", here)]
    was, becomes = Decimal(str(old)), Decimal(str(new))
    if _divides(was, becomes):
        return [Difference("MULTIPLE_OF_EXPANDED", here)]
    return [Difference("MULTIPLE_OF_REDUCED" if _divides(becomes, was) else "MULTIPLE_OF_CHANGED", here)]


def _divides(divisor: Decimal, number: Decimal) -> bool:
    """Exactly, however far apart the two are; Decimal's own remainder has a limit to its digits."""
    if divisor == 0:
        return False
    (a, b), (c, d) = number.as_integer_ratio(), divisor.as_integer_ratio()
    return (a * d) % (b * c) == 0


def _matching(edges: list[dict[int, list[Difference]]]) -> dict[int, int]:
    """The largest set of pairs in which no schema is used twice (augmenting paths)."""
    taken: dict[int, int] = {}

    def place(i: int, tried: set[int]) -> bool:
        for j in edges[i]:
            if j not in tried:
                tried.add(j)
                if j not in taken or place(taken[j], tried):
                    taken[j] = i
                    return True
        return False

    for i in range(len(edges)):
        place(i, set())
    return {i: j for j, i in sorted(taken.items(), key=lambda item: item[1])}
