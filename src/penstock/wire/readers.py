"""Generates the function that decodes one version of a message, from its schema.

A reader promises: bytes past `end` are never used; an array is created only after its length was compared
with the remaining bytes and with the limit of items; unknown tagged fields are skipped; bytes after the
message are ignored, as in Kafka (librdkafka 2.16 pads a null array).
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.wire.codegen import Source, size_of, smallest_item
from penstock.wire.message import Message
from penstock.wire.primitives import too_many_items
from penstock.wire.schema import LETTER_SIZE, Field, Struct


def reader(schema: Struct, newest: Struct, max_items: int) -> Callable[..., Message]:
    """read(buf, pos, end) -> Message with this version's fields, and defaults for the newest's."""
    out = Source()
    out.names["too_many_items"] = too_many_items
    out.names["max_items"] = max_items
    out.add("left = max_items")
    _read_struct(out, schema, newest, "m0", 0)
    out.add("if pos > end:")
    out.add("    raise WireError('a message is cut short')")
    out.add("return m0")
    return out.function("def read(buf, pos, end):")


def _read_struct(out: Source, schema: Struct, newest: Struct | None, var: str, level: int) -> None:
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


def _read_run(out: Source, run: list[Field], var: str) -> None:
    if not run:
        return
    letters = "".join(field.type for field in run)
    targets = ", ".join(f"{var}.{field.name}" for field in run)
    comma = "," if len(run) == 1 else ""
    out.add(f"{targets}{comma} = {out.packer(letters, 'unpack_from')}(buf, pos)")
    out.add(f"pos += {size_of(letters)}")
    run.clear()


def _fresh_default(out: Source, field: Field) -> str:
    """An expression for the default; lists and structs are created each time, because handlers modify
    them."""
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


def _read_length(out: Source, flexible: bool, classic_letter: str) -> None:
    """Generate code that reads the length into n, -1 for null."""
    if flexible:
        out.add("n = buf[pos] - 1")
        out.add("if n < 127:")
        out.add("    pos += 1")
        out.add("else:")
        out.add("    n, pos = uvarint(buf, pos)")
        out.add("    n -= 1")
    else:
        out.add(f"n, = {out.packer(classic_letter, 'unpack_from')}(buf, pos)")
        out.add(f"pos += {size_of(classic_letter)}")


def _read_field(
    out: Source, field: Field, newest: Struct | None, flexible: bool, target: str, level: int
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
    smallest = smallest_item(field, flexible)
    out.add(f"elif n * {smallest} > end - pos:")
    out.add("    raise WireError(f'an array says it has {n} items in {end - pos} bytes')")
    out.add("else:")
    out.depth += 1
    out.add("left -= n")
    out.add("if left < 0:")
    out.add("    raise too_many_items(max_items)")
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
    out: Source, field: Field, newest: Struct | None, flexible: bool, nullable: bool, target: str, level: int
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


def _read_tags(out: Source, schema: Struct, newest: Struct | None, var: str, level: int) -> None:
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
