"""Lineage: topics, queries, flows, connectors, tables and groups as one graph with live rates."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from nicegui import events, ui
from starlette.requests import Request

from penstock.admin.failure import CommandFailed
from penstock.console.parts import format as f
from penstock.console.parts.acting import read, sentence_of, show_failure, soon
from penstock.console.parts.frame import command_line, frame
from penstock.console.parts.keys import SEARCH
from penstock.console.parts.live import Redrawn
from penstock.console.reads.lineage import (
    MOST_NODES,
    Edge,
    Key,
    Kind,
    Lineage,
    Node,
    around,
    connector_topics,
    lineage,
    placed,
)
from penstock.console.reads.streaming import SQL
from penstock.console.site import Site

_LIVE_SECONDS = 2.0
_RATE_SECONDS = 30.0
"""Queries commit their offsets by batches: between two samples a rate would be nothing, or much too high."""
_COLOURS = {
    Kind.TOPIC: "#0f766e",
    Kind.QUERY: "#6d28d9",
    Kind.FLOW: "#1d4ed8",
    Kind.CONNECTOR: "#b45309",
    Kind.TABLE: "#be185d",
    Kind.GROUP: "#475569",
}
_FAILED = "#dc2626"
_COLUMN, _ROW = 270, 62
"""Pixels between two columns, and between two nodes of one."""
_WIDTH, _HEIGHT = 172, 38
"""Of a node."""
_MARGIN = 24
_SHAPE = (  # `roundRect` would stretch its corners
    f"path://M8,0H{_WIDTH - 8}Q{_WIDTH},0 {_WIDTH},8V{_HEIGHT - 8}Q{_WIDTH},{_HEIGHT} {_WIDTH - 8},{_HEIGHT}"
    f"H8Q0,{_HEIGHT} 0,{_HEIGHT - 8}V8Q0,0 8,0Z"
)


def register(site: Site) -> None:
    @ui.page("/lineage")
    async def page(request: Request, q: str = "") -> None:
        site.streams.watch()
        site.sampler.watch()
        with frame(site, request, "Lineage", site.command("groups", "list"), section="/lineage"):
            _Page(site, q)
            if site.sql is not None:
                command_line(site.sql_command("SHOW QUERIES;"))


def link_of(node: Node) -> str:
    """The page of what the node stands for."""
    if node.kind is Kind.TOPIC:
        return f.topic_link(node.name)
    if node.kind is Kind.CONNECTOR:
        return f.link("/connector", name=node.name)
    if node.kind is Kind.GROUP:
        return f.link("/group", id=node.name)
    if node.kind is Kind.TABLE:
        return f.link("/pipeline", name=node.owner) if node.owner else "/sql"
    return f.link("/query", owner=node.owner or SQL, name=node.name)


class _Page:
    def __init__(self, site: Site, text: str) -> None:
        self._site = site
        self._links: list[str] = []
        with ui.row().classes("w-full items-center gap-2"):
            self._filter = (
                ui.input(placeholder="Filter by name", value=text, on_change=self._refresh)
                .props('outlined dense clearable debounce=300 aria-label="Filter by name"')
                .classes(f"grow {SEARCH}")
            )
        with ui.row().classes("w-full items-center gap-2"):
            for kind, colour in _COLOURS.items():
                with ui.row().classes("items-center gap-1 no-wrap"):
                    ui.element("span").classes("legend-dot").style(f"background: {colour}")
                    ui.label(str(kind)).classes("muted")
        self._problems = Redrawn(ui.column().classes("w-full gap-2"))
        self._note = ui.label("").classes("muted")
        with ui.element("div").classes("card w-full lineage"):
            self._chart = ui.echart(_options(), on_point_click=self._clicked, renderer="svg")
            self._chart.props('role="img" aria-label="The graph; its edges are listed below"')
        ui.label("Edges").classes("font-bold")
        self._edges = Redrawn(ui.element("div").classes("w-full"))
        self._rates: list[ui.label] = []
        soon(self._refresh)
        ui.timer(_LIVE_SECONDS, self._refresh, immediate=False)

    async def _refresh(self) -> None:
        site = self._site
        site.streams.watch()
        site.sampler.watch()
        text = self._filter.value or ""
        ui.navigate.history.replace(f.link("/lineage", q=text))
        if site.sampler.last is None:
            await read(site.sampler.wait, site.settings.timeout)
        if site.streams.last is None:
            await read(site.streams.wait, site.settings.timeout + 5.0)
        sample, streams = site.sampler.last, site.streams.last
        problems = [each for each in (site.sampler.failure, site.streams.failure) if each]
        problems += streams.problems if streams is not None else ()
        try:
            connectors = await read(connector_topics, site.worker)
        except CommandFailed as error:
            connectors = []
            problems.append(sentence_of(error))
        whole = lineage(
            streams,
            connectors,
            sorted(sample.places) if sample is not None else (),
            partial(site.sampler.rate, seconds=_RATE_SECONDS),
            partial(site.sampler.consumed, seconds=_RATE_SECONDS),
        )
        graph = around(whole, text)
        self._problems.show(tuple(problems), lambda: _show_problems(problems))
        self._show(graph)

    def _show(self, graph: Lineage) -> None:
        if not graph.nodes:
            self._note.text = "Nothing is read or written yet."
        elif graph.left_out:
            self._note.text = f"{MOST_NODES} nodes are shown, {graph.left_out} more are not: filter by name."
        self._note.set_visibility(not graph.nodes or bool(graph.left_out))
        where = placed(graph)
        keys = sorted(graph.nodes, key=lambda key: where[key])
        self._links = [link_of(graph.nodes[key]) for key in keys]
        columns = 1 + max((column for column, _ in where.values()), default=0)
        rows = 1 + max((place for _, place in where.values()), default=0)
        width, height = columns * _COLUMN - (_COLUMN - _WIDTH) + 2 * _MARGIN, rows * _ROW + _MARGIN
        self._chart.style(f"width: {width}px; height: {height:.0f}px")
        points = {
            key: (_MARGIN + _WIDTH / 2 + column * _COLUMN, _MARGIN / 2 + _ROW / 2 + place * _ROW)
            for key, (column, place) in where.items()
        }
        options = self._chart.options
        options["xAxis"]["max"], options["yAxis"]["max"] = width, round(height)
        options["series"][0]["data"] = [_line(each, points) for each in graph.edges]
        options["series"][1]["data"] = [
            {
                "id": str(at),
                "name": _short(graph.nodes[key]),
                "value": list(points[key]),
                "itemStyle": {"color": _FAILED if graph.nodes[key].failed else _COLOURS[key[0]]},
            }
            for at, key in enumerate(keys)
        ]
        self._chart.update()
        self._list(graph)

    def _list(self, graph: Lineage) -> None:
        edges = sorted(graph.edges, key=lambda each: (each.source, each.target))
        self._edges.show(
            [(each.source, each.target) for each in edges], lambda: self._draw_list(graph, edges)
        )
        for label, edge in zip(self._rates, edges, strict=True):
            label.text = f.rate(edge.rate)

    def _draw_list(self, graph: Lineage, edges: list[Edge]) -> None:
        self._rates = []
        for edge in edges:
            with ui.row().classes("w-full items-baseline gap-2 edge"):
                for at, key in enumerate((edge.source, edge.target)):
                    node = graph.nodes[key]
                    if at:
                        ui.icon("arrow_right_alt").classes("muted")
                    ui.link(node.name, link_of(node)).classes("link mono break-all")
                    ui.label(f"{node.kind} of {node.owner}" if node.owner else str(node.kind)).classes(
                        "muted"
                    )
                ui.space()
                self._rates.append(ui.label().classes("mono whitespace-nowrap"))

    def _clicked(self, event: events.EChartPointClickEventArguments) -> None:
        at = event.data_index
        if event.series_index == 1 and isinstance(at, int) and 0 <= at < len(self._links):
            ui.navigate.to(self._links[at])


def _short(node: Node) -> str:
    """Of a table in files, the end of its path."""
    return node.name.rstrip("/").rpartition("/")[2] or node.name if node.kind is Kind.TABLE else node.name


def _show_problems(problems: list[str]) -> None:
    for each in problems:
        show_failure(ValueError(each))


def _line(edge: Edge, points: dict[Key, tuple[float, float]]) -> dict[str, Any]:
    (x1, y1), (x2, y2) = points[edge.source], points[edge.target]
    backwards = x2 <= x1
    half = _WIDTH / 2
    begin, end = (x1 - half, x2 + half) if backwards else (x1 + half, x2 - half)
    moves = bool(edge.rate)
    return {
        "coords": [[begin, y1], [end, y2]],
        "lineStyle": {
            "color": "#0d9488" if moves else "#94a3b8",
            "width": 1.5 + min(4.0, math.log10(1 + (edge.rate or 0.0))) if moves else 1.2,
            "opacity": 0.9 if moves else 0.6,
            "type": "dashed" if backwards else "solid",
        },
        "label": {
            "show": edge.rate is not None,
            "formatter": "" if edge.rate is None else f.rate(edge.rate),
        },
    }


def _options() -> dict[str, Any]:
    axis = {"type": "value", "show": False, "min": 0, "max": 1}
    return {
        "animation": False,
        "grid": {"left": 0, "right": 0, "top": 0, "bottom": 0},
        "xAxis": dict(axis),
        "yAxis": {**axis, "inverse": True},
        "tooltip": {"renderMode": "richText", "formatter": "{b}"},
        "series": [
            {
                "type": "lines",
                "coordinateSystem": "cartesian2d",
                "symbol": ["none", "arrow"],
                "symbolSize": 8,
                "silent": True,
                "label": {"position": "insideMiddleTop", "color": "#94a3b8", "fontSize": 11},
                "data": [],
            },
            {
                "type": "scatter",
                "symbol": _SHAPE,
                "itemStyle": {"opacity": 1},
                "symbolSize": [_WIDTH, _HEIGHT],
                "cursor": "pointer",
                "label": {
                    "show": True,
                    "formatter": "{b}",
                    "color": "#fff",
                    "fontSize": 12,
                    "width": _WIDTH - 16,
                    "overflow": "truncate",
                },
                "data": [],
            },
        ],
    }
