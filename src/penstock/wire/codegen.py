"""Builds Python source code: the lines of one function and the objects that they refer to.

The generators of readers and writers create straight-line code with it: adjacent numbers are packed together,
arrays become inline loops, and nothing is looked up at run time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from penstock.errors import WireError
from penstock.wire.message import Message
from penstock.wire.primitives import ZERO_UUID, encode_uvarint, skip_tags, uuid_at, uvarint
from penstock.wire.schema import LETTER_SIZE, Field, Struct


class Source:
    """The lines of one function, and the objects that they refer to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, Any] = {
            "Message": Message,
            "WireError": WireError,
            "ZERO_UUID": ZERO_UUID,
            "new": object.__new__,
            "pack": struct.pack,
            "skip_tags": skip_tags,
            "unpack_from": struct.unpack_from,
            "uuid_at": uuid_at,
            "uv": encode_uvarint,
            "uvarint": uvarint,
        }

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def name(self, prefix: str, value: Any) -> str:
        for name, known in self.names.items():
            if known is value and name.startswith(prefix):
                return name
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def packer(self, letters: str, verb: str) -> str:
        """The name of a bound pack or unpack_from method for these struct letters."""
        name = f"{verb}_{letters.replace('?', 'B1')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(">" + letters), verb)
        return name

    def function(self, head: str) -> Callable[..., Any]:
        source = head + "\n" + "\n".join(self.lines) + "\n"
        exec(compile(source, "<penstock codec>", "exec"), self.names)
        made: Callable[..., Any] = self.names[head.split()[1].split("(")[0]]
        return made


def size_of(letters: str) -> int:
    return struct.calcsize(">" + letters)


def _smallest(field: Field, flexible: bool) -> int:
    """The minimum size in bytes of a value of this field."""
    if field.is_array:
        return 1 if flexible else 4
    return smallest_item(field, flexible)


def smallest_item(field: Field, flexible: bool) -> int:
    if field.type in LETTER_SIZE:
        return LETTER_SIZE[field.type]
    if field.type == "uuid":
        return 16
    if field.struct is not None:
        return 1 if field.nullable and not field.is_array else _smallest_struct(field.struct)
    if flexible:
        return 1
    return 2 if field.type == "string" else 4


def _smallest_struct(item: Struct) -> int:
    size = sum(_smallest(field, item.flexible) for field in item.fields if field.tag is None)
    return max(1, size + item.flexible)
