"""Avro schemas: what is taken, how it is spelled, and what may follow what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.registry.formats import (
    BACKWARD,
    FORWARD,
    InvalidSchema,
    ParsedSchema,
    Reference,
    ResolvedReference,
    check,
    parse,
)


def avro(value: Any, *references: ResolvedReference, strict: bool = True) -> ParsedSchema:
    """A schema from its JSON text, or from the value (a primitive's bare name, a dict, a list)."""
    text = value if isinstance(value, str) and not value.isalpha() else json.dumps(value)
    return parse("AVRO", text, references, strict=strict)


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


# The canonical texts below are what Avro's Java library prints for the same schema.
@pytest.mark.promise(
    "registry", "The stored schema text is the one that Avro's Java library, or Confluent's registry, prints"
)
@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ('"string"', '"string"'),
        ('{"type":"string"}', '"string"'),
        (' { "type" : "int", "logicalType" : "date" } ', '{"type":"int","logicalType":"date"}'),
        ('{"type":"string","doc":"lost, as Java loses it"}', '"string"'),
        ('["null", {"type": "string"}]', '["null","string"]'),
        ('{"items":"int","type":"array","x":1}', '{"type":"array","items":"int","x":1}'),
        ('{"values":["null","long"],"type":"map"}', '{"type":"map","values":["null","long"]}'),
        (
            '{"name":"a.b.F","size":3,"type":"fixed","aliases":["a.b.G","c.H"],"doc":"d","p":null}',
            '{"type":"fixed","name":"F","namespace":"a.b","doc":"d","size":3,"p":null,"aliases":["G","c.H"]}',
        ),
        (
            '{"type":"enum","symbols":["A","B"],"default":"A","name":"E","namespace":"n","x":"y"}',
            '{"type":"enum","name":"E","namespace":"n","symbols":["A","B"],"default":"A","x":"y"}',
        ),
        (
            '{"type":"record","fields":[{"type":"string","name":"f1"}],"name":"R"}',
            '{"type":"record","name":"R","fields":[{"name":"f1","type":"string"}]}',
        ),
        (
            '{"type":"record","name":"R","namespace":"n","doc":"","fields":[{"name":"f","custom":{"b":1,"a":2},'
            '"order":"Descending","aliases":["g"],"default":{"y":1},"doc":"é","type":{"type":"map","values":"int"}}],'
            '"aliases":["Q"],"x":[1]}',
            '{"type":"record","name":"R","namespace":"n","doc":"","fields":[{"name":"f",'
            '"type":{"type":"map","values":"int"},"doc":"é","default":{"y":1},"order":"descending","aliases":["g"],'
            '"custom":{"b":1,"a":2}}],"x":[1],"aliases":["Q"]}',
        ),
        (
            # Names inside take the namespace around them, and are written short where that is the same.
            '{"type":"record","name":"n.R","fields":[{"name":"a","type":{"type":"enum","name":"E","symbols":["X"]}},'
            '{"name":"b","type":"n.E"},{"name":"c","type":["null","R"],"default":null},'
            '{"name":"d","type":{"type":"fixed","name":"m.F","size":1}},{"name":"e","type":"m.F"},'
            '{"name":"f","type":{"type":"fixed","name":"G","namespace":"","size":1}}]}',
            '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":{"type":"enum","name":"E",'
            '"symbols":["X"]}},{"name":"b","type":"E"},{"name":"c","type":["null","R"],"default":null},'
            '{"name":"d","type":{"type":"fixed","name":"F","namespace":"m","size":1}},{"name":"e","type":"m.F"},'
            '{"name":"f","type":{"type":"fixed","name":"G","namespace":"","size":1}}]}',
        ),
        (
            '{"type":"error","name":"Oops","fields":[]}',
            '{"type":"error","name":"Oops","fields":[]}',
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":1e10},'
            '{"name":"b","type":"double","default":0.5},{"name":"c","type":"float","default":"1.5"},'
            '{"name":"d","type":"double","default":"NaN"},{"name":"e","type":"double","default":1},'
            '{"name":"f","type":"double","default":-12345678.25},{"name":"g","type":"double","default":0.0001}]}',
            '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":1.0E10},'
            '{"name":"b","type":"double","default":0.5},{"name":"c","type":"float","default":1.5},'
            '{"name":"d","type":"double","default":"NaN"},{"name":"e","type":"double","default":1},'
            '{"name":"f","type":"double","default":-1.234567825E7},{"name":"g","type":"double","default":1.0E-4}]}',
        ),
        (
            '/* Java\'s parser takes comments */ {"type":"record", // here too\n "name":"R","doc":"http://x",'
            '"fields":[]}',
            '{"type":"record","name":"R","doc":"http://x","fields":[]}',
        ),
    ],
)
def test_the_stored_text_is_the_one_that_avros_java_library_prints(given: str, stored: str) -> None:
    assert avro(given).canonical() == stored
    assert avro(stored).canonical() == stored, "the canonical text stays as it is"


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        (
            '{"type":"record","name":"R","doc":"","zeta":1,"alpha":{"b":1,"a":2},"aliases":["b","a"],"fields":['
            '{"name":"f","type":{"type":"bytes","b":1,"scale":2,"precision":4,"logicalType":"decimal"},'
            '"z":1,"y":2,"aliases":["i","h"],"doc":""}]}',
            '{"type":"record","name":"R","fields":[{"name":"f","type":{"type":"bytes","logicalType":"decimal",'
            '"precision":4,"scale":2,"b":1},"doc":"","aliases":["h","i"],"y":2,"z":1}],"alpha":{"a":2,"b":1},'
            '"zeta":1,"aliases":["a","b"]}',
        ),
        # An invalid logical type is an ordinary property.
        (
            '{"type":"int","logicalType":"timestamp-millis","a":1}',
            '{"type":"int","a":1,"logicalType":"timestamp-millis"}',
        ),
        (
            '{"type":"map","values":"int","z":1,"a":{"y":1,"x":2}}',
            '{"type":"map","values":"int","a":{"x":2,"y":1},"z":1}',
        ),
    ],
)
def test_normalised_texts_put_what_has_no_order_in_order(given: str, normal: str) -> None:
    assert avro(given).normalized() == normal
    assert avro(normal).normalized() == normal


