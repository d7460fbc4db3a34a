"""Searches in columns find the same as the matcher that looks at one record after the other."""

from __future__ import annotations

import json
import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admin.records.columns import Chunk, Record
from penstock.admin.records.condition import BadCondition, Condition
from penstock.console.reads.matching import BadSearch, matcher
from penstock.console.reads.scanning import _candidate, finder
from penstock.spark.source.reading import ARROW_SCHEMA_WITH_HEADERS

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def chunk_of(rows: list[Row], partition: int = 0, first: int = 0) -> Chunk:
    columns = {
        "key": [key for key, _, _ in rows],
        "value": [value for _, value, _ in rows],
        "topic": ["t"] * len(rows),
        "partition": [partition] * len(rows),
        "offset": [first + row for row in range(len(rows))],
        "timestamp": [1_700_000_000_000_000 + 1_000_000 * row for row in range(len(rows))],
        "timestampType": [0] * len(rows),
        "headers": [[{"key": name, "value": each} for name, each in headers] for _, _, headers in rows],
    }
    arrays = [
        pa.array(columns[each.name], pa.int64()).view(each.type)
        if each.name == "timestamp"
        else pa.array(columns[each.name], each.type)
        for each in ARROW_SCHEMA_WITH_HEADERS
    ]
    return Chunk("t", partition, pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA_WITH_HEADERS))


letters = st.text(alphabet="aAkKiIsSzZ \u212a\u017f\u0131\u0130é日.\x00", max_size=6)
data = st.none() | letters.map(str.encode) | st.binary(max_size=6)
rows = st.lists(st.tuples(data, data, st.lists(st.tuples(letters, data), max_size=2)), max_size=8)


@given(rows, letters.filter(bool), st.integers(0, 3))
def test_text_is_found_in_columns_as_in_single_records(records: list[Row], text: str, cut: int) -> None:
    chunk = chunk_of(records)
    sliced = Chunk("t", 0, chunk.columns.slice(min(cut, len(records))))
    one = matcher("text", text)
    wanted = [row for row, each in enumerate(records[cut:]) if one(_candidate(*each, None))]
    assert finder("text", text, None)(sliced).tolist() == wanted


@pytest.mark.parametrize("kind", ["regex", "json"])
def test_other_searches_ask_for_each_record(kind: str) -> None:
    chunk = chunk_of([(b"k1", b'{"a": 1}', []), (b"k2", b'{"a": 2}', [("h", b"x")]), (None, None, [])])
    assert finder(kind, {"regex": "k[2-9]", "json": "$.a > 1"}[kind], None)(chunk).tolist() == [1]


ROWS: list[Row] = [
    (b"a", json.dumps({"customer": {"city": "Berlin"}, "price": 3}).encode(), [("trace", b"1")]),
    (
        b"b",
        json.dumps({"customer": {"city": "Bern"}, "price": 12.5}).encode(),
        [("trace", b"2"), ("trace", b"9")],
    ),
    (None, b"not JSON {", []),
    (b"\xff", b"\xff\xfe", []),
    (b"e", None, []),
]


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("json->>'$.customer.city' = 'Bern'", [1]),
        ("(json->>'price')::DOUBLE > 2 AND key < 'b'", [0]),
        ("value LIKE '%JSON%'", [2]),
        ("value IS NULL", [3, 4]),
        ("value_bytes IS NULL OR key_bytes = '\\xFF'::BLOB", [3, 4]),
        ("headers['trace'] = '9'", [1]),
        ("offset >= 12 AND Offset <= 13", [2, 3]),
        ("\"offset\" = 11 AND value NOT LIKE '%offset%'", [1]),
        ("timestamp > '2023-11-14 22:13:22' AND partition = 7", [3, 4]),
        ("key = 'offset' OR key = 'é' OR offset = 10", [0]),
        ("length(key) = 1", [0, 1, 4]),
    ],
)
def test_records_are_found_by_a_sql_condition(condition: str, wanted: list[int]) -> None:
    chunk = chunk_of(ROWS, partition=7, first=10)
    checked = Condition(condition)
    assert checked.rows(chunk).tolist() == wanted
    records = [chunk.record(row) for row in range(len(ROWS))]
    assert [each.offset() - 10 for each in checked.select(records)] == wanted


@pytest.mark.promise("console", "A SQL condition of a search reaches nothing but the records")
@pytest.mark.parametrize(
    "condition",
    [
        "1=1) UNION ALL SELECT (1",
        "1=1; DROP TABLE x",
        "(SELECT count(*) FROM read_csv('/etc/hostname')) > 0",
        "(SELECT count(*) FROM '/etc/hostname') > 0",
        "(SELECT count(*) FROM ROWS) > 0",
        "(SELECT count(*) FROM chunk_of) > 0",
        "(SELECT count(*) FROM glob('/*')) > 0",
        "(SELECT content FROM read_text('/etc/hostname')) <> ''",
        "getenv('HOME') <> ''",
        "key = ",
        "nothing = 1",
        "count(*) > 1",
        "'",
        "",
        "offset = 'x'",
    ],
)
def test_what_is_no_condition_is_rejected(condition: str) -> None:
    with pytest.raises(BadCondition):
        Condition(condition).rows(chunk_of(ROWS))


def test_values_with_a_schema_are_found_by_what_they_decode_to() -> None:
    chunk = chunk_of([(None, b"\0\0\0\0\1x", []), (None, b"\0\0\0\0\1y", []), (None, b'{"id": 7}', [])])

    def describe(data: bytes, part: str, headers: object) -> tuple[str, object, int]:
        return "avro", {"id": 7 if data.endswith(b"x") else 8}, 1

    assert finder("sql", "json->>'id' = '7'", describe)(chunk).tolist() == [0, 2]
    assert finder("text", '"ID": 8', describe)(chunk).tolist() == [1]


def test_a_condition_names_what_is_wrong_and_what_to_do() -> None:
    for condition, words in (
        ("colour = 'red'", "columns: partition, offset"),
        ("value::INTEGER > 1", "TRY_CAST"),
        ("json = 'Berlin'", "->>"),
    ):
        with pytest.raises(BadSearch, match="the condition fails") as error:
            finder("sql", condition, None)
            try:
                finder("sql", condition, None)(chunk_of(ROWS))
            except BadCondition as late:
                raise BadSearch(str(late)) from late
        assert words in str(error.value)


def test_a_record_of_a_chunk_is_like_a_consumed_one() -> None:
    record = chunk_of(ROWS, partition=3, first=5).record(1)
    assert isinstance(record, Record)
    assert (record.topic(), record.partition(), record.offset()) == ("t", 3, 6)
    assert record.key() == b"b" and record.timestamp() == (1, 1_700_000_001_000)
    assert record.headers() == [("trace", b"2"), ("trace", b"9")]
    assert chunk_of(ROWS).record(2).headers() is None
    assert time.gmtime(record.timestamp()[1] / 1000).tm_year == 2023
