"""Compiles a .proto text to descriptors, as Confluent's registry accepts it: without the definitions of
custom options.

protoc reports which custom options are undefined, and which names it looked up in a nested scope first
(inside `package io.confluent`, `confluent.field_meta` is read as `io.confluent.field_meta`). Undefined
options are removed from the text that protoc gets, and kept separately; names of the second kind are written
with a leading dot; then protoc runs again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from penstock.registry.formats.protobuf import protoc
from penstock.registry.formats.protobuf.written_options import WrittenOption, WrittenOptions

Path = tuple[int, ...]
"""Of an element, as in source_code_info: field numbers of descriptor.proto and indexes, by turns."""

_ROUNDS = 20
"""protoc names one option of each element at a time."""

_OF_FILE = {4: "message", 5: "enum", 6: "service", 7: "field"}
_INSIDE: dict[str, dict[int, str]] = {
    "message": {2: "field", 3: "message", 4: "enum", 5: "range", 6: "field", 8: "oneof"},
    "enum": {2: "value"},
    "service": {2: "method"},
}
_IN_BRACKETS = frozenset(("field", "value", "range"))


@dataclass(slots=True)
class _Source:
    """A text, and the custom options that are removed or rewritten for protoc."""

    text: str
    rooted: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    seen: str = ""
    written: WrittenOptions | None = None

    def prepare(self) -> str:
        """The text for protoc."""
        if not self.rooted and not self.unknown:
            self.seen = self.text
            return self.seen
        self.written = WrittenOptions(WrittenOptions(self.text).from_the_root(self.rooted))
        self.seen = self.written.without(self.kept())
        return self.seen

    def kept(self) -> list[WrittenOption]:
        return [each for each in self.written.options if each.name in self.unknown] if self.written else []

    def learn(self, place: tuple[int, int], message: str) -> bool:
        """Handles an error of protoc. False if the error has another cause."""
        if not message.startswith('Option "('):
            return False
        if self.written is None:
            self.written = WrittenOptions(self.text)
        option = next((each for each in self.written.options if each.place == place), None)
        if option is None:
            return False
        if '" unknown.' in message:
            self.unknown.add(option.name)
            return True
        if '" is resolved to "(' in message and not option.name.startswith("(."):
            self.rooted.add(option.name)
            return True
        return False

    def as_written(self, option: WrittenOption) -> str:
        plain = option.name.replace("(.", "(", 1)
        return plain if plain in self.rooted else option.name


@dataclass(frozen=True, slots=True)
class Compiled:
    files: list[FileDescriptorProto]
    """The imported files, then the requested one."""
    source: str
    """The text that source positions refer to."""
    unknown: dict[Path, list[tuple[tuple[int, int], str, str]]]
    """Position, name and value of undefined options, by their element."""


def compile_proto(files: Mapping[str, str], main: str) -> Compiled:
    """Raises InvalidSchema for other errors of protoc."""
    sources = {name: _Source(text) for name, text in files.items()}
    for _ in range(_ROUNDS):
        try:
            data = protoc.compile_files({name: each.prepare() for name, each in sources.items()}, main)
            break
        except protoc.Refused as refused:
            learned = [
                sources[name].learn(place, message)
                for name, place, message in refused.placed
                if name in sources
            ]
            if not any(learned):
                raise
            last = refused
    else:
        raise last
    found = list(FileDescriptorSet.FromString(data).file)
    source = sources[main]
    unknown: dict[Path, list[tuple[tuple[int, int], str, str]]] = {}
    if source.unknown:
        elements = _elements(found[-1])
        for option in source.kept():
            path = _around(elements, option)
            unknown.setdefault(path, []).append((option.place, source.as_written(option), option.value))
    return Compiled(found, source.seen, unknown)


_Element = tuple[tuple[int, int], tuple[int, int], Path, bool]


def _elements(file: FileDescriptorProto) -> list[_Element]:
    """Start, end and path of each element, and whether its options are in brackets; in the order of the
    text.
    """
    found: list[_Element] = []
    for location in file.source_code_info.location:
        kind = _kind(tuple(location.path))
        if kind is None:
            continue
        first, column, *rest = location.span
        end = (rest[0], rest[1]) if len(rest) == 2 else (first, rest[0])
        found.append(((first, column), end, tuple(location.path), kind in _IN_BRACKETS))
    return sorted(found)


def _kind(path: Path) -> str | None:
    """The kind of element; None for other locations, such as that of a name."""
    if not path or len(path) % 2:
        return None
    inside, kind = _OF_FILE, ""
    for number in path[::2]:
        kind = inside.get(number, "")
        inside = _INSIDE.get(kind, {})
    return kind or None


def _around(elements: list[_Element], option: WrittenOption) -> Path:
    """The innermost element that contains an option; () is the file."""
    bracketed = option.brackets is not None
    path: Path = ()
    for start, end, each, in_brackets in elements:
        if start > option.place:
            break
        # Brackets follow the ranges that they belong to, and are not inside them.
        if in_brackets == bracketed and (option.place < end or bracketed):
            path = each
    return path
