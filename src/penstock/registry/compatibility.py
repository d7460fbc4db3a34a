"""The seven compatibility levels, based on the two directions that each format checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.registry.formats import BACKWARD, FORWARD, Direction, ParsedSchema, check
from penstock.registry.records import StoredSchema

Json = dict[str, Any]

_SHOWN = 32 * 1024

_DIRECTIONS: dict[str, tuple[Direction, ...]] = {
    "NONE": (),
    "BACKWARD": (BACKWARD,),
    "FORWARD": (FORWARD,),
    "FULL": (FORWARD, BACKWARD),
}


def reasons_against(
    new: ParsedSchema,
    metadata: Json | None,
    previous: Sequence[StoredSchema],
    config: Json,
    parsed: Callable[[StoredSchema], ParsedSchema],
) -> list[str]:
    """Why `new` is not compatible with `previous` (oldest first) under a configuration; empty if it is."""
    level: str = config["compatibilityLevel"]
    validate_fields = bool(config.get("validateFields"))
    reasons: list[str] = []
    if validate_fields:
        reasons += _reserved_fields(new, metadata, previous[-1].metadata if previous else None)
    group = config.get("compatibilityGroup")
    if group is not None:
        mine = _property(metadata, group)
        previous = [entry for entry in previous if _property(entry.metadata, group) == mine]
    directions = _DIRECTIONS[level.removesuffix("_TRANSITIVE")]
    newest_first = list(reversed(previous))
    if not level.endswith("_TRANSITIVE"):
        newest_first = newest_first[:1]
    policy = config.get("compatibilityPolicy") or "STRICT"
    if directions:
        for entry in newest_first:
            against = _against(new, entry, parsed(entry), directions, policy)
            if against:
                reasons += against
                break
    if reasons:
        reasons.append(f"{{validateFields: '{str(validate_fields).lower()}', compatibility: '{level}'}}")
    return reasons


def _against(
    new: ParsedSchema, entry: StoredSchema, old: ParsedSchema, directions: Sequence[Direction], policy: str
) -> list[str]:
    if new.schema_type != old.schema_type:
        return check(new, old, directions[0])
    reasons: list[str] = []
    for direction in directions:
        for reason in check(new, old, direction, policy=policy):
            if reason not in reasons:
                reasons.append(reason)
    if reasons:
        shown = entry.schema if len(entry.schema) <= _SHOWN else entry.schema[:_SHOWN] + "..."
        reasons += [f"{{oldSchemaVersion: {entry.version}}}", f"{{oldSchema: '{shown}'}}"]
    return reasons


def _property(metadata: Json | None, name: str) -> str | None:
    value: str | None = (metadata or {}).get("properties", {}).get(name)
    return value


def _reserved_fields(new: ParsedSchema, metadata: Json | None, before: Json | None) -> list[str]:
    """`validateFields`: what `confluent:reserved` of the metadata names is kept, and is not a field."""
    now, then = _reserved(metadata), _reserved(before)
    reasons = [
        f"The new schema has reserved field {name} removed from its metadata which is present in the old "
        "schema's metadata."
        for name in sorted(then - now)
    ]
    reasons += [
        f"The new schema has field that conflicts with the reserved field {name}."
        for name in sorted(now)
        if new.has_top_level_field(name)
    ]
    return reasons


def _reserved(metadata: Json | None) -> set[str]:
    named = _property(metadata, "confluent:reserved") or ""
    return {name.strip() for name in named.split(",") if name.strip()}