def test_references_define_names_and_stay_names() -> None:
    inner = ResolvedReference("n.Inner", "inner", 1, '{"type":"enum","name":"n.Inner","symbols":["A"]}')
    address = ResolvedReference(
        "n.Address",
        "address",
        2,
        json.dumps(record(field("kind", "Inner"), name="n.Address")),
        (inner,),
    )
    schema = avro(record(field("a", "n.Address"), field("b", "n.Inner"), name="m.User"), address)
    assert schema.references == (Reference("n.Address", "address", 2),)
    assert schema.canonical() == (
        '{"type":"record","name":"User","namespace":"m","fields":'
        '[{"name":"a","type":"n.Address"},{"name":"b","type":"n.Inner"}]}'
    )
    assert '"symbols":["A"]' in schema.formatted("resolved")
    assert avro(schema.formatted("resolved")).canonical() == schema.formatted("resolved")
    assert schema.name == "m.User"
    assert schema.has_top_level_field("a") and not schema.has_top_level_field("kind")


def test_two_references_may_share_what_they_stand_on() -> None:
    shared = ResolvedReference("S", "s", 1, '{"type":"enum","name":"S","symbols":["A"]}')
    left = ResolvedReference("L", "l", 1, json.dumps(record(field("s", "S"), name="L")), (shared,))
    right = ResolvedReference("Q", "q", 1, json.dumps(record(field("s", "S"), name="Q")), (shared,))
    schema = avro(record(field("l", "L"), field("r", "Q")), left, right)
    assert '"type":"L"' in schema.canonical()


def test_a_name_defined_twice_is_taken_when_both_say_the_same() -> None:
    one = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    schema = avro(record(field("a", one), field("b", dict(one))))
    assert schema.canonical().count("symbols") == 1
    with pytest.raises(InvalidSchema, match="Can't redefine: E"):
        avro(record(field("a", one), field("b", {**one, "symbols": ["A"]})))
    with pytest.raises(InvalidSchema, match="Can't redefine: R"):
        avro(record(field("a", record(field("x")))))


