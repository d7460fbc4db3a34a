"""The records of the topic `_schemas`, byte for byte in the format of Confluent's registry.

A key is JSON with `keytype` and `magic` in a fixed order, because compaction compares bytes. Keys with
another spelling (older registries write `"subject":null`) are read, too; the state remembers their bytes and
writes later values with them, so that no key exists twice.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from penstock.registry.formats import Reference

Json = dict[str, Any]

_MAGIC = {"SCHEMA": 1}
TENANT = "default"


class Key(NamedTuple):
    """The key of a record; `subject` is None for the global configuration and mode."""

    kind: str
    subject: str | None = None
    version: int | None = None


class Record(NamedTuple):
    """One record to write: a value of None deletes the key."""

    key: Key
    value: Json | None


NOOP = Key("NOOP")


@dataclass(slots=True, eq=False)
class StoredSchema:
    """One version of a subject, as the topic has it."""

    subject: str
    version: int
    id: int
    schema_type: str
    schema: str
    references: tuple[Reference, ...]
    metadata: Json | None
    rule_set: Json | None
    deleted: bool
    timestamp: int | None
    digest: bytes

    @property
    def guid(self) -> str:
        return str(UUID(bytes=self.digest))


def digest(
    schema: str, references: Iterable[Reference], metadata: Json | None, rule_set: Json | None
) -> bytes:
    """An MD5 hash of everything that identifies the schema; its GUID is this number."""
    parts = [schema.encode("utf-8", "surrogatepass")]
    for reference in references:
        parts += [reference.name.encode(), reference.subject.encode(), struct.pack(">i", reference.version)]
    if metadata is not None:
        parts.append(b"\1")
        for name, members in metadata.get("tags", {}).items():
            parts += [name.encode(), *(member.encode() for member in members)]
        for name, text in metadata.get("properties", {}).items():
            parts += [name.encode(), text.encode()]
        parts += [name.encode() for name in metadata.get("sensitive", ())]
    if rule_set is not None:
        parts.append(b"\1")
        for name in ("migrationRules", "domainRules", "encodingRules"):
            for rule in rule_set.get(name, ()):
                _hash_rule(parts, rule)
        if "enableAt" in rule_set:
            parts.append(rule_set["enableAt"].encode())
    return hashlib.md5(b"".join(parts), usedforsecurity=False).digest()


def _hash_rule(parts: list[bytes], rule: Json) -> None:
    for name in ("name", "doc", "kind", "mode", "type"):
        parts.append(str(rule.get(name) or "").encode())
    parts += [tag.encode() for tag in rule.get("tags", ())]
    for name, text in rule.get("params", {}).items():
        parts += [name.encode(), text.encode()]
    for name in ("expr", "onSuccess", "onFailure"):
        parts.append(str(rule.get(name) or "").encode())
    if rule.get("disabled"):
        parts.append(b"\1")


# Keys


def encode_key(key: Key) -> bytes:
    fields: Json = {"keytype": key.kind}
    if key.kind == "CONTEXT":
        fields |= {"tenant": TENANT, "context": key.subject}
    else:
        if key.subject:
            fields["subject"] = key.subject
        if key.version is not None:
            fields["version"] = key.version
    fields["magic"] = _MAGIC.get(key.kind, 0)
    return _dump(fields)


def decode_key(data: bytes | None) -> Key | None:
    """None for a key that is not a registry's; its record is skipped."""
    try:
        fields = json.loads(data or b"")
        kind = fields["keytype"]
        if kind == "SCHEMA":
            if fields.get("magic", 1) not in (0, 1):
                return None
            return Key(kind, str(fields["subject"]), int(fields["version"]))
        if kind == "CONTEXT":
            return Key(kind, str(fields["context"]))
        subject = fields.get("subject")
        return Key(str(kind), None if not subject else str(subject))
    except (ValueError, KeyError, TypeError):
        return None


# Values


def encode_value(value: Json | None) -> bytes | None:
    return None if value is None else _dump(value)


def decode_value(data: bytes | None) -> Json | None:
    """The fields of a value; ValueError if it is not a JSON object."""
    if data is None:
        return None
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("the value is not a JSON object")
    return value


def schema_value(entry: StoredSchema) -> Json:
    value: Json = {
        "subject": entry.subject,
        "version": entry.version,
        "id": entry.id,
        "schemaType": entry.schema_type,
    }
    if entry.references:
        value["references"] = [reference_json(reference) for reference in entry.references]
    if entry.metadata is not None:
        value["metadata"] = entry.metadata
    if entry.rule_set is not None:
        value["ruleSet"] = entry.rule_set
    value |= {"schema": entry.schema, "deleted": entry.deleted}
    return value


def stored_schema(key: Key, value: Json, timestamp: int | None) -> StoredSchema:
    """The entry of a SCHEMA record; ValueError, KeyError or TypeError when fields are missing or wrong."""
    assert key.subject is not None and key.version is not None
    schema = value["schema"]
    if not isinstance(schema, str):
        raise ValueError("schema is not a string")
    references = tuple(
        Reference(str(item["name"]), str(item["subject"]), int(item["version"]))
        for item in value.get("references") or ()
    )
    metadata, rule_set = _spelled(value.get("metadata")), _spelled_rules(value.get("ruleSet"))
    given = value.get("md5")
    if given:
        mark = base64.b64decode(given)
        if len(mark) != 16:
            raise ValueError("md5 has not 16 bytes")
    else:
        mark = digest(schema, references, metadata, rule_set)
    return StoredSchema(
        subject=key.subject,
        version=key.version,
        id=int(value["id"]),
        schema_type=str(value.get("schemaType") or "AVRO"),
        schema=schema,
        references=references,
        metadata=metadata,
        rule_set=rule_set,
        deleted=bool(value.get("deleted", False)),
        timestamp=timestamp,
        digest=mark,
    )


def _spelled(metadata: Any) -> Json | None:
    if not metadata:
        return None if metadata is None else {}
    result: Json = {}
    if tags := metadata.get("tags"):
        result["tags"] = {name: sorted(members) for name, members in sorted(tags.items())}
    if properties := metadata.get("properties"):
        result["properties"] = dict(sorted(properties.items()))
    if sensitive := metadata.get("sensitive"):
        result["sensitive"] = sorted(sensitive)
    return result


def _spelled_rules(rule_set: Any) -> Json | None:
    if not rule_set:
        return None if rule_set is None else {}
    return {name: value for name, value in rule_set.items() if value}


def reference_json(reference: Reference) -> Json:
    return {"name": reference.name, "subject": reference.subject, "version": reference.version}


def _dump(value: Json) -> bytes:
    # Not escaped: Jackson, which writes Confluent's keys, leaves text as it is.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
