"""Generated Avro schemas: what passes as compatible is read, by fastavro, and Avro's own checker agrees."""

from __future__ import annotations

import copy
import io
import json
from typing import Any

import avro.compatibility
import avro.schema
import fastavro
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from penstock.registry.formats import BACKWARD, FORWARD, check, parse

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
DEFAULTS: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 1.5,
    "double": 2.5,
    "bytes": "b",
    "string": "s",
}


class Names:
    """Each named type gets a name of its own, the same in a schema and in what it evolves into."""

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> str:
        self.count += 1
        return f"N{self.count}"


def draw_type(draw: st.DrawFn, names: Names, depth: int, *, in_union: bool = False) -> Any:
    kinds = ["primitive"] * 4 + (["array", "map", "record", "enum", "fixed"] if depth else [])
    if depth and not in_union:
        kinds.append("union")
    kind = draw(st.sampled_from(kinds))
    if kind == "primitive":
        return draw(st.sampled_from(PRIMITIVES))
    if kind == "array":
        return {"type": "array", "items": draw_type(draw, names, depth - 1)}
    if kind == "map":
        return {"type": "map", "values": draw_type(draw, names, depth - 1)}
    if kind == "enum":
        symbols = draw(st.lists(st.sampled_from("ABCD"), min_size=1, unique=True))
        schema: dict[str, Any] = {"type": "enum", "name": names.next(), "symbols": symbols}
        if draw(st.booleans()):
            schema["default"] = symbols[0]
        return schema
    if kind == "fixed":
        return {"type": "fixed", "name": names.next(), "size": draw(st.integers(0, 2))}
    if kind == "union":
        return draw_union(draw, names, depth)
    return draw_record(draw, names, depth)


def draw_union(draw: st.DrawFn, names: Names, depth: int) -> list[Any]:
    branches: dict[str, Any] = {}
    for _ in range(draw(st.integers(1, 3))):
        branch = draw_type(draw, names, depth - 1, in_union=True)
        branches.setdefault(branch if isinstance(branch, str) else branch.get("name", branch["type"]), branch)
    return list(branches.values())


def draw_record(draw: st.DrawFn, names: Names, depth: int) -> dict[str, Any]:
    name = names.next()
    chosen = draw(st.lists(st.sampled_from("abc"), unique=True, max_size=3))
    return {
        "type": "record",
        "name": name,
        "fields": [draw_field(draw, names, f, depth, name) for f in chosen],
    }


def draw_field(draw: st.DrawFn, names: Names, name: str, depth: int, record: str) -> dict[str, Any]:
    if depth and draw(st.integers(0, 5)) == 0:
        return {"name": name, "type": ["null", record], "default": None}
    kind = draw_type(draw, names, depth - 1 if depth else 0)
    field: dict[str, Any] = {"name": name, "type": kind}
    if isinstance(kind, str) and draw(st.booleans()):
        field["default"] = DEFAULTS[kind]
    return field


def evolve(draw: st.DrawFn, schema: Any, names: Names) -> Any:
    """The schema after a few changes, of which some are compatible."""
    if draw(st.integers(0, 7)) == 0:
        return draw_type(draw, names, 1)
    if isinstance(schema, str):
        if schema in PRIMITIVES and draw(st.integers(0, 4)) == 0:
            return draw(
                st.sampled_from([*PRIMITIVES, ["null", schema] if schema != "null" else ["null", "int"]])
            )
        return schema
    if isinstance(schema, list):
        branches = [evolve(draw, b, names) for b in schema]
        branches += draw(st.sampled_from([[], [], ["null"], ["string"]]))
        unique: dict[str, Any] = {}
        for branch in branches:
            for one in branch if isinstance(branch, list) else [branch]:
                unique.setdefault(one if isinstance(one, str) else one.get("name", one["type"]), one)
        return list(unique.values())
    new = copy.deepcopy(schema)
    if new["type"] == "array":
        new["items"] = evolve(draw, new["items"], names)
    elif new["type"] == "map":
        new["values"] = evolve(draw, new["values"], names)
    elif new["type"] == "enum" and draw(st.booleans()):
        new["symbols"] = draw(st.lists(st.sampled_from("ABCD"), min_size=1, unique=True))
        if new.get("default") not in new["symbols"]:
            new.pop("default", None)
    elif new["type"] == "record":
        for field in new["fields"]:
            kind = evolve(draw, field["type"], names)
            if kind != field["type"]:
                field.pop("default", None)
            field["type"] = kind
        change = draw(st.integers(0, 5))
        if change == 0 and new["fields"]:
            del new["fields"][0]
        elif change == 1:
            new["fields"].append({"name": "z", "type": "int", **draw(st.sampled_from([{}, {"default": 7}]))})
        elif change == 2 and new["fields"]:
            field = new["fields"][0]
            field["aliases"], field["name"] = [field["name"]], "renamed"
    return new


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    names = Names()
    old = draw_type(draw, names, 3)
    return old, evolve(draw, old, names)


