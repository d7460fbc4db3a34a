"""The chart of a query's rows."""

from __future__ import annotations

import pytest

from penstock.console.reads.charting import ARRIVAL, MOST_LINES, Plan, lines_of, options_of, suggest

REGION, VIEWS, MEAN, AT = (
    ("region", "STRING"),
    ("views", "BIGINT"),
    ("mean", "DECIMAL(10, 2)"),
    ("at", "TIMESTAMP"),
)


@pytest.mark.parametrize(
    ("columns", "live", "plan"),
    [
        ([REGION, VIEWS, MEAN], False, Plan("region", ("views", "mean"))),
        ([VIEWS, AT, REGION], True, Plan("at", ("views",), "region")),
        ([VIEWS], True, Plan(ARRIVAL, ("views",))),
        ([VIEWS, MEAN], False, Plan("views", ("mean",))),
        ([VIEWS], False, None),
        ([REGION, AT], True, None),
    ],
)
def test_a_chart_is_suggested_by_the_types_of_the_columns(columns, live, plan):
    assert suggest(columns, live=live) == plan


@pytest.mark.promise("console", "Of rows that replace each other, the chart of a query shows the newest")
def test_bars_show_the_newest_row_of_each_text():
    rows = [["north", 1], [None, 5], ["north", 3], ["south", "x"]]
    made = options_of(lines_of(Plan("region", ("views",)), [REGION, VIEWS], rows, [1.0] * 4), ["red"])
    assert made["categories"] == ["north", "null", "south"]
    assert [each["data"] for each in made["series"]] == [[3.0, 5.0, None]]


def test_lines_over_time_are_sorted_and_split_by_a_column():
    rows = [
        ["2024-01-01T00:00:02Z", "a", 2],
        ["2024-01-01T00:00:01Z", "a", 1],
        ["2024-01-01T00:00:01", "b", "2.50"],
        [None, "b", 9],
    ]
    columns = [AT, REGION, MEAN]
    made = options_of(lines_of(Plan("at", ("mean",), "region"), columns, rows, [0.0] * 4), ["red", "blue"])
    begin = 1_704_067_200_000
    assert {each["name"]: each["data"] for each in made["series"]} == {
        "a": [[begin + 1000, 1.0], [begin + 2000, 2.0]],
        "b": [[begin + 1000, 2.5]],
    }


def test_a_chart_has_a_limit_of_lines_and_names_are_never_keys():
    rows = [[f":{n}", n] for n in range(MOST_LINES + 3)]
    lines = lines_of(
        Plan(ARRIVAL, ("views",), "region"), [REGION, VIEWS], rows, [float(n) for n in range(15)]
    )
    assert lines.left_out == 3 and len(lines.series) == MOST_LINES
    # NiceGUI takes a key that begins with a colon for a program.
    assert all(not key.startswith(":") for each in options_of(lines, ["red"])["series"] for key in each)
