"""JSON Schemas: what is taken, how it is spelled, and what may follow what."""

from __future__ import annotations

import json
import re
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

DRAFTS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}


def js(
    value: Any, *references: ResolvedReference, draft: int | None = None, strict: bool = True
) -> ParsedSchema:
    if draft is not None and isinstance(value, dict):
        value = {"$schema": DRAFTS[draft], **value}
    text = value if isinstance(value, str) else json.dumps(value)
    return parse("JSON", text, references, strict=strict)


def found(reasons: list[str]) -> list[str]:
    return [
        f"{m[1]} {m[2]}"
        for r in reasons
        if (m := re.match(r'\{errorType:"(\w+)", description:".*?\'(#[^\']*)\'', r))
    ]


@pytest.mark.parametrize(
    ("given", "stored", "normal"),
    [
        ("true", "true", "true"),
        (
            ' { "type" : "object",\n "a" : [1, 1.0, 1e10, null] } ',
            '{"type":"object","a":[1,1.0,1.0E10,null]}',
            '{"a":[1,1.0,1.0E10,null],"type":"object"}',
        ),
        (
            '{"title":"é\\u00e9\\n\\"","$id":"x"}',
            '{"title":"éé\\n\\"","$id":"x"}',
            '{"$id":"x","title":"éé\\n\\""}',
        ),
        (
            '{"properties":{"b":{},"a":{}}}',
            '{"properties":{"b":{},"a":{}}}',
            '{"properties":{"a":{},"b":{}}}',
        ),
    ],
)
def test_the_stored_text_is_compact_and_keeps_the_order_of_keys(given: str, stored: str, normal: str) -> None:
    assert js(given).canonical() == stored
    assert js(stored).canonical() == stored
    assert js(given).normalized() == normal


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("", "Not JSON"),
        ("{", "Not JSON"),
        ("[]", "object or a boolean"),
        ('"string"', "object or a boolean"),
        ("3", "object or a boolean"),
        ('{"type":"strin"}', "'#/type'"),
        ('{"type":3}', "'#/type'"),
        ('{"properties":[]}', "'#/properties'"),
        ('{"properties":{"a":3}}', "'#/properties/a'"),
        ('{"minLength":-1}', "minLength"),
        ('{"required":"a"}', "required"),
        ('{"allOf":[]}', "allOf"),
        ('{"multipleOf":0}', "multipleOf"),
        ('{"$ref":3}', "."),
        ('{"$ref":"#/definitions/nope"}', "'#/definitions/nope' leads nowhere"),
        ('{"properties":{"a":{"$ref":"other.json"}}}', "'other.json' leads nowhere"),
        ('{"$ref":"http://example.com/never/fetched.json"}', "leads nowhere"),
        ('{"$ref":"#/title","title":"x"}', "not a schema"),
        ('{"$ref":"http://[bad"}', "."),
        ('{"$id":"http://[bad"}', "URI"),
        ('{"x":NaN}', "NaN"),
        ('{"x":Infinity}', "Infinity"),
        ('{"x":1e999}', "too large"),
        ('{"x":"\\udc00"}', "surrogate"),
        ('{"$schema":"https://json-schema.org/draft/2020-12/schema","type":7}', "'#/type'"),
        ('{"$schema":"http://json-schema.org/draft-04/schema#","required":[]}', "required"),
    ],
)
def test_what_is_no_json_schema_is_refused_with_the_place(schema: str, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        js(schema)


@pytest.mark.parametrize("draft", DRAFTS)
def test_each_draft_is_checked_against_its_own_meta_schema(draft: int) -> None:
    js({"exclusiveMaximum": True, "maximum": 3} if draft == 4 else {"exclusiveMaximum": 3}, draft=draft)
    with pytest.raises(InvalidSchema):
        js({"exclusiveMaximum": 3} if draft == 4 else {"exclusiveMaximum": True, "maximum": 3}, draft=draft)


def test_references_are_found_by_name_by_id_and_relative_to_the_id() -> None:
    other = ResolvedReference(
        "other.json", "other", 1, '{"$id":"http://x.test/o.json","definitions":{"P":{"type":"string"}}}'
    )
    for ref in (
        "other.json",
        "other.json#/definitions/P",
        "http://x.test/o.json#/definitions/P",
        "./other.json",
    ):
        schema = js({"properties": {"a": {"$ref": ref}}}, other)
        assert schema.references == (Reference("other.json", "other", 1),)
    assert js({"$id": "http://y.test/dir/main.json", "$ref": "other.json"}, other)
    assert js({"$id": "http://y.test/dir/main.json", "$ref": "http://y.test/dir/other.json"}, other)


def test_references_stand_on_references_in_turn() -> None:
    base = ResolvedReference("base.json", "base", 1, '{"type":"integer"}')
    middle = ResolvedReference("middle.json", "middle", 1, '{"items":{"$ref":"base.json"}}', (base,))
    one, two = js({"$ref": "middle.json"}, middle), js({"items": {"type": "integer"}})
    assert check(one, two, BACKWARD) == check(two, one, BACKWARD) == []
    with pytest.raises(InvalidSchema, match=r"Reference middle.json \(subject middle, version 1\)"):
        js({}, ResolvedReference("middle.json", "middle", 1, "nope"))
    with pytest.raises(InvalidSchema, match="leads nowhere"):
        js({"$ref": "middle.json"}, ResolvedReference("middle.json", "middle", 1, '{"$ref":"base.json"}'))


def test_a_ref_to_defs_finds_definitions_and_a_meta_schema_needs_no_network() -> None:
    assert js({"$ref": "#/$defs/X", "definitions": {"X": {"type": "string"}}})
    assert js({"$ref": DRAFTS[7]})
    assert js({"$ref": DRAFTS[2020]}, draft=2020)


def test_ids_anchors_and_nested_bases() -> None:
    assert js(
        {
            "$id": "http://x.test/root.json",
            "$defs": {
                "sub": {
                    "$id": "dir/sub.json",
                    "$anchor": "here",
                    "properties": {"x": {"$ref": "root2.json"}},
                },
                "r": {"$id": "dir/root2.json"},
            },
            "properties": {"a": {"$ref": "dir/sub.json"}, "b": {"$ref": "dir/sub.json#here"}},
        },
        draft=2020,
    )


def test_names_and_fields() -> None:
    schema = js({"title": "T", "properties": {"a": {}}})
    assert schema.name == "T"
    assert schema.has_top_level_field("a") and not schema.has_top_level_field("b")
    assert js("true").name is None and not js("true").has_top_level_field("a")


OPEN = {"type": "object", "properties": {"a": {"type": "string"}}}
CLOSED = {**OPEN, "additionalProperties": False}
PARTLY = {**OPEN, "additionalProperties": {"type": "string"}}
WIDER = {"a": {"type": "string"}, "b": {"type": "integer"}}

# One row for each rule: old, new, what BACKWARD says. FORWARD is BACKWARD the other way round.
RULES: list[tuple[Any, Any, list[str]]] = [
    # Types.
    ({"type": "string"}, {"type": "integer"}, ["TYPE_CHANGED #/"]),
    ({"type": "null"}, {"type": "boolean"}, ["TYPE_CHANGED #/"]),
    ({"type": "integer"}, {"type": "number"}, []),
    ({"type": "number"}, {"type": "integer"}, ["TYPE_NARROWED #/"]),
    ({"type": "string"}, {}, []),
    ({}, {"type": "string"}, ["TYPE_CHANGED #/"]),
    ({"type": "string"}, True, []),
    (False, {"type": "string"}, []),
    ({"type": "string"}, False, ["TYPE_CHANGED #/"]),
    ({"type": "string"}, {"type": ["string", "null"]}, []),
    ({"type": ["string", "null"]}, {"type": "string"}, ["TYPE_CHANGED #/"]),
    ({"type": ["string", "null"]}, {"type": ["null", "string"]}, []),
    ({"type": ["string", "null"]}, {"type": ["string", "integer"]}, ["COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"]),
    ({"minLength": 1}, {"type": "string", "minLength": 1}, ["TYPE_NARROWED #/"]),
    # Strings.
    ({"type": "string"}, {"type": "string", "maxLength": 3}, ["MAX_LENGTH_ADDED #/maxLength"]),
    (
        {"type": "string", "maxLength": 4},
        {"type": "string", "maxLength": 3},
        ["MAX_LENGTH_DECREASED #/maxLength"],
    ),
    ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 4}, []),
    ({"type": "string"}, {"type": "string", "minLength": 3}, ["MIN_LENGTH_ADDED #/minLength"]),
    (
        {"type": "string", "minLength": 3},
        {"type": "string", "minLength": 4},
        ["MIN_LENGTH_INCREASED #/minLength"],
    ),
    ({"type": "string", "minLength": 3}, {"type": "string"}, []),
    ({"type": "string"}, {"type": "string", "pattern": "a"}, ["PATTERN_ADDED #/pattern"]),
    ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, ["PATTERN_CHANGED #/pattern"]),
    ({"type": "string", "pattern": "a"}, {"type": "string"}, []),
    # Numbers.
    ({"type": "number"}, {"type": "number", "maximum": 3}, ["MAXIMUM_ADDED #/maximum"]),
    ({"type": "number", "maximum": 3}, {"type": "number", "maximum": 2.5}, ["MAXIMUM_DECREASED #/maximum"]),
    ({"type": "number", "minimum": 3}, {"type": "number", "minimum": 4}, ["MINIMUM_INCREASED #/minimum"]),
    ({"type": "number", "minimum": 4}, {"type": "number", "minimum": 3}, []),
    (
        {"type": "number"},
        {"type": "number", "exclusiveMaximum": 3},
        ["EXCLUSIVE_MAXIMUM_ADDED #/exclusiveMaximum"],
    ),
    ({"exclusiveMaximum": 3}, {"exclusiveMaximum": 2}, ["EXCLUSIVE_MAXIMUM_DECREASED #/exclusiveMaximum"]),
    ({"exclusiveMinimum": 3}, {"exclusiveMinimum": 4}, ["EXCLUSIVE_MINIMUM_INCREASED #/exclusiveMinimum"]),
    ({"type": "number"}, {"type": "number", "multipleOf": 3}, ["MULTIPLE_OF_ADDED #/multipleOf"]),
    ({"multipleOf": 3}, {"multipleOf": 6}, ["MULTIPLE_OF_EXPANDED #/multipleOf"]),
    ({"multipleOf": 6}, {"multipleOf": 3}, []),
    ({"multipleOf": 0.5}, {"multipleOf": 0.50}, []),
    ({"multipleOf": 0.3}, {"multipleOf": 0.1}, []),
    ({"multipleOf": 2}, {"multipleOf": 3}, ["MULTIPLE_OF_CHANGED #/multipleOf"]),
    ({"multipleOf": 1e300}, {"multipleOf": 1e-300}, []),
    # Enums and constants.
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, []),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}, ["ENUM_ARRAY_NARROWED #/enum"]),
    ({"enum": ["a", "b"]}, {"enum": ["a", "c"]}, ["ENUM_ARRAY_CHANGED #/enum"]),
    ({"enum": [1, True, None]}, {"enum": [None, 1.0, True]}, []),
    ({"enum": [1]}, {"enum": [True]}, ["ENUM_ARRAY_CHANGED #/enum"]),
    ({"const": 1}, {"const": 2}, ["ENUM_ARRAY_CHANGED #/const"]),
    ({"const": 1}, {"enum": [1, 2]}, []),
    ({"type": "string"}, {"type": "string", "enum": ["a"]}, ["TYPE_CHANGED #/"]),
    ({"type": "string", "enum": ["a"]}, {"type": "string"}, []),
    # Objects.
    (OPEN, {**OPEN, "properties": WIDER}, ["OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b"]),
    (
        OPEN,
        {**OPEN, "properties": WIDER, "required": ["b"]},
        ["REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b"],
    ),
    (OPEN, {**OPEN, "properties": {**WIDER, "b": {}}}, []),
    (OPEN, {"type": "object"}, []),
    (CLOSED, {**CLOSED, "properties": WIDER}, []),
    (
        CLOSED,
        {**CLOSED, "properties": WIDER, "required": ["b"]},
        ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b"],
    ),
    (
        CLOSED,
        {**CLOSED, "properties": {**WIDER, "b": {"default": 1, "type": "integer"}}, "required": ["b"]},
        [],
    ),
    ({**CLOSED, "properties": WIDER}, CLOSED, ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/b"]),
    ({**CLOSED, "properties": {**WIDER, "b": False}}, CLOSED, []),
    (
        PARTLY,
        {**PARTLY, "properties": WIDER},
        [
            "TYPE_CHANGED #/properties/b",
            "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/b",
        ],
    ),
    (PARTLY, {**PARTLY, "properties": {**WIDER, "b": {"type": "string"}}}, []),
    (
        {**PARTLY, "properties": WIDER},
        PARTLY,
        [
            "TYPE_CHANGED #/properties/b",
            "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/b",
        ],
    ),
    ({**PARTLY, "properties": {**WIDER, "b": {"type": "string"}}}, PARTLY, []),
    (OPEN, {**OPEN, "required": ["a"]}, ["REQUIRED_ATTRIBUTE_ADDED #/required/a"]),
    ({**OPEN, "required": ["a"]}, OPEN, []),
    (OPEN, {**OPEN, "properties": {"a": {"type": "string", "default": "x"}}, "required": ["a"]}, []),
    (OPEN, {**OPEN, "required": ["unlisted"]}, ["REQUIRED_ATTRIBUTE_ADDED #/required/unlisted"]),
    (OPEN, CLOSED, ["ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"]),
    (CLOSED, OPEN, []),
    (OPEN, PARTLY, ["ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties"]),
    (PARTLY, OPEN, []),
    (
        PARTLY,
        {**PARTLY, "additionalProperties": {"type": "integer"}},
        ["TYPE_CHANGED #/additionalProperties"],
    ),
    (OPEN, {**OPEN, "maxProperties": 3}, ["MAX_PROPERTIES_ADDED #/maxProperties"]),
    ({"maxProperties": 3}, {"maxProperties": 2}, ["MAX_PROPERTIES_DECREASED #/maxProperties"]),
    ({"minProperties": 1}, {"minProperties": 2}, ["MIN_PROPERTIES_INCREASED #/minProperties"]),
    ({"minProperties": 2}, {"minProperties": 1}, []),
    (OPEN, {**OPEN, "dependencies": {"a": ["b"]}}, ["DEPENDENCY_ARRAY_ADDED #/dependencies/a"]),
    (
        {"dependencies": {"a": ["b"]}},
        {"dependencies": {"a": ["b", "c"]}},
        ["DEPENDENCY_ARRAY_EXTENDED #/dependencies/a"],
    ),
    (
        {"dependencies": {"a": ["b"]}},
        {"dependencies": {"a": ["c"]}},
        ["DEPENDENCY_ARRAY_CHANGED #/dependencies/a"],
    ),
    ({"dependencies": {"a": ["b", "c"]}}, {"dependencies": {"a": ["b"]}}, []),
    (
        OPEN,
        {**OPEN, "dependencies": {"a": {"required": ["b"]}}},
        ["DEPENDENCY_SCHEMA_ADDED #/dependencies/a"],
    ),
    (
        {"dependencies": {"a": {"minProperties": 1}}},
        {"dependencies": {"a": {"minProperties": 2}}},
        ["MIN_PROPERTIES_INCREASED #/dependencies/a/minProperties"],
    ),
    (
        {"patternProperties": {"^a": {"type": "string"}}},
        {"patternProperties": {"^a": {"type": "integer"}}},
        ["TYPE_CHANGED #/patternProperties/^a"],
    ),
    (
        OPEN,
        {**OPEN, "patternProperties": {"^x": {"type": "string"}}},
        ["PATTERN_PROPERTY_ADDED #/patternProperties/^x"],
    ),
    (CLOSED, {**CLOSED, "patternProperties": {"^x": {"type": "string"}}}, []),
    (
        CLOSED,
        {**CLOSED, "patternProperties": {"^a": {"type": "integer"}}},
        ["TYPE_CHANGED #/patternProperties/^a"],
    ),
    (
        {"patternProperties": {"^b": {"type": "integer"}}, "additionalProperties": False},
        {
            "patternProperties": {"^b": {"type": "integer"}},
            "properties": {"b": {"type": "integer"}},
            "additionalProperties": False,
        },
        [],
    ),
    (OPEN, {**OPEN, "propertyNames": {"maxLength": 3}}, ["SCHEMA_ADDED #/propertyNames"]),
    # Arrays.
    ({"type": "array"}, {"type": "array", "items": {"type": "string"}}, ["SCHEMA_ADDED #/items"]),
    ({"type": "array", "items": {"type": "string"}}, {"type": "array"}, []),
    ({"items": {"type": "string"}}, {"items": {"type": "integer"}}, ["TYPE_CHANGED #/items"]),
    ({"items": [{"type": "string"}]}, {"items": [{"type": "integer"}]}, ["TYPE_CHANGED #/items/0"]),
    (
        {"items": [{"type": "string"}]},
        {"items": [{"type": "string"}, {"type": "string"}]},
        ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"],
    ),
    ({"items": [{"type": "string"}]}, {"items": [{"type": "string"}, {}]}, []),
    (
        {"items": [{}], "additionalItems": False},
        {"items": [{}, {"type": "string"}], "additionalItems": False},
        [],
    ),
    (
        {"items": [{}, {}], "additionalItems": False},
        {"items": [{}], "additionalItems": False},
        ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1"],
    ),
    ({"items": [{}, {"type": "string"}]}, {"items": [{}]}, []),
    (
        {"items": [{}], "additionalItems": {"type": "string"}},
        {"items": [{}, {"type": "integer"}], "additionalItems": {"type": "string"}},
        ["TYPE_CHANGED #/items/1", "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1"],
    ),
    (
        {"items": [{}]},
        {"items": [{}], "additionalItems": False},
        ["ADDITIONAL_ITEMS_REMOVED #/additionalItems"],
    ),
    (
        {"items": [{}]},
        {"items": [{}], "additionalItems": {"type": "string"}},
        ["ADDITIONAL_ITEMS_NARROWED #/additionalItems"],
    ),
    ({"type": "array"}, {"type": "array", "maxItems": 3}, ["MAX_ITEMS_ADDED #/maxItems"]),
    ({"maxItems": 3}, {"maxItems": 2}, ["MAX_ITEMS_DECREASED #/maxItems"]),
    ({"minItems": 3}, {"minItems": 4}, ["MIN_ITEMS_INCREASED #/minItems"]),
    ({"type": "array"}, {"type": "array", "uniqueItems": True}, ["UNIQUE_ITEMS_ADDED #/uniqueItems"]),
    ({"uniqueItems": True}, {"uniqueItems": False}, []),
    ({"type": "array"}, {"type": "array", "contains": {"type": "string"}}, ["SCHEMA_ADDED #/contains"]),
    # Combinations.
    ({"anyOf": [{"type": "string"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}, []),
    (
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"anyOf": [{"type": "string"}]},
        ["SUM_TYPE_NARROWED #/"],
    ),
    (
        {"oneOf": [{"type": "string"}, {"type": "null"}]},
        {"anyOf": [{"type": "null"}, {"type": "string"}]},
        [],
    ),
    (
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"allOf": [{"type": "null"}, {"type": "string"}]},
        ["COMBINED_TYPE_CHANGED #/"],
    ),
    (
        {"allOf": [{"minLength": 1}]},
        {"allOf": [{"minLength": 1}, {"maxLength": 3}]},
        ["PRODUCT_TYPE_EXTENDED #/"],
    ),
    ({"allOf": [{"minLength": 1}, {"maxLength": 3}]}, {"allOf": [{"minLength": 1}]}, []),
    ({"allOf": [{"minLength": 1}, {"maxLength": 3}]}, {"minLength": 1}, []),
    (
        {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        {"anyOf": [{"type": "string"}, {"type": "number"}]},
        [],
    ),
    ({"type": "string"}, {"oneOf": [{"type": "null"}, {"type": "string"}]}, []),
    ({"oneOf": [{"type": "string"}]}, {"type": "string"}, []),
    ({"not": {"type": "string"}}, {"not": {"type": "string", "minLength": 3}}, []),
    ({"not": {"type": "string", "minLength": 3}}, {"not": {"type": "string"}}, ["NOT_TYPE_EXTENDED #/not"]),
    (
        {"if": {"type": "string"}, "then": {"minLength": 1}},
        {"if": {"type": "string"}, "then": {"minLength": 2}},
        ["CONDITION_CHANGED #/if"],
    ),
    # What says nothing about data.
    ({"title": "a", "description": "b", "$id": "x", "default": 1}, {"title": "c"}, []),
    ({"type": "string", "format": "date"}, {"type": "string"}, []),
]


@pytest.mark.promise(
    "registry",
    "Every compatibility rule of the three formats is checked, and a violation is reported with its reason",
)
@pytest.mark.parametrize(("old", "new", "expected"), RULES)
def test_compatibility_rule(old: Any, new: Any, expected: list[str]) -> None:
    assert found(check(js(new), js(old), BACKWARD)) == expected
    assert found(check(js(old), js(new), FORWARD)) == expected
    assert check(js(new), js(new), BACKWARD) == []


@pytest.mark.promise(
    "registry",
    "Every compatibility rule of the three formats is checked, and a violation is reported with its reason",
)
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            {"prefixItems": [{"type": "string"}]},
            {"prefixItems": [{"type": "integer"}]},
            ["TYPE_CHANGED #/items/0"],
        ),
        (
            {"prefixItems": [{}]},
            {"prefixItems": [{}], "items": False},
            ["ADDITIONAL_ITEMS_REMOVED #/additionalItems"],
        ),
        (
            {"items": {"type": "string"}},
            {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
            ["TYPE_CHANGED #/items/0", "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/0"],
        ),
        (
            {"type": "object"},
            {"type": "object", "dependentRequired": {"a": ["b"]}},
            ["DEPENDENCY_ARRAY_ADDED #/dependencies/a"],
        ),
        (
            {"type": "object"},
            {"type": "object", "dependentSchemas": {"a": {"minProperties": 2}}},
            ["DEPENDENCY_SCHEMA_ADDED #/dependencies/a"],
        ),
        (
            {"type": "object"},
            {"type": "object", "unevaluatedProperties": False},
            ["UNEVALUATED_PROPERTIES_REMOVED #/unevaluatedProperties"],
        ),
        (
            {"type": "object"},
            {"type": "object", "unevaluatedProperties": {"type": "string"}},
            ["UNEVALUATED_PROPERTIES_NARROWED #/unevaluatedProperties"],
        ),
        ({"type": "object", "unevaluatedProperties": False}, {"type": "object"}, []),
        (
            {"type": "array"},
            {"type": "array", "unevaluatedItems": False},
            ["UNEVALUATED_ITEMS_REMOVED #/unevaluatedItems"],
        ),
        (
            {"contains": {}, "minContains": 1},
            {"contains": {}, "minContains": 2},
            ["MIN_CONTAINS_INCREASED #/minContains"],
        ),
        ({"contains": {}}, {"contains": {}, "maxContains": 2}, ["MAX_CONTAINS_ADDED #/maxContains"]),
        ({"contains": {}}, {"contains": {}, "minContains": 0}, []),
        (
            {"$ref": "#/$defs/S", "$defs": {"S": {"type": "string"}}},
            {"$ref": "#/$defs/S", "maxLength": 3, "$defs": {"S": {"type": "string"}}},
            ["TYPE_CHANGED #/"],
        ),
    ],
)
def test_compatibility_rule_of_2020(old: Any, new: Any, expected: list[str]) -> None:
    assert found(check(js(new, draft=2020), js(old, draft=2020), BACKWARD)) == expected
    assert check(js(new, draft=2020), js(new, draft=2020), BACKWARD) == []


