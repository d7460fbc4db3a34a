"""A chart of the rows of a query: lines over time, or bars by a text; its columns can be chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui import ui

from penstock.console.parts.curves import COLOURS
from penstock.console.reads.charting import (
    ARRIVAL,
    MOST_LINES,
    Plan,
    is_number,
    lines_of,
    options_of,
    suggest,
)

_NONE = "(no)"


class RowChart:
    """Hidden until rows with numbers are shown."""

    def __init__(self) -> None:
        self._columns: Sequence[tuple[str, str]] = ()
        self._rows: Sequence[Sequence[Any]] = ()
        self._arrived: Sequence[float] = ()
        self._choosing = False
        self.possible = False
        """Whether there are numbers."""
        self.area = ui.element("div").classes("card w-full")
        with self.area:
            with ui.row().classes("w-full items-center gap-2"):
                self._x = ui.select([ARRIVAL], value=ARRIVAL, label="Across").props("outlined dense")
                self._ys = ui.select([], value=[], multiple=True, label="Up").props(
                    "outlined dense use-chips"
                )
                self._by = ui.select([_NONE], value=_NONE, label="A line for each").props("outlined dense")
                for each in (self._x, self._ys, self._by):
                    each.classes("chart-choice").on_value_change(self._draw)
                self._note = ui.label("").classes("muted")
            self._chart = ui.echart(_options()).style("height: 280px; width: 100%").mark("row-chart")
        self.area.set_visibility(False)

    def begin(self, columns: Sequence[tuple[str, str]], *, live: bool) -> None:
        """For new columns; what was chosen for the same columns stays."""
        if list(columns) == list(self._columns):
            return
        self._columns, self._rows, self._arrived = columns, (), ()
        plan = suggest(columns, live=live)
        self.possible = plan is not None
        if plan is None:
            return
        names = [name for name, _ in columns]
        self._choosing = True
        self._x.set_options([*names, ARRIVAL], value=plan.x)
        self._ys.set_options([name for name, type_ in columns if is_number(type_)], value=list(plan.ys))
        self._by.set_options([_NONE, *names], value=plan.by or _NONE)
        self._choosing = False

    def show(self, rows: Sequence[Sequence[Any]], arrived: Sequence[float]) -> None:
        self._rows, self._arrived = rows, arrived
        self._draw()

    def _draw(self) -> None:
        if self._choosing or not self._columns or not self.area.visible:
            return
        by = None if self._by.value in (None, _NONE) else str(self._by.value)
        plan = Plan(str(self._x.value), tuple(map(str, self._ys.value or ())), by)
        lines = lines_of(plan, self._columns, self._rows, self._arrived)
        made = options_of(lines, COLOURS)
        options = self._chart.options
        options["series"] = made["series"]
        options["legend"]["show"] = len(made["series"]) > 1
        if made["categories"] is None:
            options["xAxis"] = {**options["xAxis"], "type": "time", "data": None}
        else:
            options["xAxis"] = {**options["xAxis"], "type": "category", "data": made["categories"]}
        more = f"{lines.left_out} more lines are not shown." if lines.left_out else ""
        self._note.text = f"The first {MOST_LINES} lines. {more}" if more else ""
        self._chart.update()


def _options() -> dict[str, Any]:
    grey = {"color": "#94a3b8"}
    return {
        "animation": False,
        "grid": {"left": 8, "right": 16, "top": 30, "bottom": 4, "containLabel": True},
        "legend": {"show": False, "textStyle": grey, "top": 0, "type": "scroll"},
        "tooltip": {"trigger": "axis", "renderMode": "richText"},
        "xAxis": {"type": "time", "axisLabel": {**grey, "hideOverlap": True}, "splitLine": {"show": False}},
        "yAxis": {"type": "value", "axisLabel": grey, "splitLine": {"lineStyle": {"color": "#94a3b833"}}},
        "series": [],
    }
