"""The table of statements is complete: the reference and the completion are made of it."""

from __future__ import annotations

import re

from penstock.sql.language.lexer.keywords import FIRST_WORDS, KEYWORDS, STATEMENTS


def test_every_word_that_begins_a_statement_is_in_the_table() -> None:
    begun = {word for each in STATEMENTS for word in re.findall(r"[A-Z]+", each.syntax)}
    assert set(FIRST_WORDS) <= begun


def test_every_word_of_the_table_is_completed() -> None:
    words = {word for each in STATEMENTS for word in re.findall(r"\b[A-Z]+\b", each.syntax)}
    assert words <= set(KEYWORDS)


def test_statements_are_told_in_a_line_and_a_sentence() -> None:
    assert len({each.name for each in STATEMENTS}) == len(STATEMENTS)
    for each in STATEMENTS:
        assert "\n" not in each.syntax
        assert each.meaning.endswith(".")
        assert each.syntax.count("(") == each.syntax.count(")")
        assert each.syntax.count("[") == each.syntax.count("]")
