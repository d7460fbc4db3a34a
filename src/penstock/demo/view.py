"""The output of the demo: a live screen on a terminal, lines elsewhere, and the summary."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import click

from penstock.demo.board import Alert, Board, DeadLetter, Hour, weather
from penstock.demo.replay import timestamp
from penstock.demo.summary import Check

if TYPE_CHECKING:
    from rich.console import RenderableType

# In a pipe, no more than so many results of one kind at once; the rest is counted.
_LINES_AT_ONCE = 3
_BAD_DELAY = 30.0


@dataclass(frozen=True)
class Status:
    """The progress at one moment."""

    state: str
    bootstrap: str
    seconds: float
    speed: float
    event_time: int
    flights_sent: int
    in_per_second: float
    out_per_second: float
    lag: int | None
    table_rows: int

    @property
    def replayed(self) -> str:
        return timestamp(self.event_time)[:16].replace("T", " ") if self.event_time else "-"


class View(Protocol):
    """Results come from the reader's thread, the status from the main one."""

    def result(self, result: Hour | Alert | DeadLetter) -> None: ...
    def status(self, status: Status) -> None: ...
    def close(self) -> None: ...


class Lines:
    """For pipes and files: a line for each result, and one for the status each few seconds."""

    def __init__(self, board: Board, every_s: float = 5.0) -> None:
        self._board = board
        self._every_s = every_s
        self._next = 0.0
        self._state = ""
        self._waiting: list[Hour | Alert | DeadLetter] = []
        self._lock = threading.Lock()

    def result(self, result: Hour | Alert | DeadLetter) -> None:
        with self._lock:
            self._waiting.append(result)

    def status(self, status: Status) -> None:
        with self._lock:
            results, self._waiting = self._waiting, []
        shown: Counter[str] = Counter()
        for result in results:
            kind = _KINDS[type(result)]
            shown[kind] += 1
            if shown[kind] <= _LINES_AT_ONCE:
                click.echo(f"{kind:<6} {result}")
        for kind, count in shown.items():
            if count > _LINES_AT_ONCE:
                click.echo(f"{kind:<6} ... and {count - _LINES_AT_ONCE} more")
        if status.state != self._state or status.seconds >= self._next:
            self._state = status.state
            self._next = status.seconds + self._every_s
            click.echo(f"{status.seconds:5.0f}s {_status_line(status, self._board)}")

    def close(self) -> None:
        pass


class Screen:
    """For terminals: everything at once, as it changes."""

    def __init__(self, board: Board) -> None:
        from rich.console import Console
        from rich.live import Live

        self._board = board
        self._console = Console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._live.start()

    def result(self, result: Hour | Alert | DeadLetter) -> None:
        pass  # the board has it, and the next status shows it

    def status(self, status: Status) -> None:
        self._live.update(screen(status, self._board, self._console.size.height), refresh=True)

    def close(self) -> None:
        self._live.stop()


