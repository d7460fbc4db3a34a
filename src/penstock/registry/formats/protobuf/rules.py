"""Which changes of a Protobuf schema keep old data readable: the rules of Confluent's registry.

Fields are matched by number over the whole message, so that moving into or out of a oneof hides no change of
type. Confluent's registry lets a field become required, or a plain proto3 number become repeated; this is
stricter: the first makes old data unreadable, the second drops values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from penstock.registry.formats.pairs import MAX_DIFFERENCES
from penstock.registry.formats.schema import Reference, Words

_F = FieldDescriptorProto
_SCALAR_KINDS = {
    _F.TYPE_INT32: "GENERAL_NUMBER",
    _F.TYPE_INT64: "GENERAL_NUMBER",
    _F.TYPE_UINT32: "GENERAL_NUMBER",
    _F.TYPE_UINT64: "GENERAL_NUMBER",
    _F.TYPE_BOOL: "GENERAL_NUMBER",
    _F.TYPE_ENUM: "GENERAL_NUMBER",
    _F.TYPE_SINT32: "SIGNED_NUMBER",
    _F.TYPE_SINT64: "SIGNED_NUMBER",
    _F.TYPE_STRING: "STRING_OR_BYTES",
    _F.TYPE_BYTES: "STRING_OR_BYTES",
    _F.TYPE_FIXED32: "FIXED32",
    _F.TYPE_SFIXED32: "FIXED32",
    _F.TYPE_FIXED64: "FIXED64",
    _F.TYPE_SFIXED64: "FIXED64",
    _F.TYPE_FLOAT: "FLOAT",
    _F.TYPE_DOUBLE: "DOUBLE",
}

_SENTENCES = {
    "PACKAGE_CHANGED": "The package at '{path}' in the {reader} schema "
    "does not match the package in the {writer} schema",
    "MESSAGE_REMOVED": "The {reader} schema is missing a MESSAGE type at path '{path}' "
    "in the {writer} schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{path}' in the {reader} schema "
    "does not match the {writer} schema",
    "FIELD_SCALAR_KIND_CHANGED": "The kind of a SCALAR field at path '{path}' in the {reader} schema "
    "does not match its kind in the {writer} schema",
    "FIELD_NAMED_TYPE_CHANGED": "The type of a MESSAGE field at path '{path}' in the {reader} schema "
    "does not match its type in the {writer} schema",
    "FIELD_NUMERIC_LABEL_CHANGED": "The label for a NUMERIC field at path '{path}' in the {reader} schema "
    "does not match its label in the {writer} schema",
    "REQUIRED_FIELD_ADDED": "A required field  at path '{path}' in the {reader} schema "
    "is missing in the {writer} schema",
    "REQUIRED_FIELD_REMOVED": "The {reader} schema is missing a required field at path: '{path}' "
    "in the {writer} schema",
    "ONEOF_FIELD_REMOVED": "The {reader} schema is missing a oneof field at path '{path}' "
    "in the {writer} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "Multiple fields in the oneof at path '{path}' in the {reader} schema "
    "are outside a oneof in the {writer} schema",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "A field in the oneof at path '{path}' in the {reader} schema "
    "is outside an existing oneof in the {writer} schema",
}
"""What makes a change incompatible; every other change is compatible and not reported."""


class Difference(NamedTuple):
    kind: str
    path: tuple[str, ...]

    def sentence(self, words: Words) -> str:
        description = _SENTENCES[self.kind].format(
            path="#/" + "/".join(self.path), reader=words.reader, writer=words.writer
        )
        return f'{{errorType:"{self.kind}", description:"{description}"}}'


@dataclass(frozen=True, slots=True)
class _Type:
    """A message or an enum, the file's package, and its name inside that package."""

    package: str
    local: str
    kind: DescriptorProto | EnumDescriptorProto
    file: FileDescriptorProto
    reference: Reference | None
    is_local: bool


class _Side:
    """One schema: its file, and every type it can name."""

    def __init__(
        self,
        file: FileDescriptorProto,
        imported: Sequence[FileDescriptorProto],
        references: Sequence[Reference],
    ) -> None:
        self.file = file
        self.types: dict[str, _Type] = {}
        by_name = {reference.name: reference for reference in references}
        for other in (*imported, file):
            prefix = f".{other.package}." if other.package else "."
            for local, kind in _walk(other):
                self.types[prefix + local] = _Type(
                    other.package, local, kind, other, by_name.get(other.name), other is file
                )


def _walk(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto | EnumDescriptorProto]]:
    todo: list[tuple[str, DescriptorProto | EnumDescriptorProto]] = [
        (kind.name, kind) for kind in (*file.message_type, *file.enum_type)
    ]
    while todo:
        name, kind = todo.pop()
        yield name, kind
        if isinstance(kind, DescriptorProto):
            todo.extend((f"{name}.{below.name}", below) for below in (*kind.nested_type, *kind.enum_type))


