"""Whatever is typed, the answer is statements or a SqlError, and places are inside of the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.sql.errors import SqlError
from penstock.sql.language.lexer.keywords import FIRST_WORDS, KEYWORDS
from penstock.sql.language.parser import is_complete, parse
from penstock.sql.language.spark_text import to_spark
from penstock.sql.language.statements import Query, Statement

WORDS = [
    *KEYWORDS, "a", "b", "t", "`x-y`", "'s'", '"d"', "$$ b; $$", "${v}", "${n}", "1", "2.5", "1e3", "10L",
    "(", ")", "(", ")", ",", ",", ".", ";", "=", "<", ">", "*", "-", "+", "[", "]", "{", "}", "|", "::",
    "--\n", "/* c */", "\n", "count", "SELECT", "FROM", "GROUP BY", "PARTITION BY", "EMIT CHANGES",
    "WINDOW TUMBLING (SIZE 1 DAY)", "WITHIN 1 DAY", "WINDOWSTART", "__key",
]  # fmt: skip
soup = st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join)
begun = st.tuples(st.sampled_from([*FIRST_WORDS, "CREATE STREAM x AS SELECT", "SELECT a FROM t"]), soup)


def spans(value: Any, text: str) -> Iterator[tuple[int, int]]:
    """Every span in a statement, found by its form."""
    if is_dataclass(value):
        for each in fields(value):
            yield from spans(getattr(value, each.name), text)
    elif isinstance(value, tuple) and len(value) == 2 and all(type(each) is int for each in value):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from spans(each, text)
    elif isinstance(value, dict):
        yield from spans(tuple(value.values()), text)


def queries(value: Any) -> Iterator[Query]:
    if isinstance(value, Query):
        yield value
    elif isinstance(value, Statement):
        for each in fields(value):
            yield from queries(getattr(value, each.name))


def check(text: str) -> None:
    is_complete(text)
    try:
        statements = parse(text, {"v": "value", "n": "7 DAYS"})
    except SqlError as error:
        if error.place is not None:
            lines = text.split("\n")
            assert 1 <= error.place.line <= len(lines)
            assert 1 <= error.place.column <= len(lines[error.place.line - 1]) + 1
        return
    for statement in statements:
        assert 0 <= statement.span[0] < statement.span[1] <= len(statement.text)
        for start, end in spans(statement, statement.text):
            assert 0 <= start <= end <= len(statement.text)
        for query in queries(statement):
            try:
                rewritten = to_spark(query, window_columns=True, drop_having=True)
            except SqlError:
                continue
            lines = text.split("\n")
            for offset in range(len(rewritten.text) + 1):
                place = rewritten.place(offset)
                assert 1 <= place.line <= len(lines)
                assert 1 <= place.column <= len(lines[place.line - 1]) + 1


@pytest.mark.promise("sql", "Any input is parsed to statements or gives a syntax error")
@pytest.mark.fuzz
@settings(deadline=None)
@given(st.one_of(soup, begun.map(" ".join)))
@example("SELECT '${v}' , ${v} FROM t WINDOW TUMBLING (SIZE ${n}) GROUP BY ${v} EMIT CHANGES")
@example("WITH")
@example("( ( )")
@example("WITH a AS")
@example("SELECT a FROM t WINDOW")
@example("EMIT CHANGES")
@example("SELECT EMIT CHANGES LIMIT")
@example("FROM")
@example("SELECT a FROM t PARTITION BY")
@example("SELECT a FROM t GROUP BY EMIT CHANGES")
@example("SELECT a FROM t HAVING")
@example("SELECT , FROM t")
def test_words_in_any_order_are_statements_or_an_error(text: str) -> None:
    check(text)


@pytest.mark.promise("sql", "Any input is parsed to statements or gives a syntax error")
@pytest.mark.fuzz
@settings(deadline=None)
@given(st.text(max_size=200))
@example("'''")
@example("SELECT ''''")
@example("\\")
@example("SELECT \x00 \ud800")
@example("SELECT '\\")
@example("/*/")
@example("$$")
@example("${")
@example("`")
def test_any_text_is_statements_or_an_error(text: str) -> None:
    check(text)