def test_limits_of_draft_4_are_compared_with_those_of_later_drafts() -> None:
    old = js({"type": "number", "maximum": 3, "exclusiveMaximum": True}, draft=4)
    assert check(js({"type": "number", "exclusiveMaximum": 3}, draft=7), old, BACKWARD) == []
    assert found(check(old, js({"type": "number", "maximum": 3}, draft=4), BACKWARD)) == [
        "EXCLUSIVE_MAXIMUM_ADDED #/exclusiveMaximum"
    ]


def test_the_lenient_policy_lets_properties_come_and_go() -> None:
    new, old = js({**OPEN, "properties": WIDER}), js(OPEN)
    assert check(new, old, BACKWARD) != []
    assert check(new, old, BACKWARD, policy="LENIENT") == []
    assert check(js(CLOSED), js({**CLOSED, "properties": WIDER}), BACKWARD, policy="LENIENT") == []
    assert check(js({"type": "string"}), js({"type": "integer"}), BACKWARD, policy="LENIENT") != []


def test_reasons_are_confluents_sentences() -> None:
    reasons = check(js({"type": "string", "maxLength": 1}), js({"type": "string", "maxLength": 2}), BACKWARD)
    assert reasons == [
        '{errorType:"MAX_LENGTH_DECREASED", description:"The value at path \'#/maxLength\' in the new schema '
        "is less than its value in the old schema'}"
    ]


