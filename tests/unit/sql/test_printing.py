"""Answers as people and programs see them."""

import io
import json

import pytest

from penstock.sql.shell.printing import JsonLines, TextTables, error_text

ANSWER = [
    {"statement": "SELECT"},
    {"columns": [["name", "STRING"], ["n", "BIGINT"], ["more", "ARRAY<INT>"]]},
    {"row": ["a", 5, [1, 2]]},
    {"row": [None, 12345, None]},
    {"row": ["two\nlines\x1b[31m", 1, []]},
    {"done": "3 rows"},
    {"statement": "DROP"},
    {"done": "stream s dropped"},
]


def shown(lines, **options):
    out = io.StringIO()
    tables = TextTables(out, **options)
    for line in lines:
        tables.line(line)
    tables.flush()
    return out.getvalue()


def test_in_a_pipe_columns_are_aligned_and_nothing_else_is_said():
    lines = shown(ANSWER).splitlines()
    assert [line.split() for line in lines] == [
        ["NAME", "N", "MORE"],
        ["a", "5", "[1,", "2]"],
        ["NULL", "12345", "NULL"],
        ["two\\nlines\\x1b[31m", "1", "[]"],
        ["stream", "s", "dropped"],
    ]
    assert (
        len({line.index(word) for line, word in zip(lines, ("MORE", "[1", "-", "[]")) if word in line}) == 1
    )
    assert lines[1].index("5") == lines[2].index("5"), "numbers are aligned to the right"


def test_on_a_terminal_rows_are_counted_and_no_cell_can_change_the_colours(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = shown(ANSWER, terminal=True)
    assert "(3 rows)" in text and "───" in text and "\x1b[31m" not in text


def test_what_is_wider_than_the_terminal_goes_on_below(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = [
        {"statement": "SELECT"},
        {"columns": [["a", "STRING"], ["b", "STRING"]]},
        {"row": ["x" * 100, "short"]},
        {"done": "1 row"},
    ]
    text = shown(lines, terminal=True)
    assert max(len(line) for line in text.splitlines()) <= 40
    assert text.count("x") == 100


def test_rows_of_a_push_query_are_shown_as_they_come():
    out = io.StringIO()
    tables = TextTables(out, terminal=True)
    tables.line({"statement": "SELECT"})
    tables.line({"columns": [["n", "INT"]], "live": True})
    tables.line({"row": [7]})
    assert "7" in out.getvalue()


def test_an_answer_that_ends_early_is_not_held_back():
    assert "7" in shown([{"statement": "SELECT"}, {"columns": [["n", "INT"]]}, {"row": [7]}])


def test_json_is_one_line_each():
    out = io.StringIO()
    for line in ANSWER:
        JsonLines(out).line(line)
    assert [json.loads(each) for each in out.getvalue().splitlines()] == ANSWER


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ({"message": "wrong"}, "wrong"),
        (
            {"message": "no column `b`", "line": 2, "column": 8},
            "line 2, column 8: no column `b`\n  SELECT b\n         ^",
        ),
        ({"message": "gone", "line": 9, "column": 1}, "line 9, column 1: gone"),
    ],
)
def test_an_error_points_at_its_place(line, text):
    assert error_text(line, "-- first\nSELECT b\nFROM t") == text