def datum(draw: st.DrawFn, schema: Any, known: dict[str, Any], depth: int = 0) -> Any:
    if isinstance(schema, str) and schema in known:
        schema = known[schema]
    if isinstance(schema, list):
        branch = schema[0] if depth > 4 else draw(st.sampled_from(schema))
        value = datum(draw, branch, known, depth + 1)
        return (branch["name"], value) if isinstance(branch, dict) and "name" in branch else value
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in PRIMITIVES:
        return draw(
            {
                "null": st.none(),
                "boolean": st.booleans(),
                "int": st.integers(-(2**31), 2**31 - 1),
                "long": st.integers(-(2**63), 2**63 - 1),
                "float": st.floats(width=32, allow_nan=False),
                "double": st.floats(allow_nan=False),
                "bytes": st.just(b"ascii"),  # bytes are read as a string only where they are UTF-8
                "string": st.text(max_size=3),
            }[kind]
        )
    if "name" in schema:
        known[schema["name"]] = schema
    if kind == "array":
        return [datum(draw, schema["items"], known, depth + 1) for _ in range(draw(st.integers(0, 2)))]
    if kind == "map":
        return {
            f"k{i}": datum(draw, schema["values"], known, depth + 1) for i in range(draw(st.integers(0, 2)))
        }
    if kind == "enum":
        return draw(st.sampled_from(schema["symbols"]))
    if kind == "fixed":
        return b"x" * schema["size"]
    return {f["name"]: datum(draw, f["type"], known, depth + 1) for f in schema["fields"]}


@pytest.mark.promise(
    "registry", "Data written with a schema can be read with every schema that passed as compatible with it"
)
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(pairs(), st.data())
def test_data_of_the_old_schema_is_read_by_a_new_one_that_passed(
    pair: tuple[Any, Any], data: st.DataObject
) -> None:
    old, new = pair
    note(f"old {json.dumps(old)}")
    note(f"new {json.dumps(new)}")
    reader, writer = parse("AVRO", json.dumps(new)), parse("AVRO", json.dumps(old))
    backward = check(reader, writer, BACKWARD)
    assert check(reader, reader, BACKWARD) == []
    assert check(reader, reader, FORWARD) == []
    # FORWARD is BACKWARD with the two in each other's place.
    assert len(check(writer, reader, FORWARD)) == len(backward)
    if backward:
        return
    value = data.draw(st.composite(lambda draw: datum(draw, old, {}))())
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(copy.deepcopy(old)), value)
    buffer.seek(0)
    fastavro.schemaless_reader(
        buffer, fastavro.parse_schema(copy.deepcopy(old)), fastavro.parse_schema(copy.deepcopy(new))
    )


@pytest.mark.promise("registry", "Avro's own compatibility checker gives the same verdicts")
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(pairs())
def test_avros_own_checker_gives_the_same_verdict(pair: tuple[Any, Any]) -> None:
    old, new = (json.dumps(schema) for schema in pair)
    note(f"old {old}")
    note(f"new {new}")
    theirs = avro.compatibility.ReaderWriterCompatibilityChecker().get_compatibility(
        avro.schema.parse(new), avro.schema.parse(old)
    )
    compatible = theirs.compatibility is avro.compatibility.SchemaCompatibilityType.compatible
    assert (check(parse("AVRO", new), parse("AVRO", old), BACKWARD) == []) == compatible


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(pairs())
def test_canonical_and_normalised_texts_mean_the_same_and_stay(pair: tuple[Any, Any]) -> None:
    schema = parse("AVRO", json.dumps(pair[0]))
    for text in (schema.canonical(), schema.normalized()):
        again = parse("AVRO", text)
        assert check(again, schema, BACKWARD) == check(again, schema, FORWARD) == []
        # The parsing canonical form, by which Avro tells schemas apart, is the same.
        assert fastavro.schema.to_parsing_canonical_form(json.loads(text)) == (
            fastavro.schema.to_parsing_canonical_form(copy.deepcopy(pair[0]))
        )
    assert parse("AVRO", schema.canonical()).canonical() == schema.canonical()
    assert parse("AVRO", schema.normalized()).normalized() == schema.normalized()
