"""Generates the function that encodes one version of a message, from its schema.

Fields that the message does not have are written with their defaults, and fields that the version does not
have are omitted. A null in a field that is not nullable in this version raises a ValueError with the name of
the field. Before a default is used, the names of the message are compared with the schema: a misspelled field
raises UnknownField instead of being written as its default. A message that has all fields of the version
needs no comparison.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from penstock.wire.codegen import Source
from penstock.wire.message import Message
from penstock.wire.schema import LETTER_SIZE, Field, FieldNames, Struct

_PACKED_LENGTHS = 17  # arrays of numbers shorter than this are packed together with their length


class UnknownField(TypeError):
    """A message has a field that no version of it has, usually a misspelled name."""

    def __init__(self, struct: str, names: set[str]) -> None:
        super().__init__(f"{struct} has no field {', '.join(sorted(names))}")


def differs(message: Any, defaults: dict[str, Any]) -> bool:
    """Whether a tagged struct must be sent: one that holds only defaults must not (KIP-482)."""
    return message is not None and any(
        getattr(message, name, default) != default for name, default in defaults.items()
    )


def null_error(name: str) -> ValueError:
    return ValueError(f"{name} cannot be null in this version")


def writer(schema: Struct, field_names: Callable[[], FieldNames]) -> Callable[[Any], bytes]:
    """write(message) -> bytes; fields that the message does not have are written with their defaults.

    `field_names` returns the names of all versions, by path; it is called if a message has names that this
    version does not have.
    """

    def check(message: Any, path: str) -> None:
        unknown = vars(message).keys() - field_names()[path]
        if unknown:
            raise UnknownField(path, unknown)

    out = Source()
    out.names.update(differs=differs, null_error=null_error, check=check)
    out.add("out = bytearray()")
    _write_struct(out, schema, "m0", 0, schema.name)
    out.add("return bytes(out)")
    return out.function("def write(m0):")


def _write_struct(out: Source, schema: Struct, var: str, level: int, path: str) -> None:
    if schema.fields:
        out.add("try:")
        for field in schema.fields:
            out.add(f"    v{level}_{field.name} = {var}.{field.name}")
        out.add("except AttributeError:")
        _check_names(out, schema, var, path, "    ")
        for field in schema.fields:
            default = _written_default(out, field)
            out.add(f"    v{level}_{field.name} = getattr({var}, '{field.name}', {default})")
    run: list[tuple[str, str]] = []
    for field in schema.fields:
        if field.tag is not None:
            continue
        value = f"v{level}_{field.name}"
        if field.type in LETTER_SIZE and not field.is_array:
            run.append((field.type, value))
            continue
        _write_run(out, run)
        _write_field(out, field, schema.flexible, value, level, f"{path}.{field.name}")
    if schema.flexible:
        tagged = [field for field in schema.fields if field.tag is not None]
        if tagged:
            _write_run(out, run)
            _write_tags(out, tagged, level, path)
        else:
            run.append(("x", ""))  # no tagged fields: a zero byte
    _write_run(out, run)


def _check_names(out: Source, schema: Struct, var: str, path: str, indent: str = "") -> None:
    has_all = out.name("K", frozenset(field.name for field in schema.fields).issuperset)
    out.add(f"{indent}if not {has_all}({var}.__dict__):")
    out.add(f"{indent}    check({var}, {path!r})")


def _written_default(out: Source, field: Field) -> str:
    if field.default is None:
        return "None"
    if field.is_array:
        return "()"
    if field.struct is not None:
        return "None" if field.tag is not None else out.name("E", Message())
    return "ZERO_UUID" if field.type == "uuid" else repr(field.default)


def _write_run(out: Source, run: list[tuple[str, str]]) -> None:
    if not run:
        return
    letters = "".join(letter for letter, _ in run)
    if letters == "x":
        out.add("out.append(0)")
    else:
        values = ", ".join(value for _, value in run if value)
        out.add(f"out += {out.packer(letters, 'pack')}({values})")
    run.clear()


def _write_length(out: Source, flexible: bool, classic_letter: str) -> None:
    """Generate code that writes the length in n."""
    if flexible:
        out.add("if n < 127:")
        out.add("    out.append(n + 1)")
        out.add("else:")
        out.add("    out += uv(n + 1)")
    else:
        out.add(f"out += {out.packer(classic_letter, 'pack')}(n)")


def _write_null(out: Source, flexible: bool, width: int) -> None:
    null = b"\x00" if flexible else b"\xff" * width
    out.add(f"out += {null!r}")


def _write_field(out: Source, field: Field, flexible: bool, value: str, level: int, path: str) -> None:
    if not field.is_array:
        _write_item(out, field, flexible, field.nullable, value, level, path)
        return
    out.add(f"if {value} is None:")
    out.depth += 1
    if field.nullable:
        _write_null(out, flexible, 4)
    else:
        out.add(f"raise null_error({path!r})")
    out.depth -= 1
    out.add("else:")
    out.depth += 1
    out.add(f"n = len({value})")
    if field.type in LETTER_SIZE:
        head = "B" if flexible else "i"
        plus = " + 1" if flexible else ""
        table = f"packs_{head}{field.type.replace('?', 'B1')}"
        out.names.setdefault(
            table, [struct.Struct(f">{head}{n}{field.type}").pack for n in range(_PACKED_LENGTHS)]
        )
        out.add(f"if n < {_PACKED_LENGTHS}:")
        out.add(f"    out += {table}[n](n{plus}, *{value})")
        out.add("else:")
        out.depth += 1
        _write_length(out, flexible, "i")
        out.add(f"out += pack(f'>{{n}}{field.type}', *{value})")
        out.depth -= 1
    else:
        _write_length(out, flexible, "i")
        out.add(f"for m{level + 1} in {value}:")
        out.depth += 1
        _write_item(out, field, flexible, False, f"m{level + 1}", level, path)
        out.depth -= 1
    out.depth -= 1


def _write_item(
    out: Source, field: Field, flexible: bool, nullable: bool, value: str, level: int, path: str
) -> None:
    if field.type in LETTER_SIZE:
        out.add(f"out += {out.packer(field.type, 'pack')}({value})")
        return
    if field.type == "uuid":
        out.add(f"out += ({value} or ZERO_UUID).bytes")
        return
    out.add(f"if {value} is None:")
    out.depth += 1
    if not nullable:
        out.add(f"raise null_error({path!r})")
    elif field.struct is not None:
        out.add("out.append(255)")
    else:
        _write_null(out, flexible, 2 if field.type == "string" else 4)
    out.depth -= 1
    if field.struct is not None:
        if nullable:
            out.add("else:")
            out.depth += 1
            out.add("out.append(1)")
        _write_struct(out, field.struct, value, level + 1, path)
        if nullable:
            out.depth -= 1
        return
    out.add("else:")
    out.depth += 1
    if field.type == "string":
        out.add(f"raw = {value}.encode()")
        raw, letter = "raw", "h"
    else:
        raw, letter = value, "i"
    out.add(f"n = len({raw})")
    _write_length(out, flexible, letter)
    out.add(f"out += {raw}")
    out.depth -= 1


def _write_tags(out: Source, tagged: list[Field], level: int, path: str) -> None:
    flags = []
    for field in tagged:
        flag = f"f{level}_{field.tag}"
        flags.append(flag)
        value = f"v{level}_{field.name}"
        if field.struct is not None and not field.is_array and field.default is not None:
            # A struct that would be omitted, because all its known fields have their defaults.
            out.add(f"if {value} is not None:")
            out.depth += 1
            _check_names(out, field.struct, value, f"{path}.{field.name}")
            out.depth -= 1
        out.add(f"{flag} = {_must_be_sent(out, field, value)}")
    out.add(f"out.append({' + '.join(flags)})")
    for field, flag in sorted(zip(tagged, flags, strict=True), key=lambda pair: pair[0].tag or 0):
        out.add(f"if {flag}:")
        out.depth += 1
        out.add(f"o{level} = out")
        out.add("out = bytearray()")
        _write_field(out, field, True, f"v{level}_{field.name}", level, f"{path}.{field.name}")
        out.add(f"o{level} += uv({field.tag}) + uv(len(out)) + out")
        out.add(f"out = o{level}")
        out.depth -= 1


def _must_be_sent(out: Source, field: Field, value: str) -> str:
    if field.default is None:
        return f"{value} is not None"
    if field.is_array:
        return f"bool({value})"
    if field.struct is not None:
        defaults = {item.name: item.default for item in field.struct.fields}
        return f"differs({value}, {out.name('D', defaults)})"
    if field.type == "uuid":
        return f"bool({value} and {value} != ZERO_UUID)"
    return f"{value} != {field.default!r}"
