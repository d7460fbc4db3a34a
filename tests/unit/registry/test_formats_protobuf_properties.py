"""Generated Protobuf schemas: data of the old one is read by a new one that passed as compatible."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from penstock.registry.formats import BACKWARD, FORWARD, check, parse

SCALARS = {
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "sint32": st.integers(-(2**31), 2**31 - 1),
    "fixed32": st.integers(0, 2**32 - 1),
    "sfixed32": st.integers(-(2**31), 2**31 - 1),
    "fixed64": st.integers(0, 2**64 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "string": st.text(max_size=5),
    "bytes": st.just(b"ascii"),  # bytes are read as a string only where they are UTF-8
}
KINDS = [*SCALARS, "E", "Inner", "map<string, int32>", "map<int32, Inner>"]


@st.composite
def fields(draw: st.DrawFn, syntax: str) -> dict[int, dict[str, Any]]:
    """What each field number stands for."""
    found = {}
    for number in draw(st.lists(st.integers(1, 6), unique=True, max_size=5)):
        found[number] = draw_field(draw, syntax)
    return found


def draw_field(draw: st.DrawFn, syntax: str) -> dict[str, Any]:
    kind = draw(st.sampled_from(KINDS))
    labels = ["optional", "repeated", "required"] if syntax == "proto2" else ["", "", "optional", "repeated"]
    is_map = kind.startswith("map")
    label = "" if is_map else draw(st.sampled_from(labels))
    oneof = (
        draw(st.sampled_from([None, None, "o", "p"])) if not is_map and label in ("", "optional") else None
    )
    return {"kind": kind, "label": "" if oneof else label, "oneof": oneof}


def text(syntax: str, described: dict[int, dict[str, Any]]) -> str:
    lines, oneofs = [], {"o": "", "p": ""}
    for number, field in described.items():
        line = f"{field['label']} {field['kind']} f{number} = {number};".strip()
        if field["oneof"]:
            oneofs[field["oneof"]] += f" {line}"
        else:
            lines.append(f"  {line}")
    lines += [f"  oneof {name} {{{body} }}" for name, body in oneofs.items() if body]
    optional = "optional " if syntax == "proto2" else ""
    body = "\n".join(lines)
    return (
        f'syntax = "{syntax}";\npackage p;\nenum E {{ Z = 0; A = 1; }}\n'
        f"message Inner {{ {optional}int32 x = 1; {optional}M m = 2; }}\nmessage M {{\n{body}\n}}\n"
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, str]:
    syntax = draw(st.sampled_from(["proto2", "proto3"]))
    old = draw(fields(syntax))
    new = dict(old)
    for number in draw(st.lists(st.integers(1, 7), max_size=3)):
        if number in new and draw(st.booleans()):
            del new[number]
        elif number in new and draw(st.booleans()):
            new[number] = {**new[number], "kind": draw(st.sampled_from([*SCALARS, "E"]))}
            if not new[number]["label"] and syntax == "proto2" and not new[number]["oneof"]:
                new[number]["label"] = "optional"
        else:
            new[number] = draw_field(draw, syntax)
    return text(syntax, old), text(syntax, new)


def message_class(schema: Any) -> Any:
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.formatted("serialized")))
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.M"))


def fill(draw: st.DrawFn, message: Any) -> None:
    for field in message.DESCRIPTOR.fields:
        if not field.is_required and draw(st.booleans()):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            target = getattr(message, field.name)
            if field.message_type.fields_by_name["value"].message_type is not None:
                target[1].x = 5
            else:
                target["k"] = 7
        elif field.message_type is not None:
            inner = getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name)
            inner.x = 3
        elif field.enum_type is not None:
            set_field(message, field, 1)
        else:
            name = descriptor_pb2.FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
            set_field(message, field, draw(SCALARS[name]))


def set_field(message: Any, field: Any, value: Any) -> None:
    if field.is_repeated:
        getattr(message, field.name).extend([value, value])
    else:
        setattr(message, field.name, value)


@pytest.mark.promise(
    "registry", "Data written with a schema can be read with every schema that passed as compatible with it"
)
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(pairs(), st.data())
def test_data_of_the_old_schema_is_read_by_a_new_one_that_passed(
    pair: tuple[str, str], data: st.DataObject
) -> None:
    old_text, new_text = pair
    note(f"old {old_text}")
    note(f"new {new_text}")
    old, new = parse("PROTOBUF", old_text), parse("PROTOBUF", new_text)
    assert check(new, parse("PROTOBUF", new.normalized()), BACKWARD) == []
    backward = check(new, old, BACKWARD)
    assert len(check(old, new, FORWARD)) == len(backward)
    if backward:
        return
    written = message_class(old)()
    data.draw(st.composite(lambda draw: fill(draw, written))())
    read = message_class(new).FromString(written.SerializeToString())
    for field in written.DESCRIPTOR.fields:
        same = read.DESCRIPTOR.fields_by_number.get(field.number)
        if same is None or same.message_type is not None or field.is_repeated != same.is_repeated:
            continue
        if same.type == field.type:
            assert getattr(read, same.name) == getattr(written, field.name)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(pairs())
def test_canonical_and_normalised_texts_and_descriptors_mean_the_same_and_stay(pair: tuple[str, str]) -> None:
    schema = parse("PROTOBUF", pair[0])
    text, normal = schema.canonical(), schema.normalized()
    assert parse("PROTOBUF", text).canonical() == text
    assert parse("PROTOBUF", normal).normalized() == normal
    sent = parse("PROTOBUF", schema.formatted("serialized"))
    for again in (parse("PROTOBUF", text), parse("PROTOBUF", normal), sent):
        assert again.normalized() == normal
        assert check(again, schema, BACKWARD) == check(again, schema, FORWARD) == []
