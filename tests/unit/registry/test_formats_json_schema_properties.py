"""Generated JSON Schemas: data that was valid stays valid under a schema that passed as compatible."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from penstock.registry.formats import BACKWARD, FORWARD, check, parse

DRAFTS = {
    "http://json-schema.org/draft-07/schema#": jsonschema.Draft7Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
}
KEYS = ["a", "b", "ab"]
SCALARS = st.sampled_from([None, True, False, 0, 1, 2, 3, 6, -1, 0.5, "", "a", "ab", "abc"])
# Without oneOf and if: what those take of the data is not looked into, see the rules.
values = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)


def maybe(draw: st.DrawFn, schema: dict[str, Any], keyword: str, strategy: st.SearchStrategy[Any]) -> None:
    if draw(st.integers(0, 3)) == 0:
        schema[keyword] = draw(strategy)


def draw_schema(draw: st.DrawFn, depth: int, draft: str, *, ref: bool = True) -> Any:
    kind = draw(
        st.sampled_from(
            ["any", "string", "number", "integer", "null", "boolean", "enum", "types"]
            + (
                ["object", "object", "object", "array", "array", "anyOf", "allOf", "not", "bare"]
                if depth
                else []
            )
            + (["ref"] if ref else [])
        )
    )
    if kind == "any":
        return draw(st.sampled_from([{}, True, False]))
    if kind == "ref":
        return {"$ref": "#/definitions/X"}
    if kind == "enum":
        return {"enum": draw(st.lists(SCALARS, min_size=1, max_size=3, unique_by=lambda v: (type(v), v)))}
    if kind == "types":
        return {
            "type": draw(
                st.lists(st.sampled_from(["string", "integer", "null", "object"]), min_size=1, unique=True)
            )
        }
    if kind in ("anyOf", "allOf"):
        return {kind: [draw_schema(draw, depth - 1, draft, ref=ref) for _ in range(draw(st.integers(1, 3)))]}
    if kind == "not":
        return {"not": draw_schema(draw, depth - 1, draft, ref=ref)}
    schema: dict[str, Any] = {} if kind == "bare" else {"type": kind}
    if kind in ("string", "bare"):
        maybe(draw, schema, "minLength", st.integers(0, 3))
        maybe(draw, schema, "maxLength", st.integers(0, 3))
        maybe(draw, schema, "pattern", st.sampled_from(["^a", "b$"]))
    if kind in ("number", "integer", "bare"):
        for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            maybe(draw, schema, keyword, st.integers(0, 4))
        maybe(draw, schema, "multipleOf", st.sampled_from([1, 2, 3, 6, 0.5]))
    if kind in ("object", "bare"):
        draw_object(draw, schema, depth, draft, ref)
    if kind == "array":
        draw_array(draw, schema, depth, draft, ref)
    return schema


def draw_object(draw: st.DrawFn, schema: dict[str, Any], depth: int, draft: str, ref: bool) -> None:
    inner = st.composite(lambda d: draw_schema(d, depth - 1, draft, ref=ref))()
    maybe(draw, schema, "properties", st.dictionaries(st.sampled_from(KEYS), inner, max_size=2))
    maybe(draw, schema, "required", st.lists(st.sampled_from(KEYS), unique=True, max_size=2))
    maybe(draw, schema, "additionalProperties", st.just(False) | inner)
    maybe(
        draw, schema, "patternProperties", st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=1)
    )
    maybe(draw, schema, "propertyNames", st.sampled_from([{"maxLength": 1}, {"minLength": 1}]))
    maybe(draw, schema, "minProperties", st.integers(0, 2))
    maybe(draw, schema, "maxProperties", st.integers(0, 2))
    maybe(draw, schema, "dependentRequired" if "2020" in draft else "dependencies", st.just({"a": ["b"]}))


def draw_array(draw: st.DrawFn, schema: dict[str, Any], depth: int, draft: str, ref: bool) -> None:
    inner = st.composite(lambda d: draw_schema(d, depth - 1, draft, ref=ref))()
    if "2020" in draft:
        maybe(draw, schema, "prefixItems", st.lists(inner, min_size=1, max_size=2))
        maybe(draw, schema, "items", inner)
    else:
        maybe(draw, schema, "items", inner | st.lists(inner, min_size=1, max_size=2))
        if isinstance(schema.get("items"), list):  # beside anything else it has no meaning
            maybe(draw, schema, "additionalItems", st.just(False) | inner)
    maybe(draw, schema, "contains", inner)
    maybe(draw, schema, "minItems", st.integers(0, 2))
    maybe(draw, schema, "maxItems", st.integers(0, 2))
    maybe(draw, schema, "uniqueItems", st.booleans())


def evolve(draw: st.DrawFn, schema: Any, draft: str, ref: bool) -> Any:
    """The schema after a few changes: a part drawn anew, a keyword dropped or taken over."""
    if not isinstance(schema, dict) or draw(st.integers(0, 9)) == 0:
        return draw_schema(draw, 1, draft, ref=ref) if draw(st.integers(0, 3)) == 0 else schema
    new: dict[str, Any] = {}
    for keyword, value in schema.items():
        if draw(st.integers(0, 9)) == 0 and keyword != "$schema":
            continue
        if isinstance(value, dict) and keyword in ("properties", "patternProperties"):
            new[keyword] = {k: evolve(draw, v, draft, ref) for k, v in value.items()}
        elif isinstance(value, dict) and keyword not in ("definitions", "dependencies", "dependentRequired"):
            new[keyword] = evolve(draw, value, draft, ref)
        elif keyword in ("anyOf", "allOf", "prefixItems") or (keyword == "items" and isinstance(value, list)):
            new[keyword] = [evolve(draw, v, draft, ref) for v in value]
        elif isinstance(value, int) and not isinstance(value, bool):
            new[keyword] = max(
                value + draw(st.sampled_from([0, 0, 1, -1])), 1 if keyword == "multipleOf" else 0
            )
        else:
            new[keyword] = value
    if draw(st.integers(0, 4)) == 0:
        extra = draw_schema(draw, 1, draft, ref=ref)
        new = {**(extra if isinstance(extra, dict) else {}), **new}
    return new


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, Any, Any]:
    draft = draw(st.sampled_from(sorted(DRAFTS)))

    def root(schema: Any, definition: Any) -> Any:
        # Beside a $ref draft 7 reads nothing else.
        inner = schema if not isinstance(schema, bool) else ({} if schema else {"not": {}})
        return {"$schema": draft, "definitions": {"X": definition}, **inner}

    old = draw_schema(draw, 2, draft)
    definition = draw_schema(draw, 1, draft, ref=False)
    new = evolve(draw, old, draft, True)
    return (
        draft,
        root(old, definition),
        root(new, evolve(draw, definition, draft, False) if draw(st.booleans()) else definition),
    )


@pytest.mark.promise(
    "registry", "Data written with a schema can be read with every schema that passed as compatible with it"
)
@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(pairs(), st.lists(values, min_size=5, max_size=15))
def test_what_was_valid_stays_valid_under_a_schema_that_passed(
    pair: tuple[str, Any, Any], instances: list[Any]
) -> None:
    draft, old, new = pair
    note(f"old {json.dumps(old)}")
    note(f"new {json.dumps(new)}")
    reader, writer = parse("JSON", json.dumps(new)), parse("JSON", json.dumps(old))
    assert check(reader, parse("JSON", json.dumps({**new, "title": "same"})), BACKWARD) == []
    backward = check(reader, writer, BACKWARD)
    assert len(check(writer, reader, FORWARD)) == len(backward)
    if backward:
        return
    before, after = DRAFTS[draft](old), DRAFTS[draft](new)
    for instance in instances:
        if before.is_valid(instance):
            after.validate(instance)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(pairs())
def test_canonical_and_normalised_texts_mean_the_same_and_stay(pair: tuple[str, Any, Any]) -> None:
    schema = parse("JSON", json.dumps(pair[1]))
    assert json.loads(schema.canonical()) == json.loads(schema.normalized()) == pair[1]
    assert parse("JSON", schema.canonical()).canonical() == schema.canonical()
    assert parse("JSON", schema.normalized()).canonical() == schema.normalized()
    shuffled = json.dumps(copy.deepcopy(dict(reversed(pair[1].items()))))
    assert parse("JSON", shuffled).normalized() == schema.normalized()
