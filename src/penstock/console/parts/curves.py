"""Line charts over time. Names are drawn as text, never as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

COLOURS = ("#0d9488", "#7c3aed", "#ea580c", "#2563eb", "#db2777")


class Curves:
    """A chart of one or several lines; `show` replaces what it shows."""

    def __init__(self, title: str, unit: str = "") -> None:
        with ui.element("div").classes("card"):
            ui.label(f"{title}, {unit}" if unit else title).classes("muted")
            self._chart = ui.echart(_options()).style("height: 180px; width: 100%")

    def show(self, times: Sequence[float], lines: Mapping[str, Sequence[float | None]]) -> None:
        self._chart.options["series"] = [
            {
                "name": name,
                "type": "line",
                "showSymbol": len(times) < 3,
                "data": [
                    [round(at * 1000), value]
                    for at, value in zip(times, values, strict=True)
                    if value is not None
                ],
                "lineStyle": {"width": 2},
                "areaStyle": {"opacity": 0.12},
                "color": COLOURS[index % len(COLOURS)],
            }
            for index, (name, values) in enumerate(lines.items())
        ]
        self._chart.options["legend"]["show"] = len(lines) > 1
        self._chart.update()


def _options() -> dict[str, Any]:
    axis: dict[str, Any] = {
        "axisLabel": {"color": "#94a3b8", "hideOverlap": True},
        "splitLine": {"lineStyle": {"color": "#94a3b833"}},
    }
    return {
        "animation": False,
        "grid": {"left": 8, "right": 12, "top": 26, "bottom": 4, "containLabel": True},
        "legend": {"show": False, "textStyle": {"color": "#94a3b8"}, "top": 0, "type": "scroll"},
        "tooltip": {"trigger": "axis", "renderMode": "richText"},
        "xAxis": {
            "type": "time",
            "splitNumber": 4,
            "axisLabel": {**axis["axisLabel"], "formatter": "{HH}:{mm}:{ss}", "alignMaxLabel": "right"},
            "splitLine": {"show": False},
        },
        "yAxis": {"type": "value", "min": 0, **axis},
        "series": [],
    }
