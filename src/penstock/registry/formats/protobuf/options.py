"""The options in Protobuf files as text; custom ones are read with the descriptors that define them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor

_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    "'": "\\'",
    '"': '\\"',
}
Place = tuple[int, int]
"""A line and a column of the source."""
_NOWHERE: Place = (0, 0)
_DOTTED = frozenset({"features", "feature_support"})


def quote(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(c) or (c if c >= " " else f"\\{ord(c):03o}") for c in text) + '"'


def quote_bytes(value: bytes) -> str:
    return (
        '"'
        + "".join(_ESCAPES.get(chr(b)) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in value)
        + '"'
    )


def indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.rstrip("\n").split("\n"))


class OptionReader:
    """Turns option messages into `name = value` texts, with the extensions that the files define."""

    def __init__(self, files: list[descriptor_pb2.FileDescriptorProto]) -> None:
        self._classes: dict[str, Any] = {}
        self._pool = None
        if any(file.name == "google/protobuf/descriptor.proto" for file in files):
            # Only then can a file define its own options.
            self._pool = descriptor_pool.DescriptorPool()
            for file in files:
                bare = descriptor_pb2.FileDescriptorProto()
                bare.CopyFrom(file)
                bare.ClearField("source_code_info")
                self._pool.Add(bare)

    def texts(
        self,
        options: Any,
        *,
        normalize: bool,
        extensions: bool = True,
        place: Callable[[int, int], Place] | None = None,
        unknown: Iterable[tuple[Place, str, str]] = (),
    ) -> list[str]:
        """The text of each option that is set, as after `option` or in brackets.

        place     where the source has the nth option of this number: they keep its order unknown   place,
        name and value of options that no file defines
        """
        found = [
            (place(number, index) if place is not None else _NOWHERE, name, text)
            for number, index, name, is_custom, text in self._entries(options, normalize)
            if extensions or not is_custom or name.startswith("(confluent.")
        ]
        found += [each for each in unknown if extensions or each[1].startswith("(confluent.")]
        if normalize:
            found.sort(key=lambda entry: entry[1].strip("()"))
        elif place is not None:
            found.sort(key=lambda entry: entry[0])
        return [f"{name} = {text}" for _, name, text in found]

    def _entries(self, options: Any, normalize: bool) -> Iterator[tuple[int, int, str, bool, str]]:
        if self._pool is not None:
            options = self._as_defined(options)
        for field, value in options.ListFields():
            if field.name == "uninterpreted_option" or field.name == "map_entry":
                continue
            name = f"({field.full_name})" if field.is_extension else field.name
            values = list(value) if field.is_repeated else [value]
            for index, item in enumerate(values):
                if field.name in _DOTTED and not field.is_extension:
                    for inner, below in item.ListFields():
                        if not inner.is_extension:
                            text = _value(inner, below, normalize)
                            yield field.number, index, f"{name}.{inner.name}", False, text
                else:
                    yield field.number, index, name, field.is_extension, _value(field, item, normalize)

    def _as_defined(self, options: Any) -> Any:
        assert self._pool is not None
        name = options.DESCRIPTOR.full_name
        if name not in self._classes:
            self._classes[name] = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))
            for extension in self._pool.FindAllExtensions(self._pool.FindMessageTypeByName(name)):
                message_factory.GetMessageClass(extension.containing_type)
        return self._classes[name].FromString(options.SerializeToString())


def _value(field: FieldDescriptor, value: Any, normalize: bool) -> str:
    kind = field.type
    if kind in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP):
        return _aggregate(value, normalize)
    if kind == FieldDescriptor.TYPE_ENUM:
        found = field.enum_type.values_by_number.get(value)
        return found.name if found is not None else str(value)
    if kind == FieldDescriptor.TYPE_STRING:
        return quote(value)
    if kind == FieldDescriptor.TYPE_BYTES:
        return quote_bytes(value)
    if kind == FieldDescriptor.TYPE_BOOL:
        return "true" if value else "false"
    if kind == FieldDescriptor.TYPE_FLOAT:
        return _float(value)
    if kind == FieldDescriptor.TYPE_DOUBLE:
        return _plain(repr(value))
    return str(value)


def _aggregate(message: Any, normalize: bool) -> str:
    """A message in the form that protoc parses: `{ name: value, … }`."""
    entries: list[tuple[str, str]] = []
    for field, value in message.ListFields():
        name = f"[{field.full_name}]" if field.is_extension else field.name
        if field.type == FieldDescriptor.TYPE_GROUP:
            name = field.message_type.name
        if not field.is_repeated:
            entries.append((name, _value(field, value, normalize)))
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            entries.append((name, listed([_map_entry(field, k, value[k], normalize) for k in sorted(value)])))
        else:
            items = [_value(field, item, normalize) for item in value]
            entries.append((name, items[0] if normalize and len(items) == 1 else listed(items)))
    if normalize:
        entries.sort()
    return (
        "{\n" + indented(",\n".join(f"{name}: {text}" for name, text in entries)) + "}" if entries else "{\n}"
    )


def _map_entry(field: FieldDescriptor, key: Any, value: Any, normalize: bool) -> str:
    parts = field.message_type.fields_by_name
    lines = f"key: {_value(parts['key'], key, normalize)},\nvalue: {_value(parts['value'], value, normalize)}"
    return "{\n" + indented(lines) + "}"


def listed(items: list[str]) -> str:
    return "[\n" + indented(",\n".join(items)) + "]"


def _float(value: float) -> str:
    """The shortest decimal that parses to this 32-bit float."""
    for digits in range(6, 10):
        text = f"{value:.{digits}g}"
        if value != value or value in (float("inf"), float("-inf")):
            return text
        if struct.pack("f", float(text)) == struct.pack("f", value):
            return _plain(repr(float(text)))
    return _plain(repr(value))


def _plain(text: str) -> str:
    return text.removesuffix(".0")
