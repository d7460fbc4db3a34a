"""Plain JSON and CSV in typed columns: what is taken for what, and that both ways of reading say the same."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from penstock.spark.errors import BadOption, DecodeFailed, NotTyped
from penstock.spark.source.options import parse_source_options
from penstock.spark.source.reading import ARROW_SCHEMA
from penstock.spark.typed.columns import (
    ColumnDecoder,
    TypedColumns,
    TypedPart,
    ddl,
    needs_headers,
    source_ddl,
)
from penstock.spark.typed.options import CSV_TEXT, JSON_TEXT, PartOptions, TypedOptions
from penstock.spark.typed.text import TextColumn
from penstock.spark.typed.text_values import check_types
from tests.repetitions import times

SCALARS: dict[str, T.DataType] = {
    "flag": T.BooleanType(), "tiny": T.ByteType(), "id": T.LongType(), "count": T.IntegerType(),
    "ratio": T.FloatType(), "price": T.DoubleType(), "money": T.DecimalType(9, 2), "name": T.StringType(),
    "raw": T.BinaryType(), "day": T.DateType(), "at": T.TimestampType(), "local": T.TimestampNTZType(),
}  # fmt: skip


def struct(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


def column(kind: T.StructType, form: str = JSON_TEXT, delimiter: str = ",") -> TextColumn:
    return TextColumn(PartOptions("value", form, "", None, "latest", None, "null", delimiter), kind)


def read(texts: list[Any], kind: T.StructType, form: str = JSON_TEXT) -> tuple[list[Any], dict[int, str]]:
    values, reasons = column(kind, form).decode(pa.array(texts, pa.binary()))
    return values.to_pylist(), reasons


def one(text: str, kind: T.DataType) -> Any:
    """A value of JSON as this type; its reason if it does not fit."""
    (value,), reasons = read([f'{{"x":{text}}}'.encode()], struct(x=kind))
    return reasons.get(0, value and value["x"])


# What is taken for what


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("1", T.LongType(), 1),
        ("2.0", T.LongType(), 2),
        ("9007199254740993.0", T.LongType(), 2**53 + 1),
        ("1e3", T.IntegerType(), 1000),
        ("null", T.LongType(), None),
        ("2", T.DoubleType(), 2.0),
        ('"Infinity"', T.DoubleType(), math.inf),
        ("-Infinity", T.DoubleType(), -math.inf),
        ("1.5", T.DecimalType(9, 2), Decimal("1.50")),
        ('"1.5"', T.DecimalType(9, 2), Decimal("1.50")),
        ('"YWI="', T.BinaryType(), b"ab"),
        ('"2024-02-29"', T.DateType(), date(2024, 2, 29)),
        ('"2024-05-01T12:00:00+02:00"', T.TimestampType(), datetime(2024, 5, 1, 10, tzinfo=UTC)),
        ('"2024-05-01 12:00:00.25"', T.TimestampType(), datetime(2024, 5, 1, 12, 0, 0, 250_000, UTC)),
        ('"2024-05-01"', T.TimestampNTZType(), datetime(2024, 5, 1)),
        ("1714564800250", T.TimestampType(), datetime(2024, 5, 1, 12, 0, 0, 250_000, UTC)),
        ("[1, null]", T.ArrayType(T.LongType()), [1, None]),
        ('{"1": 2}', T.MapType(T.IntegerType(), T.LongType()), [(1, 2)]),
        ('{"y": 1, "z": 2}', struct(y=T.LongType(), w=T.StringType()), {"y": 1, "w": None}),
    ],
)
def test_a_value_of_json_that_fits_its_type(text: str, kind: T.DataType, expected: Any) -> None:
    assert one(text, kind) == expected


@pytest.mark.promise(
    "spark source",
    "Plain JSON and CSV get typed columns without a registry; reading in blocks and record by record "
    "gives the same result; a record that does not fit gets an error with the reason and does not affect "
    "other records",
)
@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ('"1"', T.LongType(), "'x' is \"1\", not a whole number"),
        ("1.5", T.LongType(), "not a whole number"),
        ("true", T.LongType(), "'x' is true, not a whole number"),
        ("99999999999999999999", T.LongType(), "not a bigint: it is too large"),
        ("1e999999", T.LongType(), "not a whole number"),
        ("128", T.ByteType(), "not a tinyint: it is too large"),
        ("1e400", T.DoubleType(), "not a double: it is too large"),
        ("1" + "0" * 5000, T.DoubleType(), "not a double: it is too large"),
        ("1e39", T.FloatType(), "not a float: it is too large"),
        ("1.555", T.DecimalType(9, 2), "not a decimal(9,2): it has more digits"),
        ("1", T.StringType(), "'x' is 1, not a string"),
        ("{}", T.StringType(), "'x' is {}, not a string"),
        ('"\\ud800"', T.StringType(), "half a surrogate pair"),
        ('"a"', T.BinaryType(), "not bytes in base64"),
        ('"2023-02-29"', T.DateType(), "not a date"),
        ('"soon"', T.TimestampType(), "not a time"),
        ("1714564800250000000", T.TimestampType(), "not a time"),
        ("[1, [2]]", T.ArrayType(T.LongType()), "'x[]' is [2], not a whole number"),
        ("[]", struct(y=T.LongType()), "'x' is [], not an object"),
        ("1, ", T.LongType(), "it is not JSON"),
        ('1}{"x":2', T.LongType(), "it is not JSON: Extra data"),
        ("1\0", T.LongType(), "it is not JSON"),
        ('1, "more": Inf', T.LongType(), "it is not JSON"),
    ],
)
def test_a_value_of_json_that_does_not_fit_its_type_says_why(text: str, kind: T.DataType, told: str) -> None:
    assert told in one(text, kind)


def test_tombstones_null_and_missing_fields_are_null_and_others_are_left_out() -> None:
    kind = struct(a=T.LongType(), b=T.StringType())
    texts = [None, b'{"a":1,"c":[{}]}', b"null", b' {"b":"x"}\n', b"{}", None]
    nothing = {"a": None, "b": None}
    assert read(texts, kind) == ([None, {"a": 1, "b": None}, None, {"a": None, "b": "x"}, nothing, None], {})
    assert read([], kind) == ([], {}) and read([None], kind) == ([None], {})


@pytest.mark.promise(
    "spark source",
    "Plain JSON and CSV get typed columns without a registry; reading in blocks and record by record "
    "gives the same result; a record that does not fit gets an error with the reason and does not affect "
    "other records",
)
def test_a_record_that_is_wrong_neither_hides_nor_shifts_another() -> None:
    kind = struct(n=T.LongType())
    texts: list[Any] = [b'{"n":%d}' % number for number in range(10_000)]
    # The bad ones together have as many objects as there are records.
    bad = {7: b'{"n":1}{"n":2}', 8: b"", 4100: b'{"n":', 4101: b'"n":2}', 4102: b"\xff", 9999: b'{"n":"x"}'}
    texts[4200] = b'{\n "n": 4200\n}'
    texts[11] = None
    for row, text in bad.items():
        texts[row] = text
    values, reasons = read(texts, kind)
    assert sorted(reasons) == sorted(bad)
    expected = [None if row in bad or row == 11 else {"n": row} for row in range(10_000)]
    assert values == expected


def test_times_may_be_numbers_in_some_blocks_and_texts_in_others() -> None:
    kind = struct(at=T.TimestampType(), all=T.ArrayType(T.TimestampType()))
    numbers = [b'{"at":1714564800000,"all":[1714564800000]}'] * 5000
    texts = [b'{"at":"2024-05-01T12:00:00Z","all":["2024-05-01T12:00:00Z"]}'] * 5000
    values, reasons = read(
        [*numbers, *texts, *numbers, b'{"at":1714564800000,"all":["2024-05-01T12"]}'], kind
    )
    at = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert values == [{"at": at, "all": [at]}] * 15_001 and not reasons


# Both ways say the same


def same(kind: T.StructType, form: str, texts: list[bytes]) -> None:
    """What the fast way takes at once is what the slow way gives, record by record."""
    made = column(kind, form)
    block = made._at_once(pa.array(texts, pa.binary()))
    if block is None:
        return
    reasons: dict[int, str] = {}
    exact = made._one_by_one(pa.array(texts, pa.binary()), 0, reasons)
    assert not reasons
    assert block.type == exact.type
    block.validate(full=True)
    assert block.to_pylist() == exact.to_pylist()


ISO = st.from_regex(
    r"[0-2][0-9]{3}-[01][0-9]-[0-3][0-9]([T ][0-2][0-9](:?[0-6][0-9](:?[0-6][0-9](\.[0-9]{0,7})?)?)?"
    r"( ?Z|[+-][0-2][0-9](:?[0-6][0-9])?)?)?",
    fullmatch=True,
)
NUMBERS = st.from_regex(r"-?[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
SCALAR_TEXTS = st.one_of(
    NUMBERS,
    st.integers(-(2**63), 2**63).map(str),
    st.integers(-200, 200).map(str),
    st.floats().map(json.dumps),
    st.sampled_from(
        ["true", "false", "null", "Inf", "-Inf", '"NaN"', "01", "+1", ".5", '""', "1714564800250"]
    ),
    ISO.map(json.dumps),
    st.text(max_size=5).map(json.dumps),
    st.text(max_size=3).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.binary(max_size=3).map(lambda data: json.dumps(data.hex())),
    NUMBERS.map(json.dumps),
)
JSON_TEXTS = st.recursive(
    SCALAR_TEXTS,
    lambda inside: st.one_of(
        st.lists(inside, max_size=3).map(lambda items: f"[{','.join(items)}]"),
        st.dictionaries(st.sampled_from(["a", "b", "c"]), inside, max_size=3).map(
            lambda items: "{" + ",".join(f'"{name}": {item}' for name, item in items.items()) + "}"
        ),
    ),
    max_leaves=4,
)
NESTED: dict[str, T.DataType] = {
    "list": T.ArrayType(T.LongType()), "times": T.ArrayType(T.TimestampType()),
    "deep": struct(a=T.LongType(), b=T.StringType(), c=T.ArrayType(struct(a=T.DateType()))),
}  # fmt: skip


WHOLE = st.one_of(st.integers(-200, 200), st.integers(-(2**63), 2**63 - 1)).map(str)
TIMES = st.one_of(ISO.map(json.dumps), st.integers(-(10**14), 10**15).map(str))
FITTING = {
    "flag": st.sampled_from(["true", "false"]),
    "tiny": WHOLE,
    "id": WHOLE,
    "count": WHOLE,
    "ratio": NUMBERS,
    "price": NUMBERS,
    "money": st.decimals(-(10**8), 10**8, places=2).map(str),
    "name": st.text().map(json.dumps),
    "raw": st.binary(max_size=4).map(lambda data: json.dumps(base64.b64encode(data).decode())),
    "day": ISO.map(json.dumps),
    "at": TIMES,
    "local": TIMES,
    "list": st.lists(WHOLE, max_size=3).map(lambda items: f"[{','.join(items)}]"),
    "times": st.lists(TIMES, max_size=3).map(lambda items: f"[{','.join(items)}]"),
    "deep": st.tuples(WHOLE, ISO).map(lambda two: f'{{"a":{two[0]},"c":[null,{{"a":"{two[1]}","b":1}}]}}'),
}


@pytest.mark.promise(
    "spark source",
    "Plain JSON and CSV get typed columns without a registry; reading in blocks and record by record "
    "gives the same result; a record that does not fit gets an error with the reason and does not affect "
    "other records",
)
@settings(max_examples=times(100, 3000), deadline=None)
@given(st.data(), st.sampled_from([*SCALARS, *NESTED]), st.sampled_from(["", " ", "\n"]))
def test_both_ways_read_the_same_json(data: Any, name: str, space: str) -> None:
    fits = st.one_of(FITTING[name], FITTING[name], FITTING[name], st.just("null"))
    texts = data.draw(
        st.one_of(st.lists(fits, min_size=1, max_size=3), st.lists(JSON_TEXTS, min_size=1, max_size=2))
    )
    kind = struct(x=(SCALARS | NESTED)[name])
    records = [f'{{{space}"x":{space}{text}{space}}}'.encode("utf-8", "surrogatepass") for text in texts]
    same(kind, JSON_TEXT, records)


@pytest.mark.parametrize(("name", "texts"), [
    ("at", ['"0000-01-01"']), ("day", ['"0000-01-01"']), ("at", ["1e3", "1000"]), ("money", ["1000E4"]),
])  # fmt: skip
def test_both_ways_read_the_same_json_where_arrow_has_its_own_mind(name: str, texts: list[str]) -> None:
    same(struct(x=SCALARS[name]), JSON_TEXT, [b'{"x":%s}' % text.encode() for text in texts])


@pytest.mark.promise(
    "spark source",
    "Plain JSON and CSV get typed columns without a registry; reading in blocks and record by record "
    "gives the same result; a record that does not fit gets an error with the reason and does not affect "
    "other records",
)
@settings(max_examples=times(100, 3000), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.just('{"a":1}'), st.just("{"), st.just("}"), st.just("\n"), st.just(""), st.just('{"a":1'),
            st.just('{"a":1}{"a":2}'), st.just(',"a":3}'), st.just('"'), st.just("\0"),
            st.text(alphabet='{}[]",:1a\\ \n', max_size=12),
        ),
        min_size=1,
        max_size=5,
    )
)  # fmt: skip
def test_both_ways_find_the_same_records_of_json(texts: list[str]) -> None:
    same(struct(a=T.LongType()), JSON_TEXT, [text.encode() for text in texts])


CSV_TEXTS = st.one_of(
    ISO,
    NUMBERS,
    st.floats().map(str),
    st.integers(-200, 200).map(str),
    st.text(alphabet="0123456789+-.eE_xX naif\t", max_size=6),
    st.text(max_size=4),
    st.sampled_from(
        ["", "true", "FALSE", "1", "TrUe", "NaN", "Infinity", "nan", "inf", '"a,b"', '"a""b"', "YWI="]
    ),
)


@pytest.mark.promise(
    "spark source",
    "Plain JSON and CSV get typed columns without a registry; reading in blocks and record by record "
    "gives the same result; a record that does not fit gets an error with the reason and does not affect "
    "other records",
)
@settings(max_examples=times(100, 3000), deadline=None)
@given(st.data(), st.sampled_from(list(SCALARS)), st.booleans())
def test_both_ways_read_the_same_csv(data: Any, name: str, two: bool) -> None:
    plain = FITTING[name].map(lambda text: text.strip('"'))
    fits = st.one_of(plain, plain, plain, CSV_TEXTS, st.just(""))
    kind = struct(x=SCALARS[name], y=T.StringType()) if two else struct(x=SCALARS[name])
    line = st.tuples(fits, st.sampled_from(["", "a"])).map(",".join) if two else fits
    lines = data.draw(st.lists(st.one_of(line, line, line, CSV_TEXTS), min_size=1, max_size=3))
    same(kind, CSV_TEXT, [text.encode("utf-8", "surrogatepass") for text in lines])


def test_csv_has_one_record_in_a_value_and_what_is_empty_is_null() -> None:
    kind = struct(id=T.LongType(), name=T.StringType(), at=T.TimestampType())
    texts = [
        b"1,a,2024-05-01T12:00:00Z",
        b'2,"x, ""y""",1714564800000\r\n',
        b",,",
        b"3,b",
        b"x,b,",
        b"4,b,soon",
        b"5,a\nb,",
        b'6,"b,',
        None,
    ]
    values, reasons = read(texts, kind, CSV_TEXT)
    at = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert values[:3] == [
        {"id": 1, "name": "a", "at": at},
        {"id": 2, "name": 'x, "y"', "at": at},
        {"id": None, "name": None, "at": None},
    ]
    assert values[3:] == [None] * 6
    assert [reasons[row].split(":")[0] for row in range(3, 8)] == [
        "it has 2 columns, not 3",
        "'id' is \"x\", not a whole number",
        "'at' is \"soon\", not a time (ISO 8601, or milliseconds since 1970)",
        "it has several lines",
        "it is not CSV",
    ]


