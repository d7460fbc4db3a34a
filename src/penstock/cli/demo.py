"""`penstock demo`: the platform with real flights streaming through it, until Ctrl-C or for a time."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.admin.cluster import kafka_exception
from penstock.cli.failure import FAILED, CommandFailed, needs_extra, reason
from penstock.cli.options.shared import json_option
from penstock.cli.output import emit_json, note
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.demo.run import Ended

_CONSOLE_PORT = 8080
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(epilog="Exit codes: 0 at the end or stopped by Ctrl-C, 1 when a check of the summary failed.")
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="PENSTOCK_DATA",
    show_envvar=True,
    default="data",
    show_default=True,
    help="Directory for all data. An earlier replay in it continues.",
)
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Where the broker listens; 0 takes any free port.",
)
@click.option(
    "--console-port",
    metavar="N",
    type=click.IntRange(0, 65535),
    help=f"Where the web console listens; any free port if that is taken.  [default: {_CONSOLE_PORT}, or any "
    "with --port 0]",
)
@click.option(
    "--seconds",
    metavar="N",
    type=click.FloatRange(min=1),
    envvar="RUN_SECONDS",
    show_envvar=True,
    help="Stop after about this many seconds, with a summary.",
)
@click.option(
    "--speed",
    metavar="N",
    type=click.FloatRange(min=1, max=86_400),
    default=3600.0,
    show_default=True,
    help="How many seconds of 2013 to replay each second.",
)
@click.option(
    "--from",
    "start",
    metavar="DATE",
    default="2013-02-07",
    show_default=True,
    help="The first day of the replay. (A blizzard comes on 8 February.)",
)
@click.option(
    "--seed",
    metavar="N",
    type=int,
    default=2013,
    show_default=True,
    help="Seed that decides which flights are late or broken.",
)
@click.option("--fresh", is_flag=True, help="Delete the demo's topics and tables first.")
@click.option("--master", default="local[2]", show_default=True, help="Where Spark runs.")
@json_option
def demo(
    data: Path,
    port: int,
    console_port: int | None,
    seconds: float | None,
    speed: float,
    start: str,
    seed: int,
    fresh: bool,
    master: str,
    as_json: bool,
) -> None:
    """Stream real flights through Penstock and Spark.

    Flights and weather of 2013 are replayed into topics, some late and some broken; the pipeline sends the
    broken ones to a dead-letter topic, joins the others with the weather, keeps them in a Delta table, counts
    delays by airport and hour, and raises alerts. What comes out is shown as it changes.

    \b
      penstock demo
      penstock demo --data /tmp/p --port 0 --seconds 90
    """
    with needs_extra("the demo", "demo"):
        from penstock.demo.run import Demo, DemoSettings, parse_start
        from penstock.demo.view import Lines, Screen, View
    try:
        first_day = parse_start(start)
    except ValueError as error:
        raise click.BadParameter(f"{start!r}: {error}", param_hint="--from") from error
    if console_port is None:
        console_port = 0 if port == 0 else _CONSOLE_PORT
    settings = DemoSettings(data, port, first_day, seed, speed, seconds, fresh, master, console_port)

    def make_view(board: Any) -> View:
        if as_json:
            return Quiet()
        return Screen(board) if sys.stdout.isatty() else Lines(board)

    with stopped_by_signals() as stop:
        try:
            ended = Demo(settings, stop, note, make_view).run()
        except PenstockError as error:
            raise CommandFailed(str(error)) from error
        except kafka_exception() as error:
            raise CommandFailed(f"the broker did not answer: {reason(error.args[0])}") from error
        _show_end(ended, as_json)
    if not ended.ok:
        raise click.exceptions.Exit(FAILED)


class Quiet:
    """With --json only the end is shown."""

    def result(self, result: object) -> None: ...
    def status(self, status: object) -> None: ...
    def close(self) -> None: ...


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM and the terminal's end set; a second Ctrl-C changes nothing."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_end(ended: Ended, as_json: bool) -> None:
    from penstock.demo.view import summary_lines

    if as_json:
        checks = [
            {"promise": check.promise, "ok": check.ok, "broken": check.broken} for check in ended.checks
        ]
        emit_json(
            {
                **ended.counts,
                "reasons": dict(ended.reasons),
                "first_result_s": ended.first_result_s,
                "console": ended.console,
                "checks": checks,
                "ok": ended.ok,
            }
        )
        return
    for line in summary_lines(ended.counts, ended.reasons, ended.checks):
        click.echo(line)
    if ended.first_result_s is not None:
        click.echo(f"The first result came {ended.first_result_s:.0f} s after the start.")