def test_references_in_a_circle_are_refused() -> None:
    a = ResolvedReference("A", "a", 1, '"int"')
    around = ResolvedReference("A", "a", 1, '"int"', (ResolvedReference("B", "b", 1, '"int"', (a,)),))
    with pytest.raises(InvalidSchema, match="circle: A -> B -> A"):
        avro('"int"', around)
    assert avro('"int"', a, ResolvedReference("B", "b", 1, '"int"', (a,))), "reached twice is no circle"


def test_a_bad_reference_is_named() -> None:
    with pytest.raises(InvalidSchema, match=r"Reference X \(subject s, version 3\): Not JSON"):
        avro('"int"', ResolvedReference("X", "s", 3, "{"))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("", "Not JSON"),
        ("string", "Not JSON"),
        ('"strin"', "not a defined name"),
        ("3", "not yet supported"),
        ("null", "not yet supported"),
        ("{}", "No type"),
        ('{"type":{"type":"string"}}', "No type"),
        ('{"type":"nope"}', "not a defined name"),
        ('{"type":"array"}', "no items"),
        ('{"type":"map"}', "no values"),
        ('{"type":"fixed","name":"F"}', "size"),
        ('{"type":"fixed","name":"F","size":-1}', "size"),
        ('{"type":"fixed","name":"F","size":true}', "size"),
        ('{"type":"fixed","name":"F","size":99999999999}', "size"),
        ('{"type":"enum","name":"E"}', "no symbols"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "Duplicate enum symbol: A"),
        ('{"type":"enum","name":"E","symbols":["a-b"]}', "Illegal character in: a-b"),
        ('{"type":"enum","name":"E","symbols":[1]}', "Null name"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "not in the enum symbol set"),
        ('{"type":"record","fields":[]}', "No name"),
        ('{"type":"record","name":"R"}', "no fields"),
        ('{"type":"record","name":"","fields":[]}', "Empty name"),
        ('{"type":"record","name":"1R","fields":[]}', "Illegal initial character: 1R"),
        ('{"type":"record","name":"Ré","fields":[]}', "Illegal character in: Ré"),
        ('{"type":"record","name":"a..R","fields":[]}', "Namespace part"),
        ('{"type":"record","name":"int","fields":[]}', "named after primitives"),
        ('{"type":"record","name":"R","fields":[{"type":"int"}]}', "No field name"),
        ('{"type":"record","name":"R","fields":[{"name":"f"}]}', "No field type"),
        ('{"type":"record","name":"R","fields":["f"]}', "No field name"),
        ('{"type":"record","name":"R","fields":[{"name":"f-g","type":"int"}]}', "Illegal character"),
        ('{"type":"record","name":"R","fields":[{"name":"f","type":"int","order":"up"}]}', "order"),
        ('{"type":"record","name":"R","fields":[{"name":"f","type":"int","aliases":"g"}]}', "not an array"),
        ('{"type":"record","name":"R","fields":[{"name":"f","type":"int","aliases":[1]}]}', "not a string"),
        (
            '{"type":"record","name":"R","fields":[{"name":"f","type":"int"},{"name":"f","type":"int"}]}',
            "Duplicate field f in record R",
        ),
        ('["int","int"]', "Duplicate in union: int"),
        ('["int",["string"]]', "Nested union"),
        ('[{"type":"array","items":"int"},{"type":"array","items":"long"}]', "Duplicate in union: array"),
        ('{"type":"int","x":NaN}', "NaN is not a JSON number"),
        ('{"type":"int","x":1e999}', "too large"),
        ('{"type":"int","x":' + "9" * 5000 + "}", "too large"),
        ('{"type":"int","x":"\\ud800"}', "surrogate"),
        ('{"type":"int","x":"\ud800"}', "surrogate"),
        ('{"type":"int"} x', "Not JSON"),
        ('{"type":"int"} /*', "Not JSON"),
        # A name is defined before it is used.
        ('{"type":"record","name":"R","fields":[{"name":"f","type":"E"}]}', "not a defined name"),
        (
            '{"type":"record","name":"R","fields":[{"name":"f","type":"R","default":{}}]}',
            "the fields of that record itself",
        ),
    ],
)
def test_what_is_no_avro_schema_is_refused_with_the_reason(schema: str, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        parse("AVRO", schema, ())


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("null", [None], [0, "null", False]),
        ("boolean", [True, False], [0, "true", None]),
        ("int", [0, -(2**31), 2**31 - 1], [2**31, 1.0, "1", True, None]),
        ("long", [2**31, -(2**63), 2**63 - 1], [2**63, 1.5, False]),
        ("float", [1, 1.5, "1.5", "NaN", "-Infinity"], ["x", None, True, "", "1_0"]),
        ("double", [1, 1.5, 1e300], [None, []]),
        ("string", ["", "x"], [1, None]),
        ("bytes", ["\u00ff"], [1, []]),
        ({"type": "fixed", "name": "F", "size": 2}, ["ab"], [1, None]),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, ["A"], [1, None]),
        ({"type": "array", "items": "int"}, [[], [1, 2]], [["a"], {}, None]),
        ({"type": "map", "values": "int"}, [{}, {"a": 1}], [{"a": "b"}, []]),
        (["null", "int"], [None, 1], ["a", 1.5]),
        (record(field("x", "int"), field("y", "int", default=1), name="I"), [{"x": 1}], [{}, {"x": "a"}, 1]),
    ],
)
def test_defaults_must_be_values_of_their_type(kind: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        avro(record(field("f", kind, default=value)))
    for value in bad:
        with pytest.raises(InvalidSchema, match=r"Invalid default for field f"):
            avro(record(field("f", kind, default=value)))
        if not isinstance(value, str):
            (
                avro(record(field("f", kind, default=value)), strict=False),
                "what is stored already stays readable",
            )


BASE = record(field("f1"))


@pytest.mark.promise(
    "registry",
    "Every compatibility rule of the three formats is checked, and a violation is reported with its reason",
)
@pytest.mark.parametrize(
    ("new", "old", "backward", "forward"),
    [
        # Confluent's own table for records.
        (record(field("f1"), field("f2", default="foo")), BASE, [], []),
        (record(field("f1"), field("f2")), BASE, ["READER_FIELD_MISSING_DEFAULT_VALUE"], []),
        (record(field("f1_new", aliases=["f1"])), BASE, [], ["READER_FIELD_MISSING_DEFAULT_VALUE"]),
        (record(field("f1", ["null", "string"])), BASE, [], ["TYPE_MISMATCH"]),
        (
            record(field("f1", ["null", "string", "int"])),
            record(field("f1", ["null", "string"])),
            [],
            ["MISSING_UNION_BRANCH"],
        ),
        (record(name="Q"), record(), ["NAME_MISMATCH"], ["NAME_MISMATCH"]),
        (record(name="Q", aliases=["R"]), record(), [], ["NAME_MISMATCH"]),
        (record(name="n.R"), record(name="m.R"), [], []),
        # Promotions.
        ("long", "int", [], ["TYPE_MISMATCH"]),
        ("float", "int", [], ["TYPE_MISMATCH"]),
        ("float", "long", [], ["TYPE_MISMATCH"]),
        ("double", "float", [], ["TYPE_MISMATCH"]),
        ("double", "int", [], ["TYPE_MISMATCH"]),
        ("bytes", "string", [], []),
        ("int", "boolean", ["TYPE_MISMATCH"], ["TYPE_MISMATCH"]),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, [], ["TYPE_MISMATCH"]),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, [], ["TYPE_MISMATCH"]),
        (["int"], "int", [], []),
        (["long"], ["int"], [], ["MISSING_UNION_BRANCH"]),
        (["string", "long"], "int", [], ["TYPE_MISMATCH", "TYPE_MISMATCH"]),
        (["null"], "int", ["MISSING_UNION_BRANCH"], ["TYPE_MISMATCH"]),
        # Named types.
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            ["FIXED_SIZE_MISMATCH"],
            ["FIXED_SIZE_MISMATCH"],
        ),
        (
            {"type": "fixed", "name": "G", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            ["NAME_MISMATCH", "FIXED_SIZE_MISMATCH"],
            ["NAME_MISMATCH", "FIXED_SIZE_MISMATCH"],
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            {"type": "enum", "name": "E", "symbols": ["A"]},
            [],
            ["MISSING_ENUM_SYMBOLS"],
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
            {"type": "enum", "name": "E", "symbols": ["B"]},
            [],
            ["MISSING_ENUM_SYMBOLS"],
        ),
        (record(), {"type": "enum", "name": "R", "symbols": []}, ["TYPE_MISMATCH"], ["TYPE_MISMATCH"]),
        # A name that one of several branches has.
        ([record(name="n.A"), record(name="n.B")], [record(name="m.B")], [], ["MISSING_UNION_BRANCH"]),
        ([record(name="A", aliases=["B"])], [record(name="B")], [], ["MISSING_UNION_BRANCH"]),
        # Two of the writer's fields would land in one of the reader's.
        (
            record(field("b", aliases=["a"])),
            record(field("a"), field("b")),
            ["AMBIGUOUS_FIELD_ALIAS"],
            ["READER_FIELD_MISSING_DEFAULT_VALUE"],
        ),
    ],
)
def test_compatibility_rule(new: Any, old: Any, backward: list[str], forward: list[str]) -> None:
    assert kinds(check(avro(new), avro(old), BACKWARD)) == backward
    assert kinds(check(avro(new), avro(old), FORWARD)) == forward
    assert check(avro(new), avro(new), BACKWARD) == []