Schema = tuple[FileDescriptorProto, Sequence[FileDescriptorProto], Sequence[Reference]]


def incompatibilities(original: Schema, update: Schema) -> list[Difference]:
    """Why `update` cannot read the data of `original`."""
    old, new = _Side(*original), _Side(*update)
    checker = _Checker(old, new)
    if old.file.package != new.file.package:
        checker.add("PACKAGE_CHANGED", ())
    checker.types(old.file.message_type, new.file.message_type, (), old.file, new.file)
    return list(dict.fromkeys(checker.found))[:MAX_DIFFERENCES]


class _Checker:
    def __init__(self, old: _Side, new: _Side) -> None:
        self._old = old
        self._new = new
        self._imported: dict[tuple[int, int], bool] = {}
        self.found: list[Difference] = []

    def add(self, kind: str, path: tuple[str, ...]) -> None:
        self.found.append(Difference(kind, path))

    def types(
        self,
        old: Sequence[DescriptorProto],
        new: Sequence[DescriptorProto],
        path: tuple[str, ...],
        old_file: FileDescriptorProto,
        new_file: FileDescriptorProto,
    ) -> None:
        after = {message.name: message for message in new}
        for message in old:
            if message.options.map_entry:
                continue
            here = (*path, message.name)
            if message.name in after:
                self.message(message, after[message.name], here, old_file, new_file)
            else:
                self.add("MESSAGE_REMOVED", here)

    def message(
        self,
        old: DescriptorProto,
        new: DescriptorProto,
        path: tuple[str, ...],
        old_file: FileDescriptorProto,
        new_file: FileDescriptorProto,
    ) -> None:
        before = {field.number: field for field in old.field}
        after = {field.number: field for field in new.field}
        old_oneofs = {field.number: _oneof(old, field) for field in old.field}
        new_oneofs = {field.number: _oneof(new, field) for field in new.field}
        self._exclusivity(before, old_oneofs, new_oneofs, path)
        kept = {name for name in new_oneofs.values() if name}
        surviving = {name for number, name in old_oneofs.items() if name and number in after}
        for number in sorted(before.keys() | after.keys()):
            member_before, member_after = old_oneofs.get(number), new_oneofs.get(number)
            if number not in after:
                if member_before is None:
                    if _label(before[number], old, old_file) == "required":
                        self.add("REQUIRED_FIELD_REMOVED", (*path, str(number)))
                elif member_before in kept or member_before in surviving:
                    # A oneof that was removed with all its members counts as removed fields.
                    self.add("ONEOF_FIELD_REMOVED", (*path, member_before, str(number)))
            elif number not in before:
                if member_after is None and _label(after[number], new, new_file) == "required":
                    self.add("REQUIRED_FIELD_ADDED", (*path, str(number)))
            else:
                here = (*path, member_after, str(number)) if member_after else (*path, str(number))
                labels = (_label(before[number], old, old_file), _label(after[number], new, new_file))
                encodings = (
                    _is_group(before[number], old, old_file),
                    _is_group(after[number], new, new_file),
                )
                self._field(before[number], after[number], labels, encodings, here)
        self.types(old.nested_type, new.nested_type, path, old_file, new_file)

    def _exclusivity(
        self,
        before: dict[int, FieldDescriptorProto],
        old_oneofs: dict[int, str | None],
        new_oneofs: dict[int, str | None],
        path: tuple[str, ...],
    ) -> None:
        """Fields that could be set together must not end up in one oneof, where the last one wins."""
        together: dict[str, list[int]] = {}
        for number, oneof in new_oneofs.items():
            if oneof and number in before:
                together.setdefault(oneof, []).append(number)
        for name, members in together.items():
            origins = {old_oneofs[number] or number for number in members}
            if len(origins) > 1:
                moved = sum(old_oneofs[number] is None for number in members)
                kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if moved > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
                self.add(kind, (*path, name))

    def _field(
        self,
        old: FieldDescriptorProto,
        new: FieldDescriptorProto,
        labels: tuple[str | None, str | None],
        encodings: tuple[bool, bool],
        path: tuple[str, ...],
    ) -> None:
        if labels[1] == "required" and labels[0] != "required":
            self.add("REQUIRED_FIELD_ADDED", path)
        kinds = self._kind(old, self._old), self._kind(new, self._new)
        if kinds[0] != kinds[1] or encodings[0] != encodings[1]:
            self.add("FIELD_KIND_CHANGED", path)
        elif kinds[0] == "SCALAR":
            self._scalar(old, new, labels, path)
        elif kinds[0] == "MAP":
            for was, becomes in zip(self._entry(old, self._old), self._entry(new, self._new)):
                self._field(was, becomes, (None, None), (False, False), path)
        else:
            self._named(old, new, path)

    def _scalar(
        self,
        old: FieldDescriptorProto,
        new: FieldDescriptorProto,
        labels: tuple[str | None, str | None],
        path: tuple[str, ...],
    ) -> None:
        kinds = _SCALAR_KINDS.get(old.type), _SCALAR_KINDS.get(new.type)
        if kinds[0] != kinds[1]:
            self.add("FIELD_SCALAR_KIND_CHANGED", path)
        elif kinds[0] != "STRING_OR_BYTES" and labels[0] != labels[1]:
            if None not in labels or "repeated" in labels:
                self.add("FIELD_NUMERIC_LABEL_CHANGED", path)

    def _named(self, old: FieldDescriptorProto, new: FieldDescriptorProto, path: tuple[str, ...]) -> None:
        was, becomes = self._old.types.get(old.type_name), self._new.types.get(new.type_name)
        if was is None or becomes is None:
            if old.type_name != new.type_name:
                self.add("FIELD_NAMED_TYPE_CHANGED", path)
        elif was.local != becomes.local or not self._same_import(was, becomes):
            self.add("FIELD_NAMED_TYPE_CHANGED", path)

    def _same_import(self, was: _Type, becomes: _Type) -> bool:
        """Types of other files are compared once, and their differences reported where they are."""
        if was.is_local and becomes.is_local:
            return True  # compared where they are defined
        if was.reference is not None and becomes.reference is not None:
            if _same_version(was.reference, becomes.reference):
                return True
        if was.kind == becomes.kind and was.file == becomes.file:
            return True
        if not isinstance(was.kind, DescriptorProto) or not isinstance(becomes.kind, DescriptorProto):
            return isinstance(was.kind, DescriptorProto) == isinstance(becomes.kind, DescriptorProto)
        pair = (id(was.kind), id(becomes.kind))
        if pair not in self._imported:
            self._imported[pair] = True  # a recursive type is assumed compatible here
            count = len(self.found)
            self.message(was.kind, becomes.kind, tuple(was.local.split(".")), was.file, becomes.file)
            self._imported[pair] = len(self.found) == count
        return self._imported[pair]

    def _kind(self, field: FieldDescriptorProto, side: _Side) -> str:
        if field.type in _SCALAR_KINDS:
            return "SCALAR"
        return "MAP" if self._map_entry(field, side) is not None else "MESSAGE"

    def _map_entry(self, field: FieldDescriptorProto, side: _Side) -> DescriptorProto | None:
        found = side.types.get(field.type_name)
        if found is not None and isinstance(found.kind, DescriptorProto) and found.kind.options.map_entry:
            return found.kind
        return None

    def _entry(self, field: FieldDescriptorProto, side: _Side) -> list[FieldDescriptorProto]:
        entry = self._map_entry(field, side)
        assert entry is not None
        return sorted(entry.field, key=lambda part: part.number)


