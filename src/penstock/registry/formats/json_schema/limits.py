"""Compares JSON Schema nodes without children: limits of texts and numbers, and values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

from penstock.registry.formats.json_schema.messages import sentence
from penstock.registry.formats.json_schema.model import Number, Text, Values
from penstock.registry.formats.schema import Words

Path = tuple[str, ...]


class Difference(NamedTuple):
    kind: str
    path: Path

    def sentence(self, words: Words) -> str:
        return sentence(self.kind, "#/" + "/".join(self.path), words)


def text_differences(old: Text, new: Text) -> list[Difference]:
    found = limits(old.limits, new.limits, "maxLength", "minLength") + typed(old.typed, new.typed)
    if old.pattern is None and new.pattern is not None:
        found.append(Difference("PATTERN_ADDED", ("pattern",)))
    elif old.pattern is not None and new.pattern is None:
        found.append(Difference("PATTERN_REMOVED", ("pattern",)))
    elif old.pattern != new.pattern:
        found.append(Difference("PATTERN_CHANGED", ("pattern",)))
    return found


def number_differences(old: Number, new: Number) -> list[Difference]:
    found = limits(old.limits, new.limits, "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum")
    found += _multiple_of(old.limits.get("multipleOf"), new.limits.get("multipleOf"))
    if old.integer != new.integer:
        found.append(Difference("TYPE_EXTENDED" if old.integer else "TYPE_NARROWED", ()))
    return found + typed(old.typed, new.typed)


def values_differences(old: Values, new: Values) -> list[Difference]:
    if old.keys == new.keys:
        return []
    if new.keys >= old.keys:
        kind = "ENUM_ARRAY_EXTENDED"
    elif old.keys >= new.keys:
        kind = "ENUM_ARRAY_NARROWED"
    else:
        kind = "ENUM_ARRAY_CHANGED"
    return [Difference(kind, ("const" if old.const and new.const else "enum",))]


def typed(old: bool, new: bool) -> list[Difference]:
    """Keywords without a type accept every other type."""
    if old == new:
        return []
    return [Difference("TYPE_EXTENDED" if old else "TYPE_NARROWED", ())]


def limits(old: dict[str, Any], new: dict[str, Any], *keywords: str) -> list[Difference]:
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
    """Exact for any magnitude; Decimal's own remainder has a limited number of digits."""
    if divisor == 0:
        return False
    (a, b), (c, d) = number.as_integer_ratio(), divisor.as_integer_ratio()
    return (a * d) % (b * c) == 0


def matching(edges: list[list[int]]) -> int:
    """The maximum number of pairs such that no schema is used twice (augmenting paths, with an explicit
    stack).
    """
    taken: dict[int, int] = {}
    for start in range(len(edges)):
        came_from: dict[int, int] = {}
        todo, end = [start], None
        while todo and end is None:
            i = todo.pop()
            for j in edges[i]:
                if j not in came_from:
                    came_from[j] = i
                    if j not in taken:
                        end = j
                        break
                    todo.append(taken[j])
        placed = {i: j for j, i in taken.items()}
        while end is not None:
            i = came_from[end]
            taken[end], end = i, placed.get(i)
    return len(taken)
