"""Offset JSON: what options and checkpoints hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.spark.errors import BadOffsets, BadOption
from penstock.spark.source.offsets import (
    from_json,
    names,
    parse_assignment,
    parse_offsets,
    parse_timestamps,
    to_json,
)


def test_offsets_are_read_as_spark_writes_them() -> None:
    found = parse_offsets("startingOffsets", '{"a":{"0":23,"1":-1},"b":{"0":-2}}')
    assert found == {("a", 0): 23, ("a", 1): -1, ("b", 0): -2}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "23", "{}", '{"a":{}}', '{"a":5}', '{"a":[0]}', '{"a":{"x":1}}', '{"a":{"-1":1}}']
    + ['{"a":{"0":"1"}}', '{"a":{"0":1.5}}', '{"a":{"0":true}}', '{"a":{"0":-3}}', '{"a":{"0":null}}']
    + ['{"a":{"0":9223372036854775808}}', '{"a":{"4294967296":0}}', "earliests", '{"a":{"٣":1}}'],
)
def test_bad_offset_json_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadOption) as refused:
        parse_offsets("startingOffsets", text)
    assert str(refused.value).startswith('startingOffsets: expected e.g. {"topicA":{"0":23')
    assert str(refused.value).endswith(f"got {text}")


def test_times_have_no_special_numbers() -> None:
    assert parse_timestamps("x", '{"a":{"0":1000}}') == {("a", 0): 1000}
    with pytest.raises(BadOption, match=r"expected e\.g\."):
        parse_timestamps("startingOffsetsByTimestamp", '{"a":{"0":-1}}')


def test_an_assignment_names_partitions() -> None:
    assert parse_assignment('{"a":[0,1],"b":[4]}') == {("a", 0), ("a", 1), ("b", 4)}
    for wrong in ("a", '["a"]', '{"a":0}', '{"a":["0"]}', '{"a":[-1]}', '{"a":[true]}', "{}", '{"a":[]}'):
        with pytest.raises(BadOption, match=r"^assign: "):
            parse_assignment(wrong)


def test_the_checkpoint_is_in_order_and_comes_back_the_same() -> None:
    offsets = {("b", 0): 5, ("a", 10): 1, ("a", 2): 2**62}
    text = json.dumps(to_json(offsets))
    assert text == '{"a": {"2": 4611686018427387904, "10": 1}, "b": {"0": 5}}'
    assert from_json(json.loads(text)) == offsets
    assert json.dumps(to_json(from_json(json.loads(text)))) == text


@pytest.mark.parametrize(
    "stored", [5, "x", None, {"offset": 5}, {"a": {"x": 1}}, {"a": {"0": "1"}}, {"a": [1]}]
)
def test_the_offsets_of_another_source_are_refused(stored: Any) -> None:
    with pytest.raises(BadOffsets, match="choose another checkpointLocation"):
        from_json(stored)


def test_a_long_list_of_partitions_is_cut() -> None:
    assert names({("a", 1), ("a", 0)}) == "a-0, a-1"
    assert names(("a", index) for index in range(12)).endswith("a-9 and 2 more")