def tree(leaf: str) -> dict[str, Any]:
    return {
        "$ref": "#/definitions/node",
        "definitions": {
            "node": {
                "type": "object",
                "properties": {
                    "leaf": {"type": leaf},
                    "children": {"type": "array", "items": {"$ref": "#/definitions/node"}},
                },
            }
        },
    }


def test_recursive_schemas_are_compared_to_their_end() -> None:
    assert check(js(tree("number")), js(tree("integer")), BACKWARD) == []
    assert found(check(js(tree("integer")), js(tree("number")), BACKWARD)) == [
        "TYPE_NARROWED #/properties/leaf"
    ]
    assert check(js({"$ref": "#"}), js({"$ref": "#"}), BACKWARD) == []
    loop = {
        "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}},
        "$ref": "#/definitions/a",
    }
    assert check(js(loop), js({"type": "string"}), BACKWARD) == []


def test_a_pattern_that_could_run_for_years_is_not_tried() -> None:
    evil, name = "^(a+)+$", "a" * 60 + "!"
    old = js({"properties": {name: {"type": "string"}}, "additionalProperties": False})
    new = js(
        {"patternProperties": {evil: {"type": "integer"}}, "properties": {}, "additionalProperties": False}
    )
    assert "TYPE_CHANGED" in " ".join(check(new, old, BACKWARD))


