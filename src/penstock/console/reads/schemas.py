"""Schemas of a registry: subjects, versions, the difference between two, and registering after a check."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.registry.client import RegisteredSchema, RegistryClient, schema_body
from penstock.registry.differences import readable, text_difference
from penstock.registry.reasons import measure, sentence, take_apart

TYPES = ("AVRO", "JSON", "PROTOBUF")


@dataclass(frozen=True, slots=True)
class Subject:
    name: str
    versions: list[int]
    level: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a schema can be registered; `reasons` say why not, `against` is the version it was compared
    with.
    """

    compatible: bool
    reasons: list[str]
    against: str


def list_subjects(client: RegistryClient, text: str = "") -> list[str]:
    return sorted(name for name in client.subjects() if text.lower() in name.lower())


def find_subject(client: RegistryClient, name: str) -> Subject:
    config = client.config(name, effective=True) or {}
    level = config.get("compatibilityLevel") or config.get("compatibility") or "unknown"
    return Subject(name, client.versions(name), str(level))


def find_version(client: RegistryClient, name: str, version: int) -> RegisteredSchema:
    return client.version(name, version)


def text_of(schema: RegisteredSchema) -> str:
    return readable(schema.schema)


def difference(client: RegistryClient, name: str, old: int, new: int) -> list[str]:
    """The lines of a unified diff; none if the schemas are the same."""
    before, after = client.version(name, old), client.version(name, new)
    return text_difference(before.schema, after.schema, f"version {old}", f"version {new}")


def check(client: RegistryClient, name: str, schema_type: str, text: str) -> Verdict:
    """Whether the registry would accept it, without registering it."""
    body = schema_body(text, schema_type)
    messages = client.compatibility(name, body)
    found = take_apart(messages or (), text)
    return Verdict(messages is None, [sentence(each) for each in found.reasons], measure(name, found))


def register(client: RegistryClient, name: str, schema_type: str, text: str) -> int:
    """Returns the schema's id."""
    return client.register(name, schema_body(text, schema_type))
