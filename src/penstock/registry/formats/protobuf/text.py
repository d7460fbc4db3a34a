"""Prints Protobuf descriptors as .proto text, in the order and layout in which Confluent's registry stores
it.

Types are written as in the source (`Status` or `.pkg.Status`). If normalised, they are full names, fields are
sorted by number and options by name. Comments are dropped. The order of messages is kept, because clients
count them, including the messages that protoc generates for maps and groups.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from penstock.registry.formats.protobuf.options import OptionReader, Place, indented, quote
from penstock.registry.formats.schema import InvalidSchema

Path = tuple[int, ...]

_SCALARS = {
    value: name.removeprefix("TYPE_").lower()
    for name, value in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}
_LABELS = {
    FieldDescriptorProto.LABEL_OPTIONAL: "optional ",
    FieldDescriptorProto.LABEL_REQUIRED: "required ",
    FieldDescriptorProto.LABEL_REPEATED: "repeated ",
}
_LAST: Place = (1 << 31, 0)
# The fields of descriptor.proto with the options of an element.
_FILE, _MESSAGE, _FIELD, _ONEOF, _ENUM, _VALUE, _SERVICE, _METHOD, _RANGE = 8, 7, 8, 2, 3, 3, 3, 4, 3
_MAX_FIELD = 1 << 29
_MAX_ENUM = (1 << 31) - 1
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TYPE_NAME = re.compile(r"\.?[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z")


class Spelling:
    """The spelling of type names and the order of options in the source, from the positions that protoc
    recorded; and the options that were hidden from protoc.
    """

    def __init__(
        self,
        file: FileDescriptorProto,
        source: str,
        unknown: Mapping[Path, list[tuple[Place, str, str]]] | None = None,
    ) -> None:
        self.unknown = unknown or {}
        self._lines = source.encode().split(b"\n")
        self._spans = {tuple(place.path): list(place.span) for place in file.source_code_info.location}
        self._starts: dict[Path, Place] | None = None
        self._tabbed: dict[int, list[int]] = {}

    def option(self, path: Path, index: int) -> Place:
        """The position of an option that may be repeated."""
        if self._starts is None:
            self._starts = {}
            for below, span in self._spans.items():
                # The position of `option (a).b = 1` is recorded at `(a)`.
                for length in range(2, len(below) + 1):
                    start = (span[0], span[1])
                    self._starts[below[:length]] = min(start, self._starts.get(below[:length], start))
        return self._starts.get((*path, index)) or self._starts.get(path) or _LAST

    def has(self, path: Path) -> bool:
        return path in self._spans

    def name(self, path: Path) -> str | None:
        """The name at a position; None if it is not one word in the source."""
        span = self._spans.get(path)
        if span is None or len(span) != 3:
            return None
        text = re.sub(r"\s", "", self._slice(*span))
        if text.startswith("map<"):
            text = text.removesuffix(">").rpartition(",")[2]
        return text if _TYPE_NAME.match(text) else None

    def _slice(self, line: int, start: int, end: int) -> str:
        raw = self._lines[line]
        if b"\t" in raw:
            columns = self._columns(line)
            start, end = bisect_left(columns, start), bisect_left(columns, end)
        return raw[start:end].decode(errors="replace")

    def _columns(self, line: int) -> list[int]:
        """The column of each byte: protoc counts a tab up to the next multiple of eight.

        Computed once per line: a whole schema may be on one line.
        """
        if line not in self._tabbed:
            column, columns = 0, []
            for byte in self._lines[line]:
                columns.append(column)
                column += 8 - column % 8 if byte == 9 else 1
            self._tabbed = {line: columns}  # names are requested roughly in the order of lines
        return self._tabbed[line]


class Printer:
    def __init__(
        self,
        file: FileDescriptorProto,
        options: OptionReader,
        spelling: Spelling | None = None,
        *,
        normalize: bool = False,
        extensions: bool = True,
    ) -> None:
        self._file = file
        self._options = options
        self._spelling = None if normalize else spelling
        self._source = spelling
        self._normalize = normalize
        self._extensions = extensions
        self._edition = file.syntax == "editions"

    def text(self) -> str:
        file = self._file
        parts = [self._syntax()]
        if file.package:
            parts.append(f"package {_checked(file.package, _TYPE_NAME)};\n")
        parts.append(_block(self._imports()))
        parts.append(_block(self._statements(file.options, (), _FILE)))
        grouped = _groups(file.extension)
        types = [self._message(m, (4, i)) for i, m in enumerate(file.message_type) if m.name not in grouped]
        types += [self._enum(e, (5, i)) for i, e in enumerate(file.enum_type)]
        parts.append(_block(types))
        if self._extensions:
            parts.append(_block(self._extends(file.extension, (7,))))
        parts.append(_block([self._service(s, (6, i)) for i, s in enumerate(file.service)]))
        return "".join(parts)

    def _syntax(self) -> str:
        file = self._file
        if self._edition:
            from google.protobuf.descriptor_pb2 import Edition

            return f'edition = "{Edition.Name(file.edition).removeprefix("EDITION_")}";\n'
        if file.syntax == "proto3":
            return 'syntax = "proto3";\n'
        written = self._source is not None and self._source.has((12,))
        return 'syntax = "proto2";\n' if written and not self._normalize else ""

    def _imports(self) -> list[str]:
        file = self._file
        public, weak = set(file.public_dependency), set(file.weak_dependency)
        plain = [name for i, name in enumerate(file.dependency) if i not in public and i not in weak]
        lines = [("", name) for name in plain]
        lines += [("public ", file.dependency[i]) for i in file.public_dependency]
        lines += [("weak ", file.dependency[i]) for i in file.weak_dependency]
        lines += [("option ", name) for name in getattr(file, "option_dependency", ())]
        if self._normalize:
            order = ["", "public ", "weak ", "option "]
            lines = sorted(set(lines), key=lambda line: (order.index(line[0]), line[1]))
        return [f"import {kind}{quote(name)};\n" for kind, name in lines]

    def _option_texts(self, options: Any, path: Path, field: int) -> list[str]:
        """The options of the element with this path, which are in this field of it."""
        spelling, source = self._spelling, self._source
        return self._options.texts(
            options,
            normalize=self._normalize,
            extensions=self._extensions,
            place=(lambda number, index: spelling.option((*path, field, number), index))
            if spelling
            else None,
            unknown=source.unknown.get(path, ()) if source is not None else (),
        )

    def _statements(self, options: Any, path: Path, field: int) -> list[str]:
        return [f"option {text};\n" for text in self._option_texts(options, path, field)]

    def _message(self, message: DescriptorProto, path: Path) -> str:
        return f"message {_checked(message.name)} {{" + self._body(message, path) + "}\n"

    def _body(self, message: DescriptorProto, path: Path) -> str:
        entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        real_oneofs = {
            f.oneof_index for f in message.field if f.HasField("oneof_index") and not f.proto3_optional
        }
        grouped = _groups([*message.field, *message.extension])
        groups = {
            nested.name: (nested, i) for i, nested in enumerate(message.nested_type) if nested.name in grouped
        }
        waiting = self._nested(message, path, {*entries, *groups})
        plain: list[str] = []
        in_oneof: dict[int, list[str]] = {index: [] for index in sorted(real_oneofs)}
        fields = list(enumerate(message.field))
        if self._normalize:
            fields.sort(key=lambda item: item[1].number)
        made = 0
        for i, field in fields:
            is_member = field.HasField("oneof_index") and not field.proto3_optional
            texts = in_oneof[field.oneof_index] if is_member else plain
            if self._is_map(field, entries):
                while waiting and waiting[0][0] <= made:
                    texts.append(waiting.pop(0)[1])
                made += 1
            texts.append(self._field(field, (*path, 2, i), entries, groups, path, in_oneof=is_member))
        oneofs = [self._oneof(message, index, path, texts) for index, texts in in_oneof.items()]
        if self._normalize:
            first: dict[int, int] = {}
            for _, field in fields:  # by number
                if field.HasField("oneof_index"):
                    first.setdefault(field.oneof_index, field.number)
            order = sorted(in_oneof, key=lambda i: first[i])
            oneofs = [self._oneof(message, i, path, in_oneof[i]) for i in order]
        types = [text for _, text in waiting]
        types += [self._enum(enum, (*path, 4, i)) for i, enum in enumerate(message.enum_type)]
        extending = self._extends(message.extension, (*path, 6), groups, path) if self._extensions else []
        blocks = [
            self._reserved(message.reserved_range, message.reserved_name, _MAX_FIELD, 1),
            self._statements(message.options, path, _MESSAGE),
            plain,
            oneofs,
            self._extension_ranges(message, path) if self._extensions else [],
            extending,
            types,
        ]
        return "".join(_block([indented(text) for text in block]) for block in blocks)

    def _nested(self, message: DescriptorProto, path: Path, made: set[str]) -> list[tuple[int, str]]:
        """The nested messages, each with the number of map entries before it, because it must keep its
        index.
        """
        found, entries = [], 0
        for i, nested in enumerate(message.nested_type):
            if nested.name not in made:
                found.append((entries, self._message(nested, (*path, 3, i))))
            elif nested.options.map_entry:
                entries += 1
        return found

    def _oneof(self, message: DescriptorProto, index: int, path: Path, fields: list[str]) -> str:
        oneof = message.oneof_decl[index]
        options = self._statements(oneof.options, (*path, 8, index), _ONEOF)
        body = _block([indented(text) for text in options])
        return f"oneof {_checked(oneof.name)} {{{body}{_block([indented(text) for text in fields])}}}\n"

    def _field(
        self,
        field: FieldDescriptorProto,
        path: Path,
        entries: dict[str, DescriptorProto],
        groups: dict[str, tuple[DescriptorProto, int]],
        scope: Path,
        *,
        in_oneof: bool = False,
    ) -> str:
        local = field.type_name.rpartition(".")[2]
        if field.type == FieldDescriptorProto.TYPE_GROUP and local in groups:
            group, index = groups[local]
            label = "" if in_oneof else _LABELS[field.label]
            head = f"{label}group {_checked(group.name)} = {field.number}{self._field_options(field, path)}"
            return f"{head} {{{self._body(group, (*scope, 3, index) if scope else (4, index))}}}\n"
        if self._is_map(field, entries):
            key, value = sorted(entries[local].field, key=lambda f: f.number)
            kind = f"map<{_SCALARS[key.type]}, {self._type(value, path)}>"
        else:
            kind = self._label(field, in_oneof) + self._type(field, path)
        return f"{kind} {_checked(field.name)} = {field.number}{self._field_options(field, path)};\n"

    def _is_map(self, field: FieldDescriptorProto, entries: dict[str, DescriptorProto]) -> bool:
        entry = entries.get(field.type_name.rpartition(".")[2])
        return (
            field.label == FieldDescriptorProto.LABEL_REPEATED and entry is not None and len(entry.field) == 2
        )

    def _label(self, field: FieldDescriptorProto, in_oneof: bool) -> str:
        if in_oneof:
            return ""
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            return "repeated "
        if field.proto3_optional:
            return "optional "
        if self._edition or (
            self._file.syntax == "proto3" and field.label != FieldDescriptorProto.LABEL_REQUIRED
        ):
            return ""
        return _LABELS[field.label]

    def _type(self, field: FieldDescriptorProto, path: Path) -> str:
        if not field.type_name:
            return str(_SCALARS[field.type])
        written = self._spelling.name((*path, 6)) if self._spelling else None
        return written or _checked(str(field.type_name), _TYPE_NAME)

    def _field_options(self, field: FieldDescriptorProto, path: Path) -> str:
        texts = self._option_texts(field.options, path, _FIELD)
        extra = []
        if field.HasField("default_value"):
            extra.append(f"default = {_default(field)}")
        if field.json_name and field.json_name != default_json_name(field.name):
            extra.append(f"json_name = {quote(field.json_name)}")
        texts += extra
        if self._normalize:
            texts.sort(key=lambda text: text.partition(" = ")[0].strip("()"))
        return _brackets(texts)

    def _enum(self, enum: EnumDescriptorProto, path: Path) -> str:
        values = list(enumerate(enum.value))
        if self._normalize:
            # The first value is the default of a closed enum and must stay where it is; zero in an open one.
            values[1:] = sorted(values[1:], key=lambda item: (item[1].number, item[1].name))
        lines = [
            f"{_checked(v.name)} = {v.number}"
            f"{_brackets(self._option_texts(v.options, (*path, 2, i), _VALUE))};\n"
            for i, v in values
        ]
        body = [
            *self._reserved(enum.reserved_range, enum.reserved_name, _MAX_ENUM, 0),
            *self._statements(enum.options, path, _ENUM),
            *lines,
        ]
        return f"enum {_checked(enum.name)} {{{_block([indented(text) for text in body])}}}\n"

    def _reserved(self, ranges: Any, names: Any, largest: int, exclusive: int) -> list[str]:
        spans = [(r.start, r.end - exclusive) for r in ranges]
        words = list(names)
        if self._normalize:
            spans.sort()
            words.sort()
        lines = [f"reserved {_span(start, end, largest - exclusive)};\n" for start, end in spans]
        return lines + [f"reserved {_checked(n) if self._edition else quote(n)};\n" for n in words]

    def _extension_ranges(self, message: DescriptorProto, path: Path) -> list[str]:
        ranges = list(enumerate(message.extension_range))
        if self._normalize:
            ranges.sort(key=lambda item: item[1].start)
        return [
            f"extensions {_span(r.start, r.end - 1, _MAX_FIELD - 1)}"
            f"{_brackets(self._option_texts(r.options, (*path, 5, i), _RANGE))};\n"
            for i, r in ranges
        ]

    def _extends(
        self,
        extensions: Any,
        path: Path,
        groups: dict[str, tuple[DescriptorProto, int]] | None = None,
        scope: Path = (),
    ) -> list[str]:
        if groups is None:
            groups = {m.name: (m, i) for i, m in enumerate(self._file.message_type)}
        blocks: dict[str, list[tuple[int, str]]] = {}
        for i, field in enumerate(extensions):
            here = (*path, i)
            written = self._spelling.name((*here, 2)) if self._spelling else None
            text = self._field(field, here, {}, groups, scope)
            blocks.setdefault(written or _checked(field.extendee, _TYPE_NAME), []).append(
                (field.number, text)
            )
        result = []
        for name, texts in blocks.items():
            fields = "".join(indented(t) for _, t in (sorted(texts) if self._normalize else texts))
            result.append(f"extend {name} {{\n{fields}}}\n")
        return result

    def _service(self, service: ServiceDescriptorProto, path: Path) -> str:
        body = _block([indented(text) for text in self._statements(service.options, path, _SERVICE)])
        calls = [self._call(method, (*path, 2, i)) for i, method in enumerate(service.method)]
        return f"service {_checked(service.name)} {{{body}{_block([indented(text) for text in calls])}}}\n"

    def _call(self, method: MethodDescriptorProto, path: Path) -> str:
        spelled = self._spelling
        takes = (spelled.name((*path, 2)) if spelled else None) or _checked(method.input_type, _TYPE_NAME)
        gives = (spelled.name((*path, 3)) if spelled else None) or _checked(method.output_type, _TYPE_NAME)
        takes = f"stream {takes}" if method.client_streaming else takes
        gives = f"stream {gives}" if method.server_streaming else gives
        options = self._statements(method.options, path, _METHOD)
        body = " {\n" + "".join(indented(text) for text in options) + "}" if options else ""
        return f"rpc {_checked(method.name)} ({takes}) returns ({gives}){body};\n"


def _groups(fields: Any) -> set[str]:
    """The messages that are written inside the field that uses them (groups and map entries)."""
    return {f.type_name.rpartition(".")[2] for f in fields if f.type == FieldDescriptorProto.TYPE_GROUP}


def default_json_name(name: str) -> str:
    """As protoc: underscores are removed, and the letter after one becomes a capital."""
    return re.sub(r"_+(.?)", lambda m: m[1].upper() if m[1].isascii() else m[1], name)


def _default(field: FieldDescriptorProto) -> str:
    if field.type == FieldDescriptorProto.TYPE_STRING:
        return quote(field.default_value)
    if field.type == FieldDescriptorProto.TYPE_BYTES:
        return f'"{field.default_value}"'  # escaped in the descriptor already
    return str(field.default_value)


def _brackets(texts: list[str]) -> str:
    if not texts:
        return ""
    if len(texts) == 1:
        return f" [{texts[0]}]"
    return " [\n" + indented(",\n".join(texts)) + "]"


def _span(start: int, end: int, largest: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end >= largest else end}"


def _block(texts: list[str]) -> str:
    return "\n" + "".join(texts) if texts else ""


def _checked(name: str, pattern: re.Pattern[str] = _IDENTIFIER) -> str:
    """An untrusted descriptor may contain any text as a name; only valid names may get into the source."""
    if not pattern.match(name):
        raise InvalidSchema(f"{name[:100]!r} is not a Protobuf name")
    return name
