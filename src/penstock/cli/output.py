"""Output of commands: JSON for programs, tables for people, plain columns in a pipe.

Only data goes to stdout; notes and progress go to stderr, and progress only when it is a terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import click


def emit_json(value: object) -> None:
    """One JSON document on one line of stdout."""
    click.echo(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def note(text: str) -> None:
    """A line for people, on stderr, so that stdout stays data."""
    click.echo(text, err=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """A table on a terminal; aligned columns in a pipe. Columns of numbers are aligned to the right."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    numeric = [
        bool(rows) and all(isinstance(row[at], int | float | None) for row in rows)
        for at in range(len(columns))
    ]
    if sys.stdout.isatty():
        _rich_table(columns, cells, numeric, title)
    else:
        _plain_table(columns, cells, numeric, title)


def _plain_table(
    columns: Sequence[str], cells: list[list[str]], numeric: list[bool], title: str | None
) -> None:
    if title:
        click.echo(title)
    lines = [[column.upper() for column in columns], *cells]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        parts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        click.echo("  ".join(parts).rstrip())


def _rich_table(
    columns: Sequence[str], cells: list[list[str]], numeric: list[bool], title: str | None
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column, right in zip(columns, numeric, strict=True):
        grid.add_column(column, justify="right" if right else "left", overflow="fold")
    for line in cells:
        grid.add_row(*(Text(cell) for cell in line))
    console = Console(highlight=False)
    if title:
        console.print(Text(title))
    console.print(grid)


class Progress(Protocol):
    """The progress of a long operation."""

    def update(self, done: int) -> None: ...


class _Silent:
    def update(self, done: int) -> None:
        pass


@contextmanager
def progress(
    label: str, total: int | None, *, unit: str = "records", show: bool = True
) -> Iterator[Progress]:
    """A progress bar on stderr when that is a terminal; `unit` "bytes" shows sizes."""
    if not show or not sys.stderr.isatty():
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    amount: list[ProgressColumn] = [DownloadColumn()]
    if unit != "bytes":
        amount = [MofNCompleteColumn(), TextColumn(unit)]
    columns = [TextColumn("{task.description}"), BarColumn(), *amount, TimeRemainingColumn()]
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)

        class Shown:
            def update(self, done: int) -> None:
                bar.update(task, completed=done)

        yield Shown()
