"""CREATE OR REPLACE: which queries may write to a topic that has records, and what is said of the others."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.pipelines.plans.changes import Action, Change
from penstock.sql.catalog.catalog import QueryDef, Relation
from penstock.sql.continuous import replacing
from penstock.sql.errors import Clash
from penstock.sql.language.statements import Column

SOURCE = Relation("s", "stream", "s", (Column("a", "STRING"), Column("b", "STRING")), statement="")


def query(columns: str, kind: Any = "stream", sources: tuple[Relation, ...] = (SOURCE,), partition: str = "",
          mode: Any = "append", **options: str) -> QueryDef:  # fmt: skip
    named = tuple(Column(*each.split()) for each in columns.split(", "))
    form = options.pop("format", "csv")
    target = Relation("t", kind, "t", named, format=form, options=options)
    text = f"CREATE {kind} t AS SELECT a, b FROM s{partition};"
    made: Any = "csas" if kind == "stream" else "ctas"
    return QueryDef("q", made, text, target, {each.name: each for each in sources}, mode=mode)


BEFORE = query("a STRING, b STRING")


@pytest.mark.promise(
    "sql",
    "CREATE OR REPLACE does not mix two encodings in one topic: it rejects another format, another "
    "delimiter, or an order of CSV columns with which readers would take one value for another",
)
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (BEFORE, query("a STRING, b STRING", format="json"), "write format='csv'"),
        (BEFORE, query("a STRING, b STRING", delimiter=";"), "write delimiter=','"),
        (BEFORE, query("b STRING, a STRING"), "begin with the columns a, b, in this order"),
        (BEFORE, query("a STRING"), "begin with the columns a, b"),
        (BEFORE, query("a STRING, c STRING, b STRING"), "begin with the columns a, b"),
        (
            query("a STRING", "table", format="protobuf", message="One"),
            query("a STRING", "table", format="protobuf", message="Two"),
            "write message='One'",
        ),
    ],
)
def test_two_encodings_in_one_topic_are_refused(old: QueryDef, new: QueryDef, said: str) -> None:
    with pytest.raises(Clash, match="name another topic") as raised:
        replacing.check_format(old, new, None)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (BEFORE, query("a STRING, b STRING, c INT")),
        (BEFORE, query("A STRING, b STRING", delimiter=",")),
        (query("a STRING, b STRING", format="json"), query("b STRING, a STRING", format="json")),
        (
            query("a STRING", format="protobuf", message="One"),
            query("a STRING", format="protobuf", message="Two"),
        ),
    ],
)
def test_what_every_reader_can_decode_is_allowed(old: QueryDef, new: QueryDef) -> None:
    replacing.check_format(old, new, None)


def noted(old: QueryDef, new: QueryDef, action: Action = Action.RESTART) -> str:
    return " ".join(replacing.notes(Change("q", action), old, new))


def test_changed_types_of_text_are_named() -> None:
    old = query("a INT, b STRING", format="json")
    assert noted(old, query("a STRING, b STRING, c INT", format="json")) == (
        "Note: `a` is INT in the records that `t` has, and STRING in new ones"
    )
    assert noted(old, query("a INT", format="json")) == ""
    table = query("a INT", "table", format="json")  # a table that is rebuilt has none of its old rows
    assert noted(table, query("a STRING", "table", format="json"), Action.REBUILD) == ""


@pytest.mark.promise(
    "sql", "CREATE OR REPLACE STREAM with a changed PARTITION BY mentions the change in its result"
)
def test_another_key_is_named() -> None:
    old, new = (query("a STRING, b STRING", partition=f" PARTITION BY {key}") for key in ("a", "b"))
    assert "the key of new records is (b), and of those that `t` has (a)" in noted(old, new)
    assert "the key of new records is (a), and of those that `t` has (`__key`)" in noted(BEFORE, old)
    assert noted(old, query("a STRING, b STRING", partition=" PARTITION BY  a")) == ""


def test_topics_that_are_no_longer_read_are_left() -> None:
    other = Relation("o", "stream", "other", SOURCE.columns)
    assert replacing.topics_left(BEFORE, query("a STRING", sources=(other,))) == {"s"}
    assert replacing.topics_left(query("a STRING", sources=(SOURCE, other)), BEFORE) == {"other"}
    assert replacing.topics_left(BEFORE, query("b STRING")) == frozenset()
    assert replacing.topics_left(BEFORE, query("a STRING", "table", mode="refresh")) == {"s"}