@pytest.mark.promise(
    "registry", "The LENIENT mode of JSON Schema allows what the page lists and keeps the stricter rules"
)
def test_the_lenient_policy_keeps_the_rules_that_are_stricter_than_confluents() -> None:
    """docs/registry.md says so: each of these passes as LENIENT in Confluent's registry."""
    plain = {"type": "object", "properties": {"a": {"type": "string"}}}
    for more in (
        {"required": ["b"]},
        {"patternProperties": {"^x": {"type": "string"}}},
        {"propertyNames": {"maxLength": 3}},
    ):
        assert check(js({**plain, **more}), js(plain), BACKWARD, policy="LENIENT") != [], more


@pytest.mark.promise(
    "registry", "The LENIENT mode of JSON Schema allows what the page lists and keeps the stricter rules"
)
def test_the_lenient_policy_takes_what_the_page_names() -> None:
    a, b = {"a": {"type": "string"}}, {"b": {"type": "string"}}
    opened, closed = {"type": "object"}, {"type": "object", "additionalProperties": False}
    partly = {
        "type": "object",
        "patternProperties": {"^x": {"type": "string"}},
        "additionalProperties": False,
    }
    for old, new in (
        ({**opened, "properties": a}, {**opened, "properties": a | b}),
        ({**opened, "properties": a}, {**opened, "required": ["b"],
                                       "properties": a | {"b": {"type": "string", "default": ""}}}),
        ({**closed, "properties": a | b}, {**closed, "properties": a}),
        ({**opened, "properties": a}, {**closed, "properties": a}),
        ({**opened, "properties": a}, {**opened, "properties": a, "additionalProperties": b["b"]}),
        ({**partly, "properties": a | b}, {**partly, "properties": a}),
    ):  # fmt: skip
        assert check(js(new), js(old), BACKWARD) != [], (old, new)
        assert check(js(new), js(old), BACKWARD, policy="LENIENT") == [], (old, new)
