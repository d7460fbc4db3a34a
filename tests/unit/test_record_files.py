"""Files of records: what is written is read again, and a wrong line is named."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admin.failure import CommandFailed
from penstock.admin.records.columns import Record
from penstock.admin.records.files import as_bytes, format_of, read_file
from penstock.admin.records.outgoing import BadRecord, OutgoingRecord

data = (
    st.none()
    | st.binary(min_size=1, max_size=8)
    | st.sampled_from((b"=1+1", b"'x", b"'=x", b'a,b\n"c', b"-5"))
)
records = st.lists(
    st.builds(
        Record,
        st.just("t"),
        st.integers(0, 9),
        st.integers(0, 2**40),
        data,
        data,
        st.integers(1, 2**40).map(lambda at: (1, at)) | st.just((0, -1)),
        st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=4), data), max_size=2),
    ),
    max_size=5,
)


def written(record: Record) -> OutgoingRecord:
    kind, at = record.timestamp()
    return OutgoingRecord(
        record.value(), record.key(), record.header_list, record.partition(), at if kind else None
    )


def same(found: OutgoingRecord) -> OutgoingRecord:
    return OutgoingRecord(found.value, found.key, list(found.headers), found.partition, found.timestamp)


@pytest.mark.promise("commands", "Records exported as JSON lines, CSV or Parquet are imported unchanged")
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
@given(made=records)
def test_a_file_that_was_exported_is_imported(
    tmp_path_factory: pytest.TempPathFactory, form: str, made: list[Record]
) -> None:
    path = tmp_path_factory.mktemp("files") / f"records.{form}"
    path.write_bytes(as_bytes(form, made))
    assert [same(each) for each in read_file(str(path), form)] == [written(each) for each in made]


def test_no_cell_of_csv_is_a_formula() -> None:
    text = as_bytes(
        "csv", [Record("t", 0, 1, b"=cmd|' /C calc'!A0", b"@x", (1, 5), [("=h", b"+1")])]
    ).decode()
    (row,) = csv.DictReader(io.StringIO(text))
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row.values())


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b'{"value": "x"}\nnope\n', "line 2: not JSON"),
        ("a.jsonl", b'{"colour": "x"}\n', "line 1: unknown field 'colour'"),
        ("a.csv", b"key,value\na,b,c\n", "line 2: more cells than columns"),
        ("a.csv", b"key,value,partition\na,b,x\n", "line 2: invalid literal"),
        ("a.csv", b"key,value,headers\na,b,[1]\n", "line 2: each of 'headers'"),
        ("a.csv", b"colour,value\na,b\n", "line 1: unknown column 'colour'"),
        ("a.csv", b"key_base64,value\n!,b\n", "line 2: not base64"),
        ("a.csv", b"key,value\n\xff,b\n", "not CSV in UTF-8"),
        ("a.csv", b"", "no column 'key' or 'value'"),
        ("a.parquet", b"PAR1 no parquet", "not a Parquet file"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadRecord) as error:
        list(read_file(str(path), format_of(name)))
    assert words in str(error.value)


def test_a_parquet_file_of_somebody_else_is_read(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = str(tmp_path / "theirs.parquet")
    pq.write_table(pa.table({"value": ["a", None], "key": pa.array([b"k", None]), "colour": [1, 2]}), path)
    assert list(read_file(path, "parquet")) == [
        OutgoingRecord(b"a", b"k", []),
        OutgoingRecord(None, None, []),
    ]
    pq.write_table(pa.table({"value": [1, 2]}), path)
    with pytest.raises(BadRecord, match="column 'value' is int64: it must be text or bytes"):
        list(read_file(path, "parquet"))
    with pytest.raises(CommandFailed, match=r"\.jsonl, \.csv or \.parquet"):
        format_of("records.txt")
