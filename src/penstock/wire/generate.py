"""Python source for reading and writing one version of one message, made from its schema.

Straight-line code: neighbouring numbers are packed together, arrays are loops in place, nothing is
looked up while it runs. What a reader promises: no byte past `end` is believed, an array is made only
after its length was compared with the bytes that are left, unknown tagged fields are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from penstock.errors import WireError
from penstock.wire.message import Message
from penstock.wire.primitives import ZERO_UUID, encode_uvarint, skip_tags, uuid_at, uvarint
from penstock.wire.schema import LETTER_SIZE, Field, Struct

_PACKED_LENGTHS = 17  # arrays of numbers shorter than this are packed with their length at once


def differs(message: Any, defaults: dict[str, Any]) -> bool:
    """Whether a tagged struct must be sent: one that holds only defaults must not (KIP-482)."""
    return message is not None and any(
        getattr(message, name, default) != default for name, default in defaults.items()
    )


def null_error(name: str) -> ValueError:
    return ValueError(f"{name} cannot be null in this version")


class _Source:
    """Lines of one function, and the objects that they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, Any] = {
            "Message": Message,
            "WireError": WireError,
            "ZERO_UUID": ZERO_UUID,
            "differs": differs,
            "new": object.__new__,
            "null_error": null_error,
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
        """The name of a bound pack or unpack_from for these struct letters."""
        name = f"{verb}_{letters.replace('?', 'B1')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(">" + letters), verb)
        return name

    def function(self, head: str) -> Callable[..., Any]:
        source = head + "\n" + "\n".join(self.lines) + "\n"
        exec(compile(source, "<penstock codec>", "exec"), self.names)
        made: Callable[..., Any] = self.names[head.split()[1].split("(")[0]]
        return made


def _size(letters: str) -> int:
    return struct.calcsize(">" + letters)


def _smallest(field: Field, flexible: bool) -> int:
    """The fewest bytes that a value of this field can take."""
    if field.is_array:
        return 1 if flexible else 4
    return _smallest_item(field, flexible)


def _smallest_item(field: Field, flexible: bool) -> int:
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


# -- reading ---------------------------------------------------------------------------------------


def reader(schema: Struct, newest: Struct) -> Callable[..., Message]:
    """read(buf, pos, end) -> Message with this version's fields, and defaults for the newest's."""
    out = _Source()
    _read_struct(out, schema, newest, "m0", 0)
    out.add("if pos != end:")
    out.add("    raise WireError(f'{end - pos} bytes follow the end of a message')")
    out.add("return m0")
    return out.function("def read(buf, pos, end):")


def _read_struct(out: _Source, schema: Struct, newest: Struct | None, var: str, level: int) -> None:
    out.add(f"{var} = new({out.name('T', type(schema.name, (Message,), {}))})")
    if newest is not None:
        for field in newest.fields:
            if schema.field(field.name) is None:
                out.add(f"{var}.{field.name} = {_fresh_default(out, field)}")
    run: list[Field] = []
    for field in schema.fields:
        if field.tag is not None:
            continue
        if field.type in LETTER_SIZE and not field.is_array:
            run.append(field)
            continue
        _read_run(out, run, var)
        _read_field(out, field, _newest_struct(newest, field), schema.flexible, f"{var}.{field.name}", level)
    _read_run(out, run, var)
    if schema.flexible:
        _read_tags(out, schema, newest, var, level)


def _newest_struct(newest: Struct | None, field: Field) -> Struct | None:
    twin = newest.field(field.name) if newest is not None else None
    return twin.struct if twin is not None else None


def _read_run(out: _Source, run: list[Field], var: str) -> None:
    if not run:
        return
    letters = "".join(field.type for field in run)
    targets = ", ".join(f"{var}.{field.name}" for field in run)
    comma = "," if len(run) == 1 else ""
    out.add(f"{targets}{comma} = {out.packer(letters, 'unpack_from')}(buf, pos)")
    out.add(f"pos += {_size(letters)}")
    run.clear()


def _fresh_default(out: _Source, field: Field) -> str:
    """An expression for the default; a new list or struct each time, because handlers change them."""
    if field.default is None:
        return "None"
    if field.is_array:
        return "[]"
    if field.struct is not None:
        inner = ", ".join(f"{item.name}={_fresh_default(out, item)}" for item in field.struct.fields)
        return f"Message({inner})"
    if field.type == "uuid":
        return "ZERO_UUID"
    return repr(field.default)


def _read_length(out: _Source, flexible: bool, classic_letter: str) -> None:
    """Put the length into n, -1 for null."""
    if flexible:
        out.add("n = buf[pos] - 1")
        out.add("if n < 127:")
        out.add("    pos += 1")
        out.add("else:")
        out.add("    n, pos = uvarint(buf, pos)")
        out.add("    n -= 1")
    else:
        out.add(f"n, = {out.packer(classic_letter, 'unpack_from')}(buf, pos)")
        out.add(f"pos += {_size(classic_letter)}")


def _read_field(
    out: _Source, field: Field, newest: Struct | None, flexible: bool, target: str, level: int
) -> None:
    if not field.is_array:
        _read_item(out, field, newest, flexible, field.nullable, target, level)
        return
    _read_length(out, flexible, "i")
    out.add("if n < 0:")
    if field.nullable:
        out.add("    if n != -1:")
        out.add("        raise WireError(f'an array has length {n}')")
        out.add(f"    {target} = None")
    else:
        out.add("    raise WireError(f'an array has length {n}')")
    smallest = _smallest_item(field, flexible)
    out.add(f"elif n * {smallest} > end - pos:")
    out.add("    raise WireError(f'an array says it has {n} items in {end - pos} bytes')")
    out.add("else:")
    out.depth += 1
    if field.type in LETTER_SIZE:
        out.add(f"{target} = list(unpack_from(f'>{{n}}{field.type}', buf, pos))")
        out.add(f"pos += n * {LETTER_SIZE[field.type]}")
    else:
        out.add(f"{target} = a{level} = []")
        out.add("for _ in range(n):")
        out.depth += 1
        item = f"m{level + 1}"
        _read_item(out, field, newest, flexible, False, item, level + 1)
        out.add(f"a{level}.append({item})")
        out.depth -= 1
    out.depth -= 1


def _read_item(
    out: _Source, field: Field, newest: Struct | None, flexible: bool, nullable: bool, target: str, level: int
) -> None:
    if field.type in LETTER_SIZE:
        out.add(f"{target}, = {out.packer(field.type, 'unpack_from')}(buf, pos)")
        out.add(f"pos += {LETTER_SIZE[field.type]}")
    elif field.type == "uuid":
        out.add(f"{target} = uuid_at(buf, pos)")
        out.add("pos += 16")
    elif field.struct is not None:
        item = target if target.startswith("m") and "." not in target else f"m{level + 1}"
        if nullable:
            # A nullable struct starts with a byte, negative for null.
            out.add("n = buf[pos]")
            out.add("pos += 1")
            out.add("if n > 127:")
            out.add(f"    {target} = None")
            out.add("else:")
            out.depth += 1
        _read_struct(out, field.struct, newest, item, level + 1)
        if item != target:
            out.add(f"{target} = {item}")
        if nullable:
            out.depth -= 1
    else:
        _read_length(out, flexible, "h" if field.type == "string" else "i")
        out.add("if n < 0:")
        if nullable:
            out.add("    if n != -1:")
            out.add("        raise WireError(f'a field has length {n}')")
            out.add(f"    {target} = None")
        else:
            out.add("    raise WireError(f'a field has length {n}')")
        out.add("elif n > end - pos:")
        out.add("    raise WireError(f'a field of {n} bytes goes past the end of a message')")
        out.add("else:")
        how = "str(buf[pos:pos + n], 'utf-8')" if field.type == "string" else "bytes(buf[pos:pos + n])"
        out.add(f"    {target} = {how}")
        out.add("    pos += n")


def _read_tags(out: _Source, schema: Struct, newest: Struct | None, var: str, level: int) -> None:
    tagged = [field for field in schema.fields if field.tag is not None]
    for field in tagged:
        out.add(f"{var}.{field.name} = {_fresh_default(out, field)}")
    out.add("if not buf[pos]:")
    out.add("    pos += 1")
    out.add("else:")
    if not tagged:
        out.add("    pos = skip_tags(buf, pos, end)")
        return
    out.depth += 1
    out.add(f"t{level}, pos = uvarint(buf, pos)")
    out.add(f"if t{level} > end - pos:")
    out.add(f"    raise WireError(f'{{t{level}}} tagged fields do not fit in {{end - pos}} bytes')")
    out.add(f"for _ in range(t{level}):")
    out.depth += 1
    out.add("t, pos = uvarint(buf, pos)")
    out.add("n, pos = uvarint(buf, pos)")
    out.add(f"e{level} = pos + n")
    out.add(f"if e{level} > end:")
    out.add("    raise WireError('a tagged field goes past the end of a message')")
    for number, field in enumerate(tagged):
        out.add(f"{'if' if number == 0 else 'elif'} t == {field.tag}:")
        out.depth += 1
        _read_field(out, field, _newest_struct(newest, field), True, f"{var}.{field.name}", level)
        out.add(f"if pos != e{level}:")
        out.add(f"    raise WireError('tagged field {field.name} has a wrong size')")
        out.depth -= 1
    out.add("else:")
    out.add(f"    pos = e{level}")
    out.depth -= 2


# -- writing ---------------------------------------------------------------------------------------


def writer(schema: Struct) -> Callable[[Any], bytes]:
    """write(message) -> bytes; fields that the message has not are sent as their defaults."""
    out = _Source()
    out.add("out = bytearray()")
    _write_struct(out, schema, "m0", 0, schema.name)
    out.add("return bytes(out)")
    return out.function("def write(m0):")


def _write_struct(out: _Source, schema: Struct, var: str, level: int, path: str) -> None:
    if schema.fields:
        out.add("try:")
        for field in schema.fields:
            out.add(f"    v{level}_{field.name} = {var}.{field.name}")
        out.add("except AttributeError:")
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


def _written_default(out: _Source, field: Field) -> str:
    if field.default is None:
        return "None"
    if field.is_array:
        return "()"
    if field.struct is not None:
        return "None" if field.tag is not None else out.name("E", Message())
    return "ZERO_UUID" if field.type == "uuid" else repr(field.default)


def _write_run(out: _Source, run: list[tuple[str, str]]) -> None:
    if not run:
        return
    letters = "".join(letter for letter, _ in run)
    if letters == "x":
        out.add("out.append(0)")
    else:
        values = ", ".join(value for _, value in run if value)
        out.add(f"out += {out.packer(letters, 'pack')}({values})")
    run.clear()


def _write_length(out: _Source, flexible: bool, classic_letter: str) -> None:
    """Write the length that is in n."""
    if flexible:
        out.add("if n < 127:")
        out.add("    out.append(n + 1)")
        out.add("else:")
        out.add("    out += uv(n + 1)")
    else:
        out.add(f"out += {out.packer(classic_letter, 'pack')}(n)")


def _write_null(out: _Source, flexible: bool, width: int) -> None:
    null = b"\x00" if flexible else b"\xff" * width
    out.add(f"out += {null!r}")


def _write_field(out: _Source, field: Field, flexible: bool, value: str, level: int, path: str) -> None:
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
    out: _Source, field: Field, flexible: bool, nullable: bool, value: str, level: int, path: str
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


def _write_tags(out: _Source, tagged: list[Field], level: int, path: str) -> None:
    flags = []
    for field in tagged:
        flag = f"f{level}_{field.tag}"
        flags.append(flag)
        out.add(f"{flag} = {_must_be_sent(out, field, f'v{level}_{field.name}')}")
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


def _must_be_sent(out: _Source, field: Field, value: str) -> str:
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
