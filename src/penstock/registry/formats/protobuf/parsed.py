"""Protobuf schemas: .proto text, or the base64 of a FileDescriptorProto, sent by Confluent's Python client.

protoc validates; its descriptors are compared and printed.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from typing import ClassVar

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from penstock.registry.formats.protobuf import protoc
from penstock.registry.formats.protobuf.compile import Compiled, compile_proto
from penstock.registry.formats.protobuf.options import OptionReader
from penstock.registry.formats.protobuf.rules import incompatibilities
from penstock.registry.formats.protobuf.text import Printer, Spelling
from penstock.registry.formats.schema import (
    InvalidSchema,
    ParsedSchema,
    Reference,
    ResolvedReference,
    Words,
    dependencies_first,
)

_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}\Z")
_MAIN = "default.proto"
_NOTHING = {"name", "syntax", "edition", "source_code_info"}


class ProtobufSchema(ParsedSchema):
    schema_type: ClassVar[str] = "PROTOBUF"

    def __init__(self, compiled: Compiled, references: tuple[Reference, ...]) -> None:
        *self.imported, main = compiled.files
        self._spelling = Spelling(main, compiled.source, compiled.unknown)
        self._options = OptionReader(compiled.files)
        for file in compiled.files:
            file.ClearField("source_code_info")
        self.raw: FileDescriptorProto = main
        self.references = references
        self._canonical: str | None = None

    @property
    def name(self) -> str | None:
        for kind in (*self.raw.message_type, *self.raw.enum_type):
            return f"{self.raw.package}.{kind.name}" if self.raw.package else kind.name
        return None

    def canonical(self) -> str:
        if self._canonical is None:
            self._canonical = Printer(self.raw, self._options, self._spelling).text()
        return self._canonical

    def normalized(self) -> str:
        return Printer(self.raw, self._options, self._spelling, normalize=True).text()

    def formatted(self, style: str) -> str:
        """`serialized` is the descriptor in base64; `ignore_extensions` omits extensions."""
        if style == "serialized":
            return base64.b64encode(self.raw.SerializeToString(deterministic=True)).decode()
        if style == "ignore_extensions":
            return Printer(self.raw, self._options, self._spelling, extensions=False).text()
        return self.canonical()

    def differences(self, writer: ProtobufSchema, words: Words, policy: str) -> list[str]:
        found = incompatibilities(
            original=(writer.raw, writer.imported, writer.references),
            update=(self.raw, self.imported, self.references),
        )
        return [difference.sentence(words) for difference in found]

    def has_top_level_field(self, name: str) -> bool:
        return any(field.name == name for message in self.raw.message_type for field in message.field)


def parse_protobuf(text: str, references: tuple[ResolvedReference, ...], strict: bool) -> ProtobufSchema:
    return _parse(text, references)


@functools.lru_cache(maxsize=256)
def _parse(text: str, references: tuple[ResolvedReference, ...]) -> ProtobufSchema:
    if not text.strip():
        raise InvalidSchema("Could not parse Protobuf - the schema is empty")
    files: dict[str, str] = {}
    for reference in dependencies_first(references):
        if not protoc.is_well_known(reference.name):
            files[reference.name] = _source(reference.schema, reference.references)
    source = _source(text, references)
    main = next(name for name in (_MAIN, *(f"default{i}.proto" for i in range(10_000))) if name not in files)
    compiled = compile_proto({**files, main: source}, main)
    if {field.name for field, _ in compiled.files[-1].ListFields()} <= _NOTHING and not compiled.unknown:
        raise InvalidSchema("Could not parse Protobuf - the schema defines nothing")
    return ProtobufSchema(compiled, tuple(reference.reference for reference in references))


def _source(text: str, references: tuple[ResolvedReference, ...]) -> str:
    """The .proto text. A descriptor is printed as text first, so that protoc validates both."""
    if not _BASE64.match(text.strip()):
        return text
    file = FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return text
    file.ClearField("source_code_info")
    imported = _imported(file, references)
    try:
        return Printer(file, OptionReader(imported)).text()
    except (TypeError, ValueError, LookupError) as error:
        # An untrusted descriptor may refer to parts that it does not have.
        raise InvalidSchema(f"Could not parse Protobuf - the descriptor is inconsistent: {error}") from None


def _imported(
    file: FileDescriptorProto, references: tuple[ResolvedReference, ...]
) -> list[FileDescriptorProto]:
    """The compiled files that a descriptor imports: without them its custom options are only bytes."""
    if not (file.dependency or getattr(file, "option_dependency", ())):
        return []
    lines = ['syntax = "proto3";', *(f'import "{name}";' for name in file.dependency)]
    imports = _parse("\n".join(lines), references)
    # The descriptor itself may define options that it uses.
    bare = FileDescriptorProto()
    bare.CopyFrom(file)
    bare.name = imports.raw.name
    return [*imports.imported, bare]