def kinds(reasons: list[str]) -> list[str]:
    return [reason.removeprefix("{errorType:'").partition("'")[0] for reason in reasons]


def test_reasons_are_confluents_sentences_with_the_path_of_the_field() -> None:
    old = record(
        field("a", record(field("x", "int"), name="I")),
        field("e", {"type": "enum", "name": "E", "symbols": ["A", "C", "B"]}),
    )
    new = record(
        field("a", record(field("x", "string"), field("y"), name="I")),
        field("e", {"type": "enum", "name": "E", "symbols": ["A"]}),
    )
    assert check(avro(new), avro(old), BACKWARD) == [
        "{errorType:'TYPE_MISMATCH', description:'The type (path '/fields/0/type/fields/0/type') of a field "
        "in the new schema does not match with the old schema', additionalInfo:'reader type: STRING not "
        "compatible with writer type: INT'}",
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'y' at path "
        "'/fields/0/type/fields/1' in the new schema has no default value and is missing in the old schema', "
        "additionalInfo:'y'}",
        "{errorType:'MISSING_ENUM_SYMBOLS', description:'The new schema is missing enum symbols '[B, C]' at "
        "path '/fields/1/type/symbols' in the old schema', additionalInfo:'[B, C]'}",
    ]
    assert check(avro(old), avro(new), FORWARD) == [
        reason.replace("old", "?").replace("new", "old").replace("?", "new")
        for reason in check(avro(new), avro(old), BACKWARD)
    ]