def screen(status: Status, board: Board, height: int) -> RenderableType:
    """Everything, for a terminal of so many lines."""
    from rich.layout import Layout
    from rich.panel import Panel

    # The delays get half of what is left, in threes: one line for each airport.
    left = max(height - 4 - 6, 6)
    hours = max(1, left // 2 // 3) * 3
    layout = Layout()
    layout.split_column(
        Layout(Panel(_head(status, board), title="Flights of New York, 2013"), size=4),
        Layout(_delays(list(board.hours)[:hours]), size=hours + 3),
        Layout(name="rest"),
    )
    rest = max(height - 4 - (hours + 3) - 3, 1)
    layout["rest"].split_row(
        Layout(_alerts(list(board.newest_alerts)[:rest], len(board.outcome.alerts)), ratio=5),
        Layout(_dead(board, rest), ratio=4),
    )
    return layout


def _head(status: Status, board: Board) -> Any:
    from rich.text import Text

    return Text.assemble(
        (status.state, "bold"),
        f" · broker {status.bootstrap} · {status.seconds:.0f} s · replays ",
        (status.replayed, "bold cyan"),
        f" ×{status.speed:,.0f}\n",
        f"{status.flights_sent:,} flights in ({status.in_per_second:.0f}/s) · "
        f"{status.table_rows + len(board.outcome.dead):,} through ({status.out_per_second:.0f}/s) · "
        f"lag {_lag(status)} · {status.table_rows:,} rows in the table",
        no_wrap=True,
        overflow="ellipsis",
    )


def _delays(hours: Sequence[Hour]) -> Any:
    from rich.table import Table

    table = Table(title=None, expand=True, box=_box(), header_style="bold", padding=(0, 1))
    table.add_column("Delays by airport and hour", no_wrap=True, ratio=5)
    for name, ratio in (("flights", 2), ("cancelled", 3), ("mean delay", 3), ("worst", 2)):
        table.add_column(name, justify="right", no_wrap=True, ratio=ratio)
    table.add_column("weather", no_wrap=True, ratio=6)
    for hour in hours:
        bad = (hour.mean_delay or 0) >= _BAD_DELAY or 2 * hour.cancelled > hour.flights
        table.add_row(
            f"{hour.origin}  {hour.hour}",
            str(hour.flights),
            str(hour.cancelled),
            "-" if hour.mean_delay is None else f"{hour.mean_delay:.0f} min",
            "-" if hour.worst_delay is None else f"{hour.worst_delay}",
            hour.weather,
            style="red" if bad else "",
        )
    if not hours:
        table.add_row("no hour has closed yet", "", "", "", "", "")
    return table


def _alerts(alerts: Sequence[Alert], count: int) -> Any:
    from rich.panel import Panel
    from rich.text import Text

    lines = Text(no_wrap=True, overflow="ellipsis")
    for alert in alerts:
        what = "cancelled" if alert.cancelled else f"{alert.delay_minutes} min"
        lines.append(f"{alert.flight:<7}{alert.origin}-{alert.dest} ")
        lines.append(f"{what:<10}", "red")
        lines.append(f"{weather(alert.wind_mph, alert.visibility_miles)}\n", "dim")
    return Panel(lines, title=f"Alerts: {count:,}", title_align="left", box=_box())


def _dead(board: Board, height: int) -> Any:
    from rich.panel import Panel
    from rich.text import Text

    lines = Text(no_wrap=True, overflow="ellipsis")
    for reason, count in board.reasons.most_common():
        lines.append(f"{count:>5,}  {reason}\n", "bold")
    for letter in list(board.newest_dead)[: max(height - len(board.reasons), 0)]:
        lines.append(f"{letter.source}  ", "dim")
        lines.append(f"{letter.reason}\n")
    return Panel(lines, title=f"Dead letters: {len(board.outcome.dead):,}", title_align="left", box=_box())


def _box() -> Any:
    from rich import box

    return box.ROUNDED


def _lag(status: Status) -> str:
    return "-" if status.lag is None else f"{status.lag:,}"


def _status_line(status: Status, board: Board) -> str:
    outcome = board.outcome
    return (
        f"{status.state} | replays {status.replayed} | in {status.flights_sent:,} "
        f"({status.in_per_second:.0f}/s) | through {status.table_rows + len(outcome.dead):,} "
        f"({status.out_per_second:.0f}/s) | lag {_lag(status)} | table {status.table_rows:,} | "
        f"windows {len(outcome.windows):,} | alerts {len(outcome.alerts):,} | dead {len(outcome.dead):,}"
    )


_KINDS: dict[type[Any], str] = {Hour: "delays", Alert: "alert", DeadLetter: "dead"}


def summary_lines(counts: dict[str, int], reasons: Counter[str], checks: Sequence[Check]) -> list[str]:
    """The end of a run, for people."""
    by_reason = ", ".join(f"{reason}: {count:,}" for reason, count in reasons.most_common())
    lines = [
        "",
        "What became of the flights, since the data directory was new:",
        f"  records in    {counts['flights_in']:,} flights ({counts['sent_late']:,} of them late, "
        f"{counts['sent_broken']:,} broken), {counts['weather_in']:,} of the weather",
        f"  parsed        {counts['parsed']:,}",
        f"  dead letters  {counts['dead']:,}" + (f" ({by_reason})" if by_reason else ""),
        f"  joined        {counts['joined']:,} with the weather of their hour, "
        f"{counts['without_weather']:,} in hours without an observation",
        f"  windows       {counts['windows']:,} with {counts['in_windows']:,} flights; "
        f"{counts['late_or_in_open_windows']:,} came too late or are in windows still open",
        f"  alerts        {counts['alerts']:,}",
        f"  Delta table   {counts['delta_rows']:,} rows",
    ]
    if counts["not_yet_done"] > 0:
        lines.append(f"  not yet done  {counts['not_yet_done']:,}: the next run continues with them")
    lines += [
        f"  {'ok  ' if check.ok else 'FAIL'} {check.promise}" + ("" if check.ok else f": {check.broken}")
        for check in checks
    ]
    return lines