# Options


def options(**more: str) -> TypedOptions:
    found = parse_source_options(
        {
            "kafka.bootstrap.servers": "x:1",
            "subscribe": "t",
            **{n.replace("_", "."): v for n, v in more.items()},
        },
        streaming=None,
    ).typed
    assert found is not None
    return found


def test_text_needs_a_schema_and_no_registry() -> None:
    found = options(value_format="json-text", value_schema="id BIGINT")
    assert found.registry is None and found.parts[0].schema == "id BIGINT"
    columns = TypedColumns(found, (TypedPart(found.parts[0], "", ()),))
    assert source_ddl(columns, False).startswith("key binary, value struct<id BIGINT>, topic string")
    assert not needs_headers(columns)
    assert (
        options(value_format="csv-text", value_schema="a INT", value_delimiter="\\t").parts[0].delimiter
        == "\t"
    )
    # Beside a registry's format it is asked for that one.
    with pytest.raises(BadOption, match=r"requires schema\.registry\.url"):
        options(value_format="json-text", value_schema="id BIGINT", key_format="avro")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"value_format": "json-text"}, "value.schema must say the columns"),
        (
            {"value_format": "json-text", "value_schema": "a INT", "value_subject": "s"},
            "requires a schema registry",
        ),
        (
            {"value_format": "json-text", "value_schema": "a INT", "value_delimiter": ";"},
            "requires value.format=csv-text",
        ),
        ({"value_format": "csv-text", "value_schema": "a INT", "value_delimiter": "||"}, "one character"),
    ],
)
def test_options_of_text_that_do_not_go_together_are_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        options(**given)