def test_recursive_types_are_compared_to_their_end() -> None:
    def tree(leaf: str) -> dict[str, Any]:
        children = {"type": "array", "items": "Tree"}
        return record(field("leaf", leaf), field("children", children), name="Tree")

    assert check(avro(tree("long")), avro(tree("int")), BACKWARD) == []
    assert kinds(check(avro(tree("long")), avro(tree("int")), FORWARD)) == ["TYPE_MISMATCH"]


def test_a_pair_found_incompatible_is_not_believed_elsewhere() -> None:
    """Inside A the pair (B, B') holds on the belief that (A, A') does; when A fails, B is looked at again."""

    def pair(leaf: str) -> list[Any]:
        b = record(field("a", ["null", "A"]), name="B")
        return [record(field("b", b), field("leaf", leaf), name="A"), "B"]

    assert kinds(check(avro(pair("string")), avro(pair("int")), BACKWARD)) == [
        "MISSING_UNION_BRANCH",
        "MISSING_UNION_BRANCH",
    ]


def test_different_types_never_follow_each_other() -> None:
    class Other(type(avro('"int"'))):  # type: ignore[misc]
        schema_type = "JSON"

    other = Other(avro('"int"').raw, (), frozenset())
    assert check(avro('"int"'), other, BACKWARD) == ["Incompatible because of different schema type"]


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="Invalid schema type XML"):
        parse("XML", "<a/>", ())