def _same_version(one: Reference, other: Reference) -> bool:
    return (one.subject, one.version) == (other.subject, other.version)


def _oneof(message: DescriptorProto, field: FieldDescriptorProto) -> str | None:
    if field.HasField("oneof_index") and not field.proto3_optional:
        return str(message.oneof_decl[field.oneof_index].name)
    return None


def _label(field: FieldDescriptorProto, message: DescriptorProto, file: FileDescriptorProto) -> str | None:
    """optional, required or repeated; None for a plain field of proto3 or an edition, which has no label."""
    if field.label == _F.LABEL_REPEATED:
        return "repeated"
    if file.syntax == "editions":
        presence = _feature("field_presence", file, message, field)
        return "required" if presence == FeatureSet.LEGACY_REQUIRED else None
    if field.label == _F.LABEL_REQUIRED:
        return "required"
    if file.syntax == "proto3":
        return "optional" if field.proto3_optional else None
    return None if _oneof(message, field) else "optional"


def _is_group(field: FieldDescriptorProto, message: DescriptorProto, file: FileDescriptorProto) -> bool:
    if field.type == _F.TYPE_GROUP:
        return True
    if file.syntax != "editions" or field.type != _F.TYPE_MESSAGE:
        return False
    return bool(_feature("message_encoding", file, message, field) == FeatureSet.DELIMITED)


def _feature(
    name: str, file: FileDescriptorProto, message: DescriptorProto, field: FieldDescriptorProto
) -> int | None:
    for options in (field.options, message.options, file.options):
        if options.features.HasField(name):
            return int(getattr(options.features, name))
    return None
