"""The registry's state: the topic replayed into memory. It changes only by `apply`, record by record.

Pure: no clock, no sockets. Reads are answered from here. One thread applies; others may read, because the
methods that iterate do so over copies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.elected.membership import named_leader
from penstock.registry import subjects
from penstock.registry.records import (
    NOOP,
    Key,
    StoredSchema,
    decode_key,
    decode_value,
    encode_key,
    stored_schema,
)
from penstock.registry.subjects import DEFAULT_CONTEXT, SubjectPrefix, context_of, split

log = logging.getLogger(__name__)

Json = dict[str, Any]
ContextId = tuple[str, int]

DEFAULT_LEVEL = "BACKWARD"
DEFAULT_MODE = "READWRITE"
INHERITED = (
    "normalize", "validateFields", "validateNewSchemas", "validateRules", "compatibilityPolicy",
    "compatibilityGroup",
)  # fmt: skip
"""What a subject's configuration takes from the global one where it says nothing itself."""


@dataclass(slots=True)
class Context:
    """The ids of one context; an id holds one schema, which several subjects may have as a version."""

    holders: dict[int, dict[str, int]] = field(default_factory=dict)
    by_digest: dict[bytes, int] = field(default_factory=dict)
    max_id: int = 0


class State:
    """Subjects with their versions, the ids, and the settings."""

    def __init__(self, default_level: str = DEFAULT_LEVEL) -> None:
        self.default_level = default_level
        """Of compatibility, where none is set: of the server, not of the topic."""
        self.offset = -1
        """Of the last record that was applied."""
        self.ignored = 0
        """Records that no registry can have meant: unreadable, or an id given twice."""
        self.on_change: Callable[[str, int], None] = lambda context, schema_id: None
        """Called with every id whose schema, or whose deletion, has changed."""
        self.leader: str | None = None
        """The URL of the registry that took the topic over last; None if it did not write it."""
        self._subjects: dict[str, dict[int, StoredSchema]] = {}
        self._contexts: dict[str, Context] = {}
        self._named_contexts: set[str] = set()
        self._referenced_by: dict[tuple[str, int], set[ContextId]] = {}
        self._configs: dict[str | None, Json] = {}
        self._modes: dict[str | None, str] = {}
        self._spent: dict[str, int] = {}
        """The highest version that a subject, which has others, has lost for good."""
        self._foreign_keys: dict[Key, bytes] = {}

    # Replay

    def apply(
        self, raw_key: bytes | None, raw_value: bytes | None, offset: int, timestamp: int | None
    ) -> None:
        """Applies one record of the topic, whatever it contains."""
        self.offset = offset
        key = decode_key(raw_key)
        if key is None:
            self._ignore(offset, "its key is of no registry")
            return
        try:
            value = decode_value(raw_value)
            self._apply(key, value, timestamp)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._ignore(offset, f"its value cannot be read ({error!r})")
            return
        if raw_key is not None and raw_key != encode_key(key):
            self._foreign_keys[key] = raw_key

    def key_bytes(self, key: Key) -> bytes:
        """The bytes of this key in the topic, or those that a new key gets."""
        return self._foreign_keys.get(key) or encode_key(key)

    def _ignore(self, offset: int, reason: str) -> None:
        self.ignored += 1
        log.warning("skipped the record at offset %d: %s", offset, reason)

    def _apply(self, key: Key, value: Json | None, timestamp: int | None) -> None:
        if key.kind == "SCHEMA":
            self._apply_schema(key, value, timestamp)
        elif key.kind == "CONFIG":
            _put(self._configs, key.subject, None if value is None else _without(value, "subject"))
        elif key.kind == "MODE":
            _put(self._modes, key.subject, None if value is None else str(value["mode"]))
        elif key.kind == "CONTEXT":
            assert key.subject is not None
            if value is None:
                self._named_contexts.discard(key.subject)
            elif key.subject != DEFAULT_CONTEXT:
                self._named_contexts.add(key.subject)
        elif key.kind == "DELETE_SUBJECT":
            if value is not None:
                self._delete_subject(str(value["subject"]), int(value["version"]))
        elif key.kind == "CLEAR_SUBJECT":
            if value is not None:
                self._clear_subject(value.get("subject"))
        elif key == NOOP:
            self.leader = named_leader(value)
            # Penstock's NOOP records contain the highest deleted ids and versions, which no other record has.
            for context, highest in ((value or {}).get("maxIds") or {}).items():
                mine = self._context(str(context))
                mine.max_id = max(mine.max_id, int(highest))
            for subject, version in ((value or {}).get("maxVersions") or {}).items():
                self._spend(str(subject), int(version))

    def _apply_schema(self, key: Key, value: Json | None, timestamp: int | None) -> None:
        assert key.subject is not None and key.version is not None
        versions = self._subjects.get(key.subject, {})
        if value is None:
            old = versions.pop(key.version, None)
            if old is not None:
                self._forget(old)
                self._spend(key.subject, key.version)
            self._drop_if_empty(key.subject)
            return
        entry = stored_schema(key, value, timestamp)
        context = self._context(context_of(key.subject))
        holder = self._holder(context, entry.id)
        if holder is not None and holder.schema != entry.schema:
            self.ignored += 1
            log.error(
                "skipped %s version %d: its id %d belongs to another schema",
                entry.subject, entry.version, entry.id,
            )  # fmt: skip
            return
        old = versions.get(key.version)
        if old is not None and (old.id != entry.id or old.digest != entry.digest):
            self._forget(old)
        self._subjects.setdefault(key.subject, {})[key.version] = entry
        context.max_id = max(context.max_id, entry.id)
        context.holders.setdefault(entry.id, {})[entry.subject] = entry.version
        context.by_digest[entry.digest] = entry.id
        for target in self.targets(entry):
            self._referenced_by.setdefault(target, set()).add((context_of(entry.subject), entry.id))
        self._changed(entry)

    def _forget(self, entry: StoredSchema) -> None:
        name = context_of(entry.subject)
        context = self._context(name)
        holders = context.holders.get(entry.id, {})
        if holders.get(entry.subject) == entry.version:
            del holders[entry.subject]
        if not holders:
            context.holders.pop(entry.id, None)
            if context.by_digest.get(entry.digest) == entry.id:
                del context.by_digest[entry.digest]
            for target in self.targets(entry):
                referrers = self._referenced_by.get(target, set())
                referrers.discard((name, entry.id))
                if not referrers:
                    self._referenced_by.pop(target, None)
        self._changed(entry)

    def _delete_subject(self, subject: str, up_to: int) -> None:
        for version, entry in self._subjects.get(subject, {}).items():
            if version <= up_to and not entry.deleted:
                entry.deleted = True
                self._changed(entry)

    def _clear_subject(self, name: str | None) -> None:
        for subject, versions in list(self._subjects.items()):
            if not subjects.covers(name, subject):
                continue
            for version, entry in list(versions.items()):
                if entry.deleted:
                    del versions[version]
                    self._forget(entry)
                    self._spend(subject, version)
            self._drop_if_empty(subject)

    def _spend(self, subject: str, version: int) -> None:
        self._spent[subject] = max(self._spent.get(subject, 0), version)

    def _drop_if_empty(self, subject: str) -> None:
        """A subject without versions starts again at 1."""
        if not self._subjects.get(subject):
            self._subjects.pop(subject, None)
            self._spent.pop(subject, None)

    def _changed(self, entry: StoredSchema) -> None:
        self.on_change(context_of(entry.subject), entry.id)

    def _context(self, name: str) -> Context:
        return self._contexts.setdefault(name, Context())

    def _holder(self, context: Context, schema_id: int) -> StoredSchema | None:
        for subject, version in list(context.holders.get(schema_id, {}).items()):
            entry = self.get(subject, version)
            if entry is not None:
                return entry
        return None

    @staticmethod
    def targets(entry: StoredSchema) -> Iterator[tuple[str, int]]:
        """The references of the schema, by full name."""
        for reference in entry.references:
            yield subjects.qualify_with(entry.subject, reference.subject), reference.version

    # Subjects and versions

    def get(self, subject: str, version: int) -> StoredSchema | None:
        return self._subjects.get(subject, {}).get(version)

    def versions(self, subject: str, *, deleted: bool = False) -> list[StoredSchema]:
        """In the order of their numbers; the soft-deleted ones too if asked for."""
        entries = sorted(self._subjects.get(subject, {}).values(), key=lambda entry: entry.version)
        return entries if deleted else [entry for entry in entries if not entry.deleted]

    def latest(self, subject: str) -> StoredSchema | None:
        versions = self.versions(subject)
        return versions[-1] if versions else None

    def next_version(self, subject: str) -> int:
        """A version that the subject never had, even if its highest versions were deleted permanently."""
        highest = max(self._subjects.get(subject, ()), default=0)
        return (max(highest, self._spent.get(subject, 0)) if highest else 0) + 1

    def find(self, subject: str, version: int, *, deleted: bool = False) -> StoredSchema | None:
        """A version by number, -1 for the latest; in any context if the name has none."""
        found = self._find(subject, version, deleted)
        if found is None and context_of(subject) == DEFAULT_CONTEXT:
            for other in self.qualifications(subject):
                found = self._find(other, version, deleted)
                if found is not None:
                    break
        return found

    def _find(self, subject: str, version: int, deleted: bool) -> StoredSchema | None:
        if version == -1:
            return self.latest(subject)
        entry = self.get(subject, version)
        return entry if entry is not None and (deleted or not entry.deleted) else None

    def qualifications(self, subject: str) -> list[str]:
        """The subject of the default context in every other context."""
        name = split(subject).subject
        return [subjects.join(context, name) for context in sorted(self._named_contexts)]

    def has_subjects(self, name: str | None, *, deleted: bool) -> bool:
        """Whether the subject, or one of the context, has a version."""
        if name is not None and split(name).subject:
            return any(deleted or not entry.deleted for entry in list(self._subjects.get(name, {}).values()))
        return any(True for _ in self.covered(name, deleted=deleted))

    def covered(self, name: str | None, *, deleted: bool) -> Iterator[str]:
        for subject, versions in list(self._subjects.items()):
            if subjects.covers(name, subject):
                if any(deleted or not entry.deleted for entry in list(versions.values())):
                    yield subject

    def subjects(self, prefix: str) -> list[tuple[str, bool]]:
        """Each subject with the prefix, in order, and whether all of its versions are deleted."""
        wanted = SubjectPrefix(prefix)
        found = [
            (subject, all(entry.deleted for entry in list(versions.values())))
            for subject, versions in list(self._subjects.items())
            if wanted.matches(subject)
        ]
        return sorted(found)

    def schemas(self, prefix: str) -> Iterator[StoredSchema]:
        wanted = SubjectPrefix(prefix)
        for subject in sorted(self._subjects):
            if wanted.matches(subject):
                yield from self.versions(subject, deleted=True)

    # Ids

    def by_id(self, schema_id: int, subject: str | None = None) -> StoredSchema | None:
        """The schema of an id, as `subject` has it: in its context, or else in any that has both."""
        context, name = split(subject or "")
        found = self._by_id(context, schema_id, name)
        if found is None and name and context == DEFAULT_CONTEXT:
            for other in sorted(self._named_contexts):
                found = self._by_id(other, schema_id, name)
                if found is not None:
                    return found
            found = self._by_id(context, schema_id, "")
        return found

    def _by_id(self, context: str, schema_id: int, name: str) -> StoredSchema | None:
        mine = self._contexts.get(context)
        if mine is None:
            return None
        if not name:
            return self._holder(mine, schema_id)
        subject = subjects.join(context, name)
        version = mine.holders.get(schema_id, {}).get(subject)
        return None if version is None else self.get(subject, version)

    def by_guid(self, guid: bytes) -> list[tuple[str, StoredSchema]]:
        """Where the schema of this GUID is: contexts, the default one first, and an entry of each."""
        found = []
        for name in self.contexts():
            context = self._contexts.get(name)
            schema_id = None if context is None else context.by_digest.get(guid)
            entry = None if schema_id is None else self._by_id(name, schema_id, "")
            if entry is not None:
                found.append((name, entry))
        return found

    def same_schema(self, subject: str, digest: bytes) -> int | None:
        """The existing id of this schema in the subject's context."""
        context = self._contexts.get(context_of(subject))
        return None if context is None else context.by_digest.get(digest)

    def holders(self, entry: StoredSchema) -> list[StoredSchema]:
        """All versions that have the entry's id, soft-deleted ones too."""
        context = self._context(context_of(entry.subject))
        found = (self.get(*pair) for pair in list(context.holders.get(entry.id, {}).items()))
        return [holder for holder in found if holder is not None]

    def max_id(self, context: str) -> int:
        mine = self._contexts.get(context)
        return 0 if mine is None else mine.max_id

    def lost_ids(self, gone: Collection[StoredSchema] = ()) -> dict[str, int]:
        """The highest used id of each context that no schema has any more, after `gone` is deleted."""
        touched = {context_of(entry.subject) for entry in gone}
        return {
            name: context.max_id
            for name, context in list(self._contexts.items())
            if context.max_id and (name in touched or context.max_id not in context.holders)
        }

    def lost_versions(self, gone: Collection[StoredSchema] = ()) -> dict[str, int]:
        """The highest used version of each subject that no longer has it, after `gone` is deleted."""
        spent, removed = dict(self._spent), {(entry.subject, entry.version) for entry in gone}
        for subject, version in removed:
            spent[subject] = max(spent.get(subject, 0), version)
        lost = {}
        for subject, version in spent.items():
            left = [each for each in list(self._subjects.get(subject, ())) if (subject, each) not in removed]
            if left and max(left) < version:
                lost[subject] = version
        return lost

    def referenced_by(self, subject: str, version: int, *, deleted: bool) -> list[ContextId]:
        """The ids of schemas that refer to this version; on request, also of soft-deleted ones."""
        ids = sorted(self._referenced_by.get((subject, version), ()))
        if deleted:
            return ids
        return [
            (context, schema_id)
            for context, schema_id in ids
            if any(not holder.deleted for holder in self._all_holders(context, schema_id))
        ]

    def referring_subjects(self, subject: str, version: int, *, deleted: bool) -> set[str]:
        return {
            holder.subject
            for context, schema_id in list(self._referenced_by.get((subject, version), ()))
            for holder in self._all_holders(context, schema_id)
            if deleted or not holder.deleted
        }

    def _all_holders(self, context: str, schema_id: int) -> list[StoredSchema]:
        entry = self._by_id(context, schema_id, "")
        return [] if entry is None else self.holders(entry)

    # Contexts and settings

    def contexts(self) -> list[str]:
        return [DEFAULT_CONTEXT, *sorted(self._named_contexts)]

    def has_context(self, context: str) -> bool:
        return context == DEFAULT_CONTEXT or context in self._named_contexts

    def stored_config(self, subject: str | None) -> Json | None:
        return self._configs.get(subject)

    def config(self, subject: str | None) -> Json | None:
        """The configuration that was set for exactly this subject or context; the global one has a
        default.
        """
        found = self._configs.get(subject)
        if found is not None:
            return {"compatibilityLevel": self.default_level, **found}
        if subject is None or context_of(subject) == subjects.GLOBAL_CONTEXT:
            return {"compatibilityLevel": self.default_level}
        return None

    def config_in_scope(self, subject: str | None) -> Json:
        """The effective setting of a subject: its own, else its context's, else the global one."""
        mine = None if subject is None else self.config(subject)
        if mine is not None:
            over_all = self.config(None) or {}
            return {**{name: over_all[name] for name in INHERITED if name in over_all}, **mine}
        for name in self._scopes(subject):
            if name in self._configs:
                return {"compatibilityLevel": self.default_level, **self._configs[name]}
        return {"compatibilityLevel": self.default_level}

    def mode(self, subject: str | None) -> str | None:
        found = self._modes.get(subject)
        if found is None and (subject is None or context_of(subject) == subjects.GLOBAL_CONTEXT):
            return DEFAULT_MODE
        return found

    def mode_in_scope(self, subject: str | None) -> str:
        # READONLY_OVERRIDE applies to the whole registry: no subject or context can override it.
        if self._modes.get(None) == "READONLY_OVERRIDE":
            return "READONLY_OVERRIDE"
        for name in (subject, *self._scopes(subject)):
            if name in self._modes:
                return self._modes[name]
        return DEFAULT_MODE

    @staticmethod
    def _scopes(subject: str | None) -> tuple[str | None, str]:
        prefix = subjects.context_prefix(subject)
        return (prefix or None), f":{subjects.GLOBAL_CONTEXT}:"

    def modes_below(self, prefix: str) -> list[str]:
        """Subjects of the context (without a prefix: the default one) that have their own mode."""
        context = context_of(prefix) if prefix else DEFAULT_CONTEXT
        return sorted(
            name for name in list(self._modes) if name and split(name).subject and context_of(name) == context
        )

    def aliases(self, prefix: str) -> dict[str, list[str]]:
        """For each subject that has aliases, those with the prefix."""
        wanted = SubjectPrefix(prefix)
        found: dict[str, list[str]] = {}
        for name, config in list(self._configs.items()):
            alias = config.get("alias")
            if name and alias and wanted.matches(name):
                found.setdefault(subjects.qualify_with(name, alias), []).append(name)
        return found

    def resolve_alias(self, subject: str) -> str:
        alias = (self._configs.get(subject) or {}).get("alias")
        return subjects.qualify_with(subject, alias) if alias else subject

    # Counts, for /metrics

    def counts(self) -> tuple[int, int, int]:
        """Subjects, versions, and ids."""
        versions = sum(map(len, self._subjects.values()))
        return len(self._subjects), versions, sum(len(context.holders) for context in self._contexts.values())


def _put(table: dict[Any, Any], name: Any, value: Any) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value


def _without(value: Json, *names: str) -> Json:
    return {name: item for name, item in value.items() if name not in names and item is not None}


def replay(records: Iterable[tuple[bytes | None, bytes | None]]) -> State:
    """A state from keys and values alone, with offsets counted from 0."""
    state = State()
    for offset, (key, value) in enumerate(records):
        state.apply(key, value, offset, None)
    return state
