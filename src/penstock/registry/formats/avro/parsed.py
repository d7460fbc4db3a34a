"""Avro schemas: the interface `ParsedSchema` over the types of `model`."""

from __future__ import annotations

from typing import ClassVar

from penstock.registry.formats import json_text
from penstock.registry.formats.avro.model import AvroType, Named, Parser, Record
from penstock.registry.formats.avro.rules import incompatibilities
from penstock.registry.formats.avro.text import render
from penstock.registry.formats.schema import (
    InvalidSchema,
    ParsedSchema,
    Reference,
    ResolvedReference,
    Words,
    dependencies_first,
)


class AvroSchema(ParsedSchema):
    """An Avro schema; types defined in references are only named in its text."""

    schema_type: ClassVar[str] = "AVRO"

    def __init__(self, raw: AvroType, references: tuple[Reference, ...], referenced: frozenset[str]) -> None:
        self.raw: AvroType = raw
        self.references = references
        self._referenced = referenced
        self._canonical: str | None = None

    @property
    def name(self) -> str | None:
        return self.raw.name.full if isinstance(self.raw, Record) else None

    def canonical(self) -> str:
        if self._canonical is None:
            self._canonical = render(self.raw, self._referenced)
        return self._canonical

    def normalized(self) -> str:
        return render(self.raw, self._referenced, normalize=True)

    def formatted(self, style: str) -> str:
        """`resolved` replaces the names of referenced types by their definitions."""
        return render(self.raw) if style == "resolved" else self.canonical()

    def differences(self, writer: AvroSchema, words: Words, policy: str) -> list[str]:
        return [found.sentence(words) for found in incompatibilities(self.raw, writer.raw)]

    def has_top_level_field(self, name: str) -> bool:
        return isinstance(self.raw, Record) and any(field.name == name for field in self.raw.fields or ())


def parse_avro(text: str, references: tuple[ResolvedReference, ...], strict: bool) -> AvroSchema:
    parser = Parser(strict=False)
    for reference in dependencies_first(references):
        try:
            parser.parse(json_text.load(reference.schema, comments=True))
        except InvalidSchema as error:
            where = f"Reference {reference.name} (subject {reference.subject}, version {reference.version})"
            raise InvalidSchema(f"{where}: {error}") from None
    referenced = frozenset(parser.names)
    parser.strict = strict
    raw = parser.parse(json_text.load(text, comments=True))
    if isinstance(raw, Named) and raw.name.full in referenced:
        # The schema repeats a definition of a reference; it must not shrink to a bare name.
        referenced -= {raw.name.full}
    return AvroSchema(raw, tuple(reference.reference for reference in references), referenced)
