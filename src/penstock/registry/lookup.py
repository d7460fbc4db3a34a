"""Finds registered schemas by their meaning, not only by their text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.registry import subjects
from penstock.registry.bodies import (
    SchemaBody,
    merge_metadata,
    merge_rule_sets,
    version_property,
    without_version_property,
)
from penstock.registry.errors import RestError
from penstock.registry.formats import ParsedSchema, Reference
from penstock.registry.parsing import Schemas
from penstock.registry.records import StoredSchema, digest
from penstock.registry.state import State

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """A parsed schema of a request, with the text that would be stored."""

    parsed: ParsedSchema
    text: str
    references: tuple[Reference, ...]
    metadata: Json | None
    rule_set: Json | None
    digest: bytes


def merged_settings(
    config: Json, body: SchemaBody, latest: StoredSchema | None
) -> tuple[Json | None, Json | None]:
    """Metadata and rules: the defaults, then the request's (or the latest version's), then the overrides."""
    metadata = body.metadata if body.metadata is not None or latest is None else latest.metadata
    rule_set = body.rule_set if body.rule_set is not None or latest is None else latest.rule_set
    return (
        merge_metadata(
            merge_metadata(config.get("defaultMetadata"), metadata), config.get("overrideMetadata")
        ),
        merge_rule_sets(
            merge_rule_sets(config.get("defaultRuleSet"), rule_set), config.get("overrideRuleSet")
        ),
    )


def understood(
    schemas: Schemas,
    subject: str,
    body: SchemaBody,
    *,
    normalize: bool,
    strict: bool = True,
    validate_new: bool = True,
) -> Found:
    """The request's schema. Error 42201 if it is invalid."""
    assert body.schema is not None
    references = schemas.pin(subject, body.references)
    parsed = schemas.new(
        subject, body.schema_type, body.schema, references, strict=strict, validate_new=validate_new
    )
    if normalize:
        text, references = parsed.normalized(), parsed.normalized_references()
    else:
        text = parsed.canonical()
    mark = digest(text, references, body.metadata, body.rule_set)
    return Found(parsed, text, references, body.metadata, body.rule_set, mark)


def can_look_up(schemas: Schemas, found: Found, entry: StoredSchema) -> bool:
    """Whether a request means `entry`, ignoring `confluent:version`, or with its references resolved."""
    if found.parsed.schema_type != entry.schema_type:
        return False
    if found.rule_set != entry.rule_set:
        return False
    if not _same_metadata(found.metadata, entry):
        return False
    if found.references == entry.references:
        return found.text == entry.schema
    if found.references or entry.schema_type != "AVRO":
        return False
    return found.text == schemas.stored(entry).formatted("resolved")


def _same_metadata(mine: Json | None, entry: StoredSchema) -> bool:
    """Ignores `confluent:version` if only one of them has it; a request with it means that version."""
    its = entry.metadata
    wanted, has = version_property(mine), version_property(its)
    if (wanted is None) == (has is None):
        return (mine or None) == (its or None)
    if wanted is not None and wanted != entry.version:
        return False
    return (without_version_property(mine) or None) == (without_version_property(its) or None)


def look_up(
    state: State,
    schemas: Schemas,
    subject: str,
    body: SchemaBody,
    *,
    normalize: bool,
    deleted: bool,
    latest_only: bool = False,
) -> StoredSchema | None:
    """The newest version of the subject with this schema."""
    if body.empty:
        return None
    found = understood(schemas, subject, body, normalize=normalize, strict=False)
    candidates = state.versions(subject, deleted=deleted)
    if latest_only:
        candidates = candidates[-1:]
    else:
        same = state.same_schema(subject, found.digest)
        for entry in reversed(candidates):
            if same is not None and entry.id == same:
                return entry
    for entry in reversed(candidates):
        if can_look_up(schemas, found, entry):
            return entry
    return None


def look_up_anywhere(
    state: State, schemas: Schemas, subject: str, body: SchemaBody, *, normalize: bool, deleted: bool
) -> StoredSchema | None:
    """POST /subjects/{subject}: also finds the schema as registration would complete it, and in every
    context.
    """
    found = _look_up_completed(state, schemas, subject, body, normalize=normalize, deleted=deleted)
    if found is not None or subjects.context_of(subject) != subjects.DEFAULT_CONTEXT:
        return found
    for name in state.qualifications(subject):
        try:
            found = _look_up_completed(state, schemas, name, body, normalize=normalize, deleted=deleted)
        except RestError:
            continue  # its references do not exist there, so it is not registered there
        if found is not None:
            return found
    return None


def _look_up_completed(
    state: State, schemas: Schemas, subject: str, body: SchemaBody, *, normalize: bool, deleted: bool
) -> StoredSchema | None:
    found = look_up(state, schemas, subject, body, normalize=normalize, deleted=deleted)
    latest = state.latest(subject)
    if found is not None or latest is None:
        return found
    metadata, rule_set = merged_settings(state.config_in_scope(subject), body, latest)
    if metadata == body.metadata and rule_set == body.rule_set:
        return None
    completed = body.with_(metadata=metadata, rule_set=rule_set)
    return look_up(state, schemas, subject, completed, normalize=normalize, deleted=deleted)
