"""JSON Schemas, drafts 4 to 2020-12: validated against the draft's meta-schema, with every $ref resolved."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import urljoin

import jsonschema
from jsonschema_specifications import REGISTRY
from referencing import Registry, Resource

from penstock.registry.formats import json_text
from penstock.registry.formats.json_schema.model import SPECIFICATIONS, Loader, Node, draft_of
from penstock.registry.formats.json_schema.rules import incompatibilities
from penstock.registry.formats.schema import (
    InvalidSchema,
    ParsedSchema,
    Reference,
    ResolvedReference,
    Words,
    dependencies_first,
)

_VALIDATORS: dict[int, Any] = {
    4: jsonschema.Draft4Validator,
    6: jsonschema.Draft6Validator,
    7: jsonschema.Draft7Validator,
    2019: jsonschema.Draft201909Validator,
    2020: jsonschema.Draft202012Validator,
}
_BASE = "file:///schemas/"
"""The base URI of a schema without an id; references by name are relative to it."""


class JsonSchema(ParsedSchema):
    schema_type: ClassVar[str] = "JSON"

    def __init__(self, raw: Any, root: Node, references: tuple[Reference, ...]) -> None:
        self.raw: Any = raw
        self.root = root
        self.references = references
        self._canonical: str | None = None

    @property
    def name(self) -> str | None:
        title = self.raw.get("title") if isinstance(self.raw, dict) else None
        return title if isinstance(title, str) else None

    def canonical(self) -> str:
        if self._canonical is None:
            self._canonical = json_text.dump(self.raw)
        return self._canonical

    def normalized(self) -> str:
        return json_text.dump(self.raw, ordered=True)

    def differences(self, writer: JsonSchema, words: Words, policy: str) -> list[str]:
        found = incompatibilities(writer.root, self.root, lenient=policy == "LENIENT")
        return [difference.sentence(words) for difference in found]

    def has_top_level_field(self, name: str) -> bool:
        properties = self.raw.get("properties") if isinstance(self.raw, dict) else None
        return isinstance(properties, dict) and name in properties


def parse_json_schema(text: str, references: tuple[ResolvedReference, ...], strict: bool) -> JsonSchema:
    value = json_text.load(text)
    if not isinstance(value, (dict, bool)):
        raise InvalidSchema(f"A JSON Schema is an object or a boolean, not {type(value).__name__}")
    draft = draft_of(value)
    if strict:
        _check_against_meta_schema(value, draft)
    registry, resolver = _registry(value, draft, references)
    root = Loader(registry, draft).load(value, resolver)
    return JsonSchema(value, root, tuple(reference.reference for reference in references))


def validator(text: str, references: tuple[ResolvedReference, ...]) -> Any:
    """jsonschema's validator for data, with every document that a $ref may name."""
    value = json_text.load(text)
    draft = draft_of(value)
    registry, resolver = _registry(value, draft, references)
    return _VALIDATORS[draft](value, registry=registry, _resolver=resolver)


def _check_against_meta_schema(value: Any, draft: int) -> None:
    validator = _VALIDATORS[draft]
    error = next(validator(validator.META_SCHEMA).iter_errors(value), None)
    if error is not None:
        place = "/".join(map(str, error.absolute_path))
        message = error.message if len(error.message) <= 500 else error.message[:500] + "…"
        raise InvalidSchema(f"Not a JSON Schema at '#/{place}': {message}")


def _registry(value: Any, draft: int, references: tuple[ResolvedReference, ...]) -> tuple[Registry[Any], Any]:
    """The documents that a $ref may name: the schema itself, its references, and the drafts' meta-schemas."""
    own = value.get("id" if draft == 4 else "$id") if isinstance(value, dict) else None
    try:
        base = urljoin(_BASE, own.partition("#")[0]) if isinstance(own, str) else _BASE + "default"
        documents: dict[str, Any] = {}
        for reference in dependencies_first(references):
            resource = _referenced(reference, draft)
            places = [reference.name, urljoin(_BASE, reference.name), urljoin(base, reference.name)]
            name = resource.id()
            if name is not None:
                places.append(urljoin(base, name))
            for uri in places:
                documents.setdefault(uri.partition("#")[0], resource)
        main = SPECIFICATIONS[draft].create_resource(value)
        registry = REGISTRY.with_resources([*documents.items(), (base, main)])
        return registry, registry.resolver(base_uri=base)
    except ValueError as error:
        raise InvalidSchema(f"An id or the name of a reference is not a URI: {error}") from None


def _referenced(reference: ResolvedReference, draft: int) -> Resource[Any]:
    where = f"Reference {reference.name} (subject {reference.subject}, version {reference.version})"
    try:
        contents = json_text.load(reference.schema)
    except InvalidSchema as error:
        raise InvalidSchema(f"{where}: {error}") from None
    if not isinstance(contents, (dict, bool)):
        raise InvalidSchema(f"{where} is not a JSON Schema")
    own = isinstance(contents, dict) and "$schema" in contents
    resource: Resource[Any] = SPECIFICATIONS[draft_of(contents) if own else draft].create_resource(contents)
    return resource
