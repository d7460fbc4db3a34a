"""Plans a write: from the state and a request to the records that carry it out, and the response.

Pure, and called by the leader only, one at a time. The records of a plan are written in one transaction: all
of them, or none.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from penstock.registry import subjects
from penstock.registry.bodies import (
    CONFLUENT_VERSION,
    IMPORTING,
    ConfigChange,
    SchemaBody,
    with_version_property,
)
from penstock.registry.compatibility import reasons_against
from penstock.registry.errors import (
    context_not_empty,
    incompatible,
    invalid_schema,
    not_permitted,
    reference_exists,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from penstock.registry.formats import ParsedSchema
from penstock.registry.lookup import Found, can_look_up, look_up, merged_settings, understood
from penstock.registry.parsing import Schemas
from penstock.registry.records import NOOP, TENANT, Key, Record, StoredSchema, digest, schema_value
from penstock.registry.state import State

Json = dict[str, Any]


@dataclass(slots=True)
class Plan:
    """Records to write, and the response to the client once they are in the topic."""

    answer: Any
    records: list[Record] = field(default_factory=list)


def lost_record(state: State, gone: Collection[StoredSchema] = (), leader: str | None = None) -> Record:
    """Prevents reuse of ids and versions of deleted schemas, and of those that `gone` deletes.

    It also names the leader: `leader` if it takes over, otherwise the last one.

    The record stays in the compacted topic after the schemas are deleted. Ids and versions of existing
    schemas are omitted: the record must stay small enough for the topic, however many contexts there are.
    """
    value: Json = {"maxIds": state.lost_ids(gone)}
    if versions := state.lost_versions(gone):
        value["maxVersions"] = versions
    if leader := leader or state.leader:
        value["leader"] = leader
    return Record(NOOP, value)


# Registering


def already_registered(
    state: State, schemas: Schemas, subject: str, body: SchemaBody, *, normalize: bool
) -> StoredSchema | None:
    """The version that a registration would create, if it exists already: any registry can respond to
    that.
    """
    config = state.config_in_scope(subject)
    if body.empty or any(
        config.get(name) is not None
        for name in ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
    ):
        return None
    latest_only = body.version == -1
    found = look_up(
        state, schemas, subject, body, normalize=normalize, deleted=False, latest_only=latest_only
    )
    if found is None:
        return None
    if body.version in (0, -1):
        return found if body.id < 0 or body.id == found.id else None
    if found.id == body.id:
        if found.version == body.version:
            return found
        older = state.find(subject, body.version)
        if older is not None and older.id == found.id and older.digest == found.digest:
            return older
    return None


def register(
    state: State, schemas: Schemas, subject: str, body: SchemaBody, *, normalize: bool, force: bool
) -> Plan:
    """Registers a schema as the next version of a subject. The response is its entry."""
    _check_may_register(state, subject, body)
    importing = state.mode_in_scope(subject) in IMPORTING
    config = state.config_in_scope(subject)
    versions = state.versions(subject, deleted=True)
    undeleted = [entry for entry in versions if not entry.deleted]
    next_version = state.next_version(subject)
    if not importing:
        body = _populated(config, body, undeleted[-1] if undeleted else None, next_version)
    if body.empty:
        raise invalid_schema("Empty schema")
    found = understood(
        schemas,
        subject,
        body,
        normalize=normalize and not importing,
        strict=body.id < 0,
        validate_new=_validates_new(config),
    )

    schema_id = body.id
    same = state.same_schema(subject, found.digest)
    if same is not None and schema_id in (-1, same):
        here = [entry for entry in undeleted if entry.id == same]
        if body.version == 0 and here:
            return Plan(here[-1])
        schema_id = same
    if body.version == 0:
        for entry in reversed(undeleted):
            if schema_id in (-1, entry.id) and can_look_up(schemas, found, entry):
                return Plan(entry)
    if not importing and not force:
        reasons = reasons_against(found.parsed, body.metadata, undeleted, config, schemas.stored)
        if reasons:
            raise incompatible(subject, reasons)
    version = _version(body, next_version, importing)
    if schema_id >= 0:
        _check_id_is_free(state, subject, schema_id, found)
    else:
        schema_id = state.max_id(subjects.context_of(subject)) + 1
    entry = _entry(subject, version, schema_id, found, body)
    records = _context_record(state, subject)
    records += _superseded(state, entry, versions)
    records.append(Record(Key("SCHEMA", subject, version), schema_value(entry)))
    overwritten = state.get(subject, version)  # by an import
    if overwritten is not None and overwritten.id != entry.id:
        records.append(lost_record(state, [overwritten]))
    return Plan(entry, records)


def _validates_new(config: Json) -> bool:
    return config.get("validateNewSchemas") is not False


def _check_may_register(state: State, subject: str, body: SchemaBody) -> None:
    mode = state.mode_in_scope(subject)
    where = f"Subject {subject} in context {subjects.context_prefix(subject)}"
    if mode in ("READONLY", "READONLY_OVERRIDE"):
        raise not_permitted(f"{where} is in read-only mode")
    if body.id >= 0 and mode not in IMPORTING:
        raise not_permitted(f"{where} is not in import mode")
    if body.id < 0 and mode != "READWRITE":
        raise not_permitted(f"{where} is not in read-write mode")


def _populated(config: Json, body: SchemaBody, latest: StoredSchema | None, next_version: int) -> SchemaBody:
    """Completes the request from the previous version and from the configuration."""
    if body.empty:
        if latest is None:
            raise invalid_schema("Empty schema")
        body = body.with_(schema=latest.schema, schema_type=latest.schema_type, references=latest.references)
    metadata, rule_set = merged_settings(config, body, latest)
    named = (metadata or {}).get("properties", {}).get(CONFLUENT_VERSION) is not None
    if body.version != 0 or named:
        metadata = with_version_property(metadata, next_version)
    return body.with_(metadata=metadata, rule_set=rule_set)


def _version(body: SchemaBody, next_version: int, importing: bool) -> int:
    if body.version <= 0:
        return next_version
    if body.version != next_version and not importing:
        raise invalid_schema("Version is not one more than previous version")
    return body.version


def _check_id_is_free(state: State, subject: str, schema_id: int, found: Found) -> None:
    holder = state.by_id(schema_id, subjects.context_prefix(subject))
    if holder is not None and holder.digest != found.digest:
        raise not_permitted(
            f"Overwrite new schema with id {schema_id} in context {subjects.context_prefix(subject)} "
            "is not permitted."
        )


def _entry(subject: str, version: int, schema_id: int, found: Found, body: SchemaBody) -> StoredSchema:
    return StoredSchema(
        subject=subject,
        version=version,
        id=schema_id,
        schema_type=found.parsed.schema_type,
        schema=found.text,
        references=found.references,
        metadata=body.metadata,
        rule_set=body.rule_set,
        deleted=False,
        timestamp=None,
        digest=digest(found.text, found.references, body.metadata, body.rule_set),
    )


def _context_record(state: State, subject: str) -> list[Record]:
    context = subjects.context_of(subject)
    if state.has_context(context):
        return []
    return [Record(Key("CONTEXT", context), {"tenant": TENANT, "context": context})]


def _superseded(state: State, entry: StoredSchema, versions: list[StoredSchema]) -> list[Record]:
    """Soft-deleted versions of the same id are deleted permanently, unless a schema still refers to them."""
    return [
        Record(Key("SCHEMA", old.subject, old.version), None)
        for old in versions
        if old.deleted
        and old.id == entry.id
        and old.version < entry.version
        and not state.referenced_by(old.subject, old.version, deleted=True)
    ]


def is_compatible(
    state: State,
    schemas: Schemas,
    subject: str,
    body: SchemaBody,
    previous: list[StoredSchema],
    *,
    normalize: bool,
) -> list[str]:
    """Why a schema may not follow `previous`; nothing is written."""
    if body.empty:
        raise invalid_schema("Empty schema")
    config = state.config_in_scope(subject)
    found = understood(schemas, subject, body, normalize=normalize, validate_new=_validates_new(config))
    parsed: ParsedSchema = found.parsed
    return reasons_against(parsed, body.metadata, previous, config, schemas.stored)


# Deleting


def _check_writable(state: State, subject: str | None) -> None:
    if state.mode_in_scope(subject) in ("READONLY", "READONLY_OVERRIDE"):
        raise not_permitted(
            f"Subject {subject} in context {subjects.context_prefix(subject)} is in read-only mode"
        )


def delete_version(state: State, subject: str, version: int, *, permanent: bool) -> Plan:
    """Deletes one version. The response is its number."""
    entry = state.latest(subject) if version == -1 else state.get(subject, version)
    if entry is None:
        if not state.has_subjects(subject, deleted=True):
            raise subject_not_found(subject)
        raise version_not_found(version)
    if entry.deleted and not permanent:
        raise version_soft_deleted(subject, version)
    _check_writable(state, subject)
    if state.referenced_by(subject, entry.version, deleted=permanent):
        raise reference_exists(subject, entry.version)
    key = Key("SCHEMA", subject, entry.version)
    if not permanent:
        return Plan(entry.version, [Record(key, {**schema_value(entry), "deleted": True})])
    if not entry.deleted:
        raise version_not_soft_deleted(subject, entry.version)
    records = [Record(key, None), lost_record(state, [entry])]
    if len(state.versions(subject, deleted=True)) == 1:
        records += _settings_removed(state, subject)
    return Plan(entry.version, records)


def delete_subject(state: State, subject: str, *, permanent: bool) -> Plan:
    """Deletes all versions of a subject. The response is their numbers."""
    if not state.has_subjects(subject, deleted=True):
        raise subject_not_found(subject)
    if not permanent and not state.has_subjects(subject, deleted=False):
        raise subject_soft_deleted(subject)
    _check_writable(state, subject)
    entries = state.versions(subject, deleted=permanent)
    for entry in entries:
        others = state.referring_subjects(subject, entry.version, deleted=permanent) - {subject}
        if others:
            raise reference_exists(subject, entry.version)
        if permanent and not entry.deleted:
            raise subject_not_soft_deleted(subject)
    numbers = [entry.version for entry in entries]
    if not permanent:
        value = {"subject": subject, "version": numbers[-1]}
        return Plan(numbers, [Record(Key("DELETE_SUBJECT", subject), value)])
    records = [Record(Key("SCHEMA", subject, number), None) for number in reversed(numbers)]
    records += [lost_record(state, entries), *_settings_removed(state, subject)]
    return Plan(numbers, records)


def _settings_removed(state: State, subject: str) -> list[Record]:
    records = []
    if state.mode(subject) is not None:
        records.append(Record(Key("MODE", subject), None))
    if state.stored_config(subject) is not None:
        records.append(Record(Key("CONFIG", subject), None))
    return records


def delete_context(state: State, name: str) -> Plan:
    if state.has_subjects(name, deleted=True):
        raise context_not_empty(name)
    return Plan(None, [Record(Key("CONTEXT", subjects.context_of(name)), None)])


# Settings


def update_config(state: State, subject: str | None, change: ConfigChange) -> Plan:
    """Sets the settings in the request; others stay unchanged. The response is the new configuration."""
    _check_writable(state, subject)
    merged = {**(state.stored_config(subject) or {}), **change.values}
    value = {name: item for name, item in merged.items() if item is not None}
    named = {} if subject is None else {"subject": subject}
    return Plan(value, [Record(Key("CONFIG", subject), {**named, **value})])


def delete_config(state: State, subject: str | None) -> Plan:
    """The response is the previous configuration."""
    before = state.config(subject)
    if before is None:
        raise subject_not_found(subject)
    _check_writable(state, subject)
    if state.stored_config(subject) is None:
        return Plan(before)
    return Plan(before, [Record(Key("CONFIG", subject), None)])


def set_mode(state: State, subject: str | None, mode: str | None, *, force: bool) -> Plan:
    records: list[Record] = []
    if mode == "IMPORT" and state.mode_in_scope(subject) != "IMPORT" and not force:
        if state.has_subjects(subject, deleted=False):
            raise not_permitted("Cannot import since found existing subjects")
        # Soft-deleted schemas would block the ids and versions that are imported.
        gone: list[StoredSchema] = []
        for name in list(state.covered(subject, deleted=True)):
            for entry in state.versions(name, deleted=True):
                if state.referenced_by(name, entry.version, deleted=True):
                    raise reference_exists(name, entry.version)
                gone.append(entry)
                records.append(Record(Key("SCHEMA", name, entry.version), None))
        if gone:
            records.append(lost_record(state, gone))
        cleared = {} if subject is None else {"subject": subject}
        records.append(Record(Key("CLEAR_SUBJECT", subject), cleared))
    named = {} if subject is None else {"subject": subject}
    records.append(Record(Key("MODE", subject), None if mode is None else {**named, "mode": mode}))
    return Plan(mode, records)


def delete_mode(state: State, subject: str | None, *, recursive: bool) -> Plan:
    """The response is the previous mode."""
    before = state.mode(subject)
    if before is None and not recursive:
        raise subject_not_found(subject)
    names: list[str | None] = [subject]
    if recursive and (subject is None or not subjects.split(subject).subject):
        names += state.modes_below(subject or "")
    return Plan(before, [Record(Key("MODE", name), None) for name in names])
