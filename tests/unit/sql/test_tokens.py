"""Words are as Spark has them, each with its place; what sqlglot reads otherwise than Spark is cut right."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.sql.errors import BadSyntax
from penstock.sql.language.lexer.tokens import tokenize


def kinds(text: str) -> list[tuple[str, str]]:
    tokens = tokenize(text)
    assert all(token.start < token.end for token in tokens)
    assert all(one.end <= two.start for one, two in pairwise(tokens))
    return [(token.kind, token.text) for token in tokens]


@pytest.mark.parametrize(
    "text",
    [
        "SHOW TABLES EXTENDED",
        "EXPLAIN SELECT a",
        "a GROUP BY b",
        "PRIMARY KEY",
        "CALL x",
        "FETCH y",
        "DOUBLE PRECISION",
        "BEGIN SHOW x",
        "a IS NOT NULL",
        "USER - DEFINED",
    ],
)
def test_no_word_has_a_meaning(text: str) -> None:
    assert [token.text for token in tokenize(text)] == text.split()
    assert {token.kind for token in tokenize(text)} <= {"word", "symbol"}


@pytest.mark.parametrize(
    "mark", ["<=>", "->", "::", "||", "|>", "!=", "=>", "?::", "&&", "{%", "{#", "#}", "≤–€", "\x00"]
)
def test_each_mark_stands_by_itself(mark: str) -> None:
    assert kinds(f"a{mark}b") == [("word", "a"), *(("symbol", each) for each in mark), ("word", "b")]


@pytest.mark.parametrize(
    "number",
    ["1", "1.5", "1.", ".5", "1e5", "1.5e-3", "1E+5", "10L", "1s", "2Y", "1.5f", "3d", "1.5BD", "007"],
)
def test_a_number_is_one_word(number: str) -> None:
    assert kinds(number) == [("number", number)]
    assert kinds(f"-{number}, {number}<a") == [
        ("symbol", "-"), ("number", number), ("symbol", ","),
        ("number", number), ("symbol", "<"), ("word", "a"),
    ]  # fmt: skip


@pytest.mark.parametrize("word", ["0x1F", "1e", "1st", "1_000", "5é", "a1", "_", "1e5x", "٣"])
def test_a_name_may_begin_with_a_digit(word: str) -> None:
    assert kinds(word) == [("word", word)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1e5-1", ["1e5", "-", "1"]),
        ("1e5.5", ["1e5", ".5"]),
        ("1.a", ["1", ".", "a"]),
        ("1.5abc", ["1", ".", "5abc"]),
        ("a.1st.b", ["a", ".", "1st", ".", "b"]),
        ("1..5", ["1.", ".5"]),
        ("≤5.0", ["≤", "5.0"]),
        ("1e+", ["1e", "+"]),
    ],
)
def test_what_is_around_a_number_is_cut_as_spark_does(text: str, words: list[str]) -> None:
    assert [token.text for token in tokenize(text)] == words


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("'it''s'", "it's"),
        ('"a""b\'\'c"', "a\"b''c"),
        (r"'\n\t\0\Z\%\_\q\\'", "\n\t\0\x1a\\%\\_q\\"),
        (r"'\101\1017\201'", "AA7201"),
        (r"'\u00e9\U0001F600'", "é😀"),
        (r"'\ud83d\ude00'", "😀"),
        (r"'\ud800'", "?"),
        (r"r'a\n'", "a\\n"),
        ('R"it\'s"', "it's"),
        ("x'4G'", "4G"),
        ("X'${v}'", "${v}"),
        ("'-- /* $$ ${ `'", "-- /* $$ ${ `"),
    ],
)
def test_a_string_is_what_spark_makes_of_it(written: str, text: str) -> None:
    assert kinds(f"a,{written}=b") == [
        ("word", "a"), ("symbol", ","), ("string", text), ("symbol", "="), ("word", "b"),
    ]  # fmt: skip


def test_a_prefix_that_spark_does_not_have_is_a_word() -> None:
    assert kinds("n'a'") == [("word", "n"), ("string", "a")]


@pytest.mark.parametrize(
    "comment",
    [
        "/* ' */",
        "/**/",
        "/*/*/**/*/*/",
        "/* /* a */*/",
        '/*/* ` */ " */',
        "/* $$ ${ -- */",
        "/*+ hint */",
        "-- ' /*\n",
        "-- \r",
        "/* '/*' */ */",
    ],
)
def test_a_comment_is_left_out_and_may_hold_others(comment: str) -> None:
    assert [(t.text, t.start) for t in tokenize(f"a{comment}b")] == [("a", 0), ("b", len(comment) + 1)]


@pytest.mark.parametrize(
    "text", ["'a/*' /* c */ b", "`/*` b", "$$ /* $$ b", "${/*} b", "'/* /* /*' -- /*\n b /* ' */"]
)
def test_what_opens_a_comment_may_stand_in_a_string(text: str) -> None:
    first, last = tokenize(text)
    assert first.start == 0
    assert (last.text, last.start) == ("b", text.index("b"))


@pytest.mark.parametrize("before", ["", "a ", "'x' -- '\n ", "a/* ' */"])
@pytest.mark.parametrize(
    "opened",
    [
        "'",
        "'a",
        "'a''",
        "'a\\'",
        "'a\\",
        '"b',
        "`c",
        "`c``",
        "$$",
        "$$ d $",
        "/*",
        "/*/",
        "/* /* */",
        "'/* b",
    ],
)
def test_what_never_ends_is_told_where_it_begins(before: str, opened: str) -> None:
    with pytest.raises(BadSyntax, match="never ends") as raised:
        tokenize(before + opened)
    assert raised.value.place is not None
    lines = before.split("\n")
    assert (raised.value.place.line, raised.value.place.column) == (len(lines), len(lines[-1]) + 1)


@pytest.mark.parametrize("text", ["${v} ${a b} ${it's}", "'${v}' ${/*} x"])
def test_a_variable_is_one_word(text: str) -> None:
    assert [text[t.start : t.end] for t in tokenize(text) if t.kind == "variable"] == [
        each for each in ("${v}", "${a b}", "${it's}", "${/*}") if each in text and f"'{each}'" not in text
    ]


def test_a_variable_that_its_line_does_not_close_is_none() -> None:
    assert kinds("a ${b;\n}") == [
        ("word", "a"), ("symbol", "$"), ("symbol", "{"), ("word", "b"), ("symbol", ";"), ("symbol", "}"),
    ]  # fmt: skip
    assert kinds("${")[0] == ("symbol", "$")
