"""What EXPLAIN shows of a query."""

from __future__ import annotations

import pytest

from penstock.sql.server.explaining import lines_of


@pytest.mark.promise("sql", "EXPLAIN returns one row for each line of the plan")
def test_a_plan_is_shown_line_by_line() -> None:
    plan = "Project [n]\n+- Relation t\n"
    told = [("mode", "append"), ("key", None), ("reads", ["a", "b"]), ("plan", plan), ("text", "")]
    assert lines_of(told) == [
        ["mode", "append"], ["key", None], ["reads", "a, b"],
        ["plan", "Project [n]"], ["plan", "+- Relation t"], ["text", ""],
    ]  # fmt: skip
