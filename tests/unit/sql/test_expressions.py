"""Expressions of a query, apart from the names that they are given."""

from __future__ import annotations

import pytest

from penstock.sql.language.expressions import without_alias


@pytest.mark.parametrize(
    ("item", "expression"),
    [
        ("a", "a"),
        ("t.a", "t.a"),
        ("a AS b", "a"),
        ("a b", "a"),
        ("a + 1 AS `b c`", "a + 1"),
        ("f(a, b) c", "f(a, b)"),
        ("CAST(a AS INT)", "CAST(a AS INT)"),
        ("CAST(a AS INT) AS b", "CAST(a AS INT)"),
        ("CASE WHEN a THEN b END", "CASE WHEN a THEN b END"),
        ("NOT a", "NOT a"),
        ("a AND b", "a AND b"),
        ("t.*", "t.*"),
        ("*", "*"),
        ("'x' AS y", "'x'"),
        ("", ""),
    ],
)
def test_an_item_without_its_alias(item: str, expression: str) -> None:
    assert without_alias(item) == expression
