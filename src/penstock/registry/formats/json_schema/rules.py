"""Which changes of a JSON Schema keep old data valid: the rules of Confluent's registry, over typed nodes.

A property may be added if the old schema was closed to it, and removed if the new one is open: the content
models decide. Where Confluent's rules check nothing (required properties that are not listed,
patternProperties, propertyNames, contains, if/then/else, a type added to bare keywords) this is stricter:
data that was valid would become invalid. As in Confluent's registry, a oneOf that gets more branches is
assumed to stay exclusive.
"""

from __future__ import annotations

from collections.abc import Generator

from penstock.registry.formats.json_schema.limits import (
    Difference,
    Path,
    limits,
    matching,
    number_differences,
    text_differences,
    typed,
    values_differences,
)
from penstock.registry.formats.json_schema.messages import COMPATIBLE, COMPATIBLE_LENIENT
from penstock.registry.formats.json_schema.model import (
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
from penstock.registry.formats.json_schema.patterns import matches
from penstock.registry.formats.pairs import MAX_COMPARISONS, PairChecker, TooComplex

Rule = Generator[tuple[Node, Node], list[Difference], list[Difference]]
Count = Generator[tuple[Node, Node], list[Difference], int]


def incompatibilities(old: Node, new: Node, *, lenient: bool = False) -> list[Difference]:
    """Why the new schema rejects data that the old one accepted."""
    try:
        return _Checker(COMPATIBLE_LENIENT if lenient else COMPATIBLE).run(followed(old), followed(new))
    except TooComplex:
        return [Difference("TOO_COMPLEX", ())]


class _Checker(PairChecker[Node, Difference]):
    """Rules report every difference by its name; compatible ones are dropped at the end of a pair."""

    def __init__(self, compatible: frozenset[str]) -> None:
        super().__init__()
        self._compatible = compatible
        self._tried = 0

    def _may_match(self, pattern: str, name: str) -> bool:
        """Whether the pattern may match the name. Counted like pairs: every pattern is tried on every
        name.
        """
        self._tried += 1
        if self._tried > MAX_COMPARISONS:
            raise TooComplex
        return matches(pattern, name) is not False

    def rule(self, old: Node, new: Node) -> Rule:
        found = yield from self._compare(old, new)
        return [difference for difference in found if difference.kind not in self._compatible]

    def compare(self, old: Node | None, new: Node | None, path: Path = ()) -> Rule:
        """The incompatible differences at `path`. None on one side: a schema was added or removed."""
        if old is None and new is None:
            return []
        if old is None:
            return [Difference("SCHEMA_ADDED", path)]
        if new is None:
            return [Difference("SCHEMA_REMOVED", path)]
        found = yield followed(old), followed(new)
        return [Difference(kind, (*path, *below)) for kind, below in found] if path else found

    def _compare(self, old: Node, new: Node) -> Rule:
        if old is new:
            return []
        combined = yield from self._one_combined(old, new)
        if combined is not None:
            return combined
        if not _same_kind(old, new):
            if isinstance(old, Nothing) or isinstance(new, Anything):
                return []
            return [Difference("TYPE_CHANGED", ())]
        if isinstance(old, Text) and isinstance(new, Text):
            return text_differences(old, new)
        if isinstance(old, Number) and isinstance(new, Number):
            return number_differences(old, new)
        if isinstance(old, Values) and isinstance(new, Values):
            return values_differences(old, new)
        if isinstance(old, Combined) and isinstance(new, Combined):
            return (yield from self._combined(old, new))
        if isinstance(old, Not) and isinstance(new, Not):
            # What must not match may only shrink.
            grown = yield from self.compare(new.inner, old.inner)
            return [Difference("NOT_TYPE_EXTENDED" if grown else "NOT_TYPE_NARROWED", ("not",))]
        if isinstance(old, Conditional) and isinstance(new, Conditional):
            return [] if old.source == new.source else [Difference("CONDITION_CHANGED", ("if",))]
        if isinstance(old, Object) and isinstance(new, Object):
            return (yield from self._object(old, new))
        if isinstance(old, Array) and isinstance(new, Array):
            return (yield from self._array(old, new))
        return []

    def _one_combined(
        self, old: Node, new: Node
    ) -> Generator[tuple[Node, Node], list[Difference], list[Difference] | None]:
        """A plain schema compared with a combined one; None if that alone does not decide."""
        if isinstance(new, Combined) and not isinstance(old, Combined):
            if len(new.parts) > 1 and new.criterion == "allOf":
                return None
            candidates = [(old, part) for part in new.parts]
        elif isinstance(old, Combined) and not isinstance(new, Combined):
            if len(old.parts) > 1 and old.criterion != "allOf":
                return None
            candidates = [(part, new) for part in old.parts]
        else:
            return None
        for was, becomes in candidates:
            if not (yield from self.compare(was, becomes)):
                return []
        return None

    def _combined(self, old: Combined, new: Combined) -> Rule:
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
        before, after = dict(zip(old.sources, old.parts)), dict(zip(new.sources, new.parts))
        if len(before) < len(after):
            kind = "PRODUCT_TYPE_EXTENDED" if new.criterion == "allOf" else "SUM_TYPE_EXTENDED"
            found.append(Difference(kind, ()))
        elif len(before) > len(after):
            kind = "PRODUCT_TYPE_NARROWED" if old.criterion == "allOf" else "SUM_TYPE_NARROWED"
            found.append(Difference(kind, ()))
        smaller = min(len(before), len(after))
        if (yield from self._kept(before, after)) < smaller and (
            yield from self._matched(list(before.values()), list(after.values()))
        ) < smaller:
            found.append(Difference("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ()))
        return found

    def _kept(self, before: dict[str, Node], after: dict[str, Node]) -> Count:
        """How many parts are written the same on both sides, and compatible where they refer to others."""
        count = 0
        for source, was in before.items():
            if source in after and not (yield from self.compare(was, after[source])):
                count += 1
        return count

    def _matched(self, before: list[Node], after: list[Node]) -> Count:
        """How many parts can be paired with one that takes all of their data, each used once."""
        edges: list[list[int]] = []
        for was in before:
            fitting = []
            for j, becomes in enumerate(after):
                if not (yield from self.compare(was, becomes)):
                    fitting.append(j)
            edges.append(fitting)
        return matching(edges)

    def _object(self, old: Object, new: Object) -> Rule:
        found = self._required(old, new)
        for name in {**old.properties, **new.properties}:
            here = ("properties", name)
            was, becomes = old.properties.get(name), new.properties.get(name)
            if becomes is None:
                assert was is not None
                found += yield from self._property_removed(was, name, new, here)
            elif was is None:
                found += yield from self._property_added(becomes, name, old, new, here)
            else:
                found += yield from self.compare(was, becomes, here)
        found += yield from self._patterns(old, new)
        found += yield from self._dependencies(old, new)
        found += yield from self._rest(
            old.additional, new.additional, "additionalProperties", "ADDITIONAL_PROPERTIES"
        )
        found += yield from self._unevaluated(old.unevaluated, new.unevaluated, "Properties")
        if new.names is not None:
            found += yield from self.compare(old.names, new.names, ("propertyNames",))
        found += limits(old.limits, new.limits, "maxProperties", "minProperties")
        return found + typed(old.typed, new.typed)

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
                # Required and new in `properties` is reported as a property that was added.
                has_default = name in new.properties and new.properties[name].default
                kind = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED" if has_default else "REQUIRED_ATTRIBUTE_ADDED"
                found.append(Difference(kind, ("required", name)))
        return found

    def _property_removed(self, was: Node, name: str, new: Object, path: Path) -> Rule:
        if _is_open(new):
            return [Difference("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", path)]
        covering = self._covering(new, name)
        if covering is not None:
            found = yield from self.compare(was, covering, path)
            covers = "NOT" if found else "IS"
            return [
                *found,
                Difference(f"PROPERTY_REMOVED_{covers}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path),
            ]
        if isinstance(followed(was), Nothing):
            return [Difference("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)]
        return [Difference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)]

    def _property_added(self, becomes: Node, name: str, old: Object, new: Object, path: Path) -> Rule:
        is_required = name in new.required and name not in old.required
        if _is_open(old):
            if isinstance(followed(becomes), Anything) and not is_required:
                kind = "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL"
            elif is_required:
                middle = "_WITH_DEFAULT" if becomes.default else ""
                kind = f"REQUIRED_PROPERTY{middle}_ADDED_TO_OPEN_CONTENT_MODEL"
            else:
                kind = "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
            return [Difference(kind, path)]
        found: list[Difference] = []
        covering = self._covering(old, name)
        if covering is not None:
            found += yield from self.compare(covering, becomes, path)
            covers = "NOT" if found else "IS"
            found.append(Difference(f"PROPERTY_ADDED_{covers}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path))
        if is_required:
            middle = "_WITH_DEFAULT" if becomes.default else ""
            found.append(Difference(f"REQUIRED_PROPERTY{middle}_ADDED_TO_UNOPEN_CONTENT_MODEL", path))
        else:
            found.append(Difference("OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path))
        return found

    def _covering(self, node: Object, name: str) -> Node | None:
        """The schema that a property takes which is not listed, if it is neither free nor forbidden."""
        for pattern, schema in node.patterns.items():
            if self._may_match(pattern, name):
                return schema
        if node.additional is None:
            if node.unevaluated is not None and not isinstance(node.unevaluated, (Nothing, Anything)):
                return node.unevaluated
            return Anything() if node.patterns and node.unevaluated is None else None
        return None if isinstance(node.additional, Nothing) else node.additional

    def _patterns(self, old: Object, new: Object) -> Rule:
        found: list[Difference] = []
        for pattern, becomes in new.patterns.items():
            here = ("patternProperties", pattern)
            if pattern in old.patterns:
                found += yield from self.compare(old.patterns[pattern], becomes, here)
            elif isinstance(old.additional, Nothing) and not old.patterns:
                # Only the listed properties could have been there.
                for name, was in old.properties.items():
                    if self._may_match(pattern, name):
                        found += yield from self.compare(was, becomes, here)
            elif not isinstance(followed(becomes), Anything):
                found.append(Difference("PATTERN_PROPERTY_ADDED", here))
        for pattern, was in old.patterns.items():
            if pattern not in new.patterns and new.additional is not None:
                found += yield from self.compare(was, new.additional, ("patternProperties", pattern))
        return found

    def _dependencies(self, old: Object, new: Object) -> Rule:
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
                found += yield from self.compare(old.dependent[name], new.dependent[name], here)
        return found

    def _rest(self, old: Node | None, new: Node | None, keyword: str, kind: str) -> Rule:
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
        return (yield from self.compare(old, new, here))

    def _unevaluated(self, old: Node | None, new: Node | None, what: str) -> Rule:
        if isinstance(old, Anything):
            old = None
        if isinstance(new, Anything):
            new = None
        return (yield from self._rest(old, new, f"unevaluated{what}", f"UNEVALUATED_{what.upper()}"))

    def _array(self, old: Array, new: Array) -> Rule:
        found = yield from self._every(old, new)
        for i in range(max(len(old.items), len(new.items))):
            here = ("items", str(i))
            if i >= len(new.items):
                found += yield from self._item_removed(old.items[i], new, here)
            elif i >= len(old.items):
                found += yield from self._item_added(new.items[i], old, here)
            else:
                found += yield from self.compare(old.items[i], new.items[i], here)
        was = old.every if old.every is not None else old.additional
        if new.additional is not None or new.every is None:
            found += yield from self._rest(was, new.additional, "additionalItems", "ADDITIONAL_ITEMS")
        found += yield from self._unevaluated(old.unevaluated, new.unevaluated, "Items")
        if new.contains is not None:
            found += yield from self.compare(old.contains, new.contains, ("contains",))
        found += limits(old.limits, new.limits, "maxItems", "minItems", "maxContains", "minContains")
        if old.unique != new.unique:
            kind = "UNIQUE_ITEMS_REMOVED" if old.unique else "UNIQUE_ITEMS_ADDED"
            found.append(Difference(kind, ("uniqueItems",)))
        return found + typed(old.typed, new.typed)

    def _every(self, old: Array, new: Array) -> Rule:
        """The one schema of all items; the schemas of single places are compared place by place."""
        if new.every is not None and old.every is None and old.items:
            # A list of places became one schema: each place, and what may follow, must fit it.
            found = []
            for i, item in enumerate(old.items):
                found += yield from self.compare(item, new.every, ("items", str(i)))
            if not isinstance(old.additional, Nothing):
                found += yield from self.compare(old.additional, new.every, ("items",))
            return found
        return (yield from self.compare(old.every, new.every, ("items",)))

    def _item_removed(self, was: Node, new: Array, path: Path) -> Rule:
        if new.every is not None and not new.items:
            return []  # reported by _every
        if _is_open_array(new):
            return [Difference("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL", path)]
        covering = _covering_items(new)
        if covering is not None:
            found = yield from self.compare(was, covering, path)
            covers = "NOT" if found else "IS"
            return [
                *found,
                Difference(f"ITEM_REMOVED_{covers}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path),
            ]
        if isinstance(followed(was), Nothing):
            return [Difference("ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)]
        return [Difference("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)]

    def _item_added(self, becomes: Node, old: Array, path: Path) -> Rule:
        covering = old.every if old.every is not None else _covering_items(old)
        if covering is None and _is_open_array(old):
            empty = isinstance(followed(becomes), Anything)
            return [
                Difference(f"ITEM_{'WITH_EMPTY_SCHEMA_' if empty else ''}ADDED_TO_OPEN_CONTENT_MODEL", path)
            ]
        if covering is not None:
            found = yield from self.compare(covering, becomes, path)
            covers = "NOT" if found else "IS"
            return [*found, Difference(f"ITEM_ADDED_{covers}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)]
        return [Difference("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", path)]


def followed(node: Node) -> Node:
    """Through references to the schema they name; a circle of nothing but references takes anything."""
    seen: set[int] = set()
    while isinstance(node, Ref):
        if id(node) in seen or node.target is None:
            return Anything()
        seen.add(id(node))
        node = node.target
    return node


def _same_kind(old: Node, new: Node) -> bool:
    if isinstance(old, Simple) and isinstance(new, Simple):
        return old.type == new.type
    return type(old) is type(new)


def _is_open(node: Object) -> bool:
    """Whether a property that is not listed may hold anything."""
    open_rest = node.unevaluated is None or isinstance(node.unevaluated, Anything)
    return node.additional is None and not node.patterns and open_rest


def _is_open_array(node: Array) -> bool:
    open_rest = node.unevaluated is None or isinstance(node.unevaluated, Anything)
    return node.additional is None and open_rest


def _covering_items(node: Array) -> Node | None:
    if node.additional is not None:
        return None if isinstance(node.additional, Nothing) else node.additional
    if node.unevaluated is not None and not isinstance(node.unevaluated, (Nothing, Anything)):
        return node.unevaluated
    return None
