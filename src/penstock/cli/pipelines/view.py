"""How `penstock pipeline` shows a pipeline: its flows as a table, live in a terminal, and events as lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from penstock.admin.words import human_bytes

COLUMNS = (
    *("flow", "into", "state", "in/s", "rows/s", "batch", "took", "watermark", "state rows", "state size"),
    *("lag", "restarts"),
)


def row(flow: Mapping[str, Any]) -> tuple[object, ...]:
    """One flow of a status as cells for COLUMNS."""
    progress = flow.get("progress") or {}
    state = flow["state"]
    if flow.get("retry_in") is not None:
        state = f"failed, again in {flow['retry_in']:.0f} s"
    elif flow.get("hold"):
        state = "change pending" if state == "held" else f"{state}, rebuild pending"
    took = progress.get("batch_seconds")
    return (
        flow["name"],
        f"{flow['target']} ({flow['kind']})",
        state,
        round(progress["input_rows_per_second"], 1) if progress else None,
        round(progress["processed_rows_per_second"], 1) if progress else None,
        progress.get("batch_id"),
        f"{took:.2f} s" if took is not None else None,
        (progress.get("watermark") or "").replace("T", " ").removesuffix("Z") or None,
        progress.get("state_rows") or None,
        human_bytes(progress["state_bytes"]) if progress.get("state_bytes") else None,
        progress.get("lag"),
        flow.get("restarts") or None,
    )


def offsets(flow: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where each source of a flow stands."""
    sources = (flow.get("progress") or {}).get("sources") or []
    return [
        {"source": source["description"], "end": source["end_offset"], "latest": source["latest_offset"]}
        for source in sources
    ]


def problems(status: Mapping[str, Any]) -> list[str]:
    """What a person should look at, a line each."""
    lines = []
    if status.get("error"):
        lines.append(f"error: {status['error']}")
    if status.get("file_error"):
        lines.append(f"the files have an error; the last good version runs on: {status['file_error']}")
    lines += [f"{flow['name']}: {flow['error']}" for flow in status.get("flows", []) if flow.get("error")]
    for change in status.get("pending", []):
        lines.append(f"pending until `penstock pipeline apply`: {plan_line(change)}")
    return lines


def plan_line(change: Mapping[str, Any]) -> str:
    reasons = "; ".join(change.get("reasons") or ())
    return f"{change['action']} {change['flow']}" + (f": {reasons}" if reasons else "")


def event_lines(event: Mapping[str, Any]) -> list[str]:
    """An event of the runner for people; nothing for those that only the table shows."""
    kind = event["event"]
    if kind == "started":
        return [f"{event['flow']} runs again" if event.get("restart") else f"{event['flow']} runs"]
    if kind == "failed":
        again = f"; again in {event['retry_in']:g} s" if event.get("retry_in") is not None else ""
        return [f"{event['flow']} failed: {event['error']}{again}"]
    if kind == "changed":
        return [f"changed: {', '.join(event['files'])}"]
    if kind == "error":
        return [f"not applied, the running version continues: {event['error']}"]
    if kind == "plan":
        lines = ["plan:"]
        for change in event["changes"]:
            asks = "" if change["applied"] else "   <- pending until `penstock pipeline apply`"
            lines.append(f"  {plan_line(change)}{asks}")
        return lines
    if kind == "applying":
        return [f"applying: {', '.join(event['flows'])}"]
    if kind == "note":
        return [f"{event['flow']}: {event['text']}"]
    if kind == "ready":
        where = f"{event['metrics_scheme']}://127.0.0.1:{event['metrics_port']}/metrics"
        metrics = f", metrics at {where}" if event["metrics_port"] else ""
        return [f"{event['pipeline']} runs on {event['master']}{metrics}. Ctrl-C stops it."]
    if kind == "stopped":
        return ["stopped"]
    return []


class LiveTable:
    """The status as a table that is redrawn in place, with the last events below it."""

    def __init__(self, out: TextIO, status: Callable[[], Mapping[str, Any]]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._status = status
        self._events: list[str] = []
        self._console = Console(file=out, highlight=False)
        self._live = Live(
            console=self._console, get_renderable=self._render, refresh_per_second=2, screen=False
        )

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def event(self, event: Mapping[str, Any]) -> None:
        stamp = time.strftime("%H:%M:%S")
        self._events = [*self._events, *(f"{stamp} {line}" for line in event_lines(event))][-12:]

    def _render(self) -> Any:
        from rich.box import SIMPLE_HEAD
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        status = self._status()
        grid = Table(
            box=SIMPLE_HEAD,
            pad_edge=False,
            title=f"{status['pipeline']}: {status['state']}",
            title_justify="left",
        )
        for column in COLUMNS:
            grid.add_column(column, overflow="fold")
        for flow in status["flows"]:
            style = "red" if flow.get("error") else "yellow" if flow.get("hold") else ""
            grid.add_row(*("-" if cell is None else str(cell) for cell in row(flow)), style=style)
        return Group(grid, *(Text(line) for line in (*problems(status), "", *self._events)))