def test_types_that_no_text_has_are_refused_with_their_place() -> None:
    with pytest.raises(NotTyped, match=r"a\.b is void"):
        check_types(struct(a=struct(b=T.NullType())), nested=True)
    with pytest.raises(NotTyped, match="a is array<int>, and a line of CSV has plain columns only"):
        check_types(struct(a=T.ArrayType(T.IntegerType())), nested=False)
    with pytest.raises(NotTyped, match="two columns of one name"):
        check_types(T.StructType([T.StructField("a", T.LongType())] * 2), nested=True)
    assert ddl(struct(**{"a`b": T.ArrayType(struct(c=T.DecimalType(9, 2)))})) == (
        "struct<`a``b`: array<struct<`c`: decimal(9,2)>>>"
    )


def test_a_failure_names_its_place_and_reason() -> None:
    found = options(value_format="json-text", value_schema="n BIGINT")
    part = TypedPart(found.parts[0], struct(n=T.LongType()).json(), ())
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([None] * 2, pa.binary()), pa.array([b'{"n":1}', b"{"], pa.binary()), pa.array(["t"] * 2),
            pa.array([3] * 2, pa.int32()), pa.array([10, 11], pa.int64()),
            pa.array([0] * 2, pa.timestamp("us", tz="UTC")), pa.array([0] * 2, pa.int32()),
        ],
        schema=ARROW_SCHEMA,
    )  # fmt: skip
    with pytest.raises(DecodeFailed, match=r"^t-3, offset 11: the value does not decode: it is not JSON"):
        ColumnDecoder(TypedColumns(found, (part,))).decode(rows)
