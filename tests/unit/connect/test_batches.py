"""Batches of columns give what single records give."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.connect.api import INT32_SCHEMA, STRING_SCHEMA, DataError, SinkBatch, SourceBatch
from penstock.connect.converters.json import JsonConverter
from penstock.connect.converters.primitive import ByteArrayConverter, StringConverter

TEXTS = ["plain", "", 'a "quote" and a \\', "Grüße\u2028\n", "\x00\x1f"]


@pytest.mark.parametrize("converter", [
    StringConverter({}), StringConverter({"converter.encoding": "UTF-16"}), JsonConverter({}),
    JsonConverter({"schemas.enable": "false"}),
])  # fmt: skip
@pytest.mark.parametrize("values", [TEXTS, [*TEXTS, None], []])
def test_many_values_are_the_bytes_of_each(converter: Any, values: list[Any]) -> None:
    schema = STRING_SCHEMA.as_optional()
    assert converter.many_to_bytes("t", schema, values) == [
        converter.to_bytes("t", schema, value) for value in values
    ]


def test_many_numbers_are_the_json_of_each() -> None:
    converter = JsonConverter({})
    assert converter.many_to_bytes("t", INT32_SCHEMA, [1, 2]) == [
        converter.to_bytes("t", INT32_SCHEMA, value) for value in (1, 2)
    ]


@pytest.mark.parametrize("converter", [
    StringConverter({}), ByteArrayConverter({}), JsonConverter({"schemas.enable": "false"}),
])  # fmt: skip
@pytest.mark.parametrize("data", [[b"1", b"22"], [b"1", None]])
def test_many_bytes_are_the_values_of_each(converter: Any, data: list[bytes | None]) -> None:
    schema, values = converter.many_from_bytes("t", data)
    assert [(schema, value) for value in values] == [converter.from_bytes("t", each) for each in data]


def test_bytes_with_several_schemas_are_left_to_single_records() -> None:
    data = [b'{"schema":{"type":"int32","optional":false},"payload":1}',
            b'{"schema":{"type":"string","optional":false},"payload":"a"}']  # fmt: skip
    assert JsonConverter({}).many_from_bytes("t", data) is None


def test_one_bad_value_is_an_error_of_the_whole_batch() -> None:
    with pytest.raises(DataError):
        JsonConverter({}).many_from_bytes("t", [b"{}", b"{bad"])
    with pytest.raises(UnicodeDecodeError):
        StringConverter({}).many_from_bytes("t", [b"a", b"\xff"])


def test_a_batch_as_records() -> None:
    source = SourceBatch("t", ["a", "b"], STRING_SCHEMA, ["k", None], source_partition={"f": 1},
                         source_offset={"at": 9})  # fmt: skip
    assert [(each.key, each.value, each.timestamp, each.source_offset) for each in source.records()] == [
        ("k", "a", None, {"at": 9}),
        (None, "b", None, {"at": 9}),
    ]
    sink = SinkBatch("t", 3, [5, 7], ["a", "b"], [None, None], [10, 11], STRING_SCHEMA)
    assert [(each.original_partition, each.original_offset, each.timestamp) for each in sink.records()] == [
        (3, 5, 10),
        (3, 7, 11),
    ]
