"""The dependencies of a query's state, recorded with its checkpoint, and their differences.

`lineage` finds them in plans; they are part of the print of a flow or of a SQL query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_SHOWN = 160


@dataclass(frozen=True, slots=True)
class Part:
    """One dependency of state: its kind, its text for users, and the value that is compared."""

    label: str
    text: str
    digest: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A stateful operator, with everything below it that decides which state a row meets."""

    operator: str
    parts: tuple[Part, ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Kept:
        return cls(
            data["operator"],
            tuple(Part(each["label"], each["text"], each["digest"]) for each in data["parts"]),
        )


_OF_KEYS = re.compile(
    r"a grouping key|a key of duplicates|a join|the \w+ side of a join|an operator|its query\b.*"
)
"""An operator that is not followed (a pattern, code of the user) may read its state in any way."""


def same_keys(then: tuple[Kept, ...], now: tuple[Kept, ...]) -> bool:
    """Whether a row meets the same state in both queries, if it reaches the operator. False if that is
    uncertain.
    """

    def keys(kept: tuple[Kept, ...]) -> list[tuple[str, list[str]]]:
        return [
            (each.operator, [part.digest for part in each.parts if _OF_KEYS.fullmatch(part.label)])
            for each in kept
        ]

    return keys(then) == keys(now)


def differences(then: tuple[Kept, ...], now: tuple[Kept, ...]) -> list[str]:
    """The differences, as text for users; empty if the state of one fits the other."""
    before, after = [each.operator for each in then], [each.operator for each in now]
    if before != after:
        gone, come = " and ".join(before) or "nothing", " and ".join(after) or "nothing"
        return [f"it kept the state of {gone}, and now keeps that of {come}"]
    found: dict[str, None] = {}
    for old, new in zip(then, now, strict=True):
        for said in _changed(old.parts, new.parts):
            found.setdefault(said)
    return list(found)


def _changed(then: tuple[Part, ...], now: tuple[Part, ...]) -> Iterator[str]:
    before, after = [part.digest for part in then], [part.digest for part in now]
    if before == after:
        return
    gone = [part for part in then if part.digest not in after]
    come = [part for part in now if part.digest not in before]
    if not gone and not come:
        moved = next(new for old, new in zip(then, now, strict=False) if old.digest != new.digest)
        yield f"the order or number of {_plural(moved.label)} changed: {_shown(moved.text)}"
    for label in dict.fromkeys(part.label for part in (*gone, *come)):
        old = [part.text for part in gone if part.label == label]
        new = [part.text for part in come if part.label == label]
        if old and new and old != new:
            yield f"{label} changed from {_listed(old)} to {_listed(new)}"
        elif old and new:
            yield f"{label} changed: {_listed(new)}"
        elif new:
            yield f"{label} is new: {_listed(new)}"
        else:
            yield f"{label} was removed: {_listed(old)}"


def _plural(label: str) -> str:
    """`a grouping key` as `grouping keys`."""
    return f"{label.removeprefix('an ').removeprefix('a ')}s"


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _listed(texts: list[str]) -> str:
    return " and ".join(_shown(text) for text in texts)
