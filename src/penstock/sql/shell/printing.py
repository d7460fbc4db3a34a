"""Shows responses: tables on a terminal, plain columns in a pipe, rows of a push query as they arrive."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Protocol, TextIO

from rich.cells import cell_len, chop_cells

_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
_LIVE_WIDTH = 14
_MOST_HELD = 1000
"""Rows that are held to find the widths of columns; a longer result continues with these."""


class Output(Protocol):
    """Receives the lines of a response."""

    def line(self, line: dict[str, Any]) -> None: ...


class JsonLines:
    """Prints each line of the server unchanged."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def line(self, line: dict[str, Any]) -> None:
        self._out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
        self._out.flush()


class TextTables:
    """Prints results as tables, and messages as text. Errors are shown elsewhere."""

    def __init__(self, out: TextIO, *, terminal: bool | None = None) -> None:
        self._out = out
        self._terminal = out.isatty() if terminal is None else terminal
        self._columns: list[tuple[str, str]] = []
        self._held: list[list[Any]] = []
        self._widths: list[int] | None = None
        self._live = False

    def line(self, line: dict[str, Any]) -> None:
        if "statement" in line:
            self._columns, self._held, self._widths = [], [], None
        elif "columns" in line:
            self._columns = [(name, kind) for name, kind in line["columns"]]
            self._live = bool(line.get("live"))
            if self._live:
                self._begin([])
        elif "row" in line:
            self._row(line["row"])
        elif "done" in line:
            self._end(line)

    def flush(self) -> None:
        """Shows buffered rows when the response has ended early."""
        if self._columns and self._widths is None and self._held:
            self._begin(self._held)
        self._held = []

    def _row(self, row: list[Any]) -> None:
        if self._widths is not None:
            return self._write(row)
        self._held.append(row)
        if len(self._held) >= _MOST_HELD:
            self._begin(self._held)
            self._held = []

    def _end(self, line: dict[str, Any]) -> None:
        if not self._columns:
            self._say(line["done"])
            return
        if self._widths is None:
            self._begin(self._held)
        self._held = []
        if self._terminal:
            self._say(f"({line['done']})", dim=True)
        self._columns = []

    def _begin(self, rows: Sequence[Sequence[Any]]) -> None:
        cells = [[_cell(value) for value in row] for row in rows]
        least = _LIVE_WIDTH if self._live else 1
        self._widths = [
            max([least, cell_len(name), *(cell_len(row[at]) for row in cells)])
            for at, (name, _) in enumerate(self._columns)
        ]
        if self._terminal:
            self._fit()
        names = [name if self._terminal else name.upper() for name, _ in self._columns]
        self._styled([names], "bold")
        if self._terminal:
            self._styled([["─" * width for width in self._widths]], "dim")
        for row in rows:
            self._write(row)

    def _fit(self) -> None:
        """Narrows the widest columns until a row fits the terminal; longer values are wrapped."""
        assert self._widths is not None
        room = max(20, self._console_width() - 2 * (len(self._widths) - 1))
        while sum(self._widths) > room and max(self._widths) > 8:
            widest = self._widths.index(max(self._widths))
            self._widths[widest] -= max(1, (sum(self._widths) - room) // 2)
            self._widths[widest] = max(8, self._widths[widest])

    def _console_width(self) -> int:
        import shutil

        return shutil.get_terminal_size((100, 24)).columns

    def _write(self, row: Sequence[Any]) -> None:
        assert self._widths is not None
        cells = [_cell(value) for value in row]
        if not self._terminal:
            self._styled([cells], "")
            return
        pieces = [chop_cells(cell, width) or [""] for cell, width in zip(cells, self._widths)]
        height = max(len(each) for each in pieces)
        self._styled([[each[at] if at < len(each) else "" for each in pieces] for at in range(height)], "")

    def _styled(self, lines: list[list[str]], style: str) -> None:
        assert self._widths is not None
        right = [kind.split("(")[0].upper() in _NUMBERS for _, kind in self._columns]
        for cells in lines:
            parts = []
            for cell, width, at_right in zip(cells, self._widths, right):
                blank = " " * (width - cell_len(cell))
                parts.append(blank + cell if at_right else cell + blank)
            self._say("  ".join(parts).rstrip(), bold=style == "bold", dim=style == "dim")

    def _say(self, text: str, *, bold: bool = False, dim: bool = False) -> None:
        if self._terminal and (bold or dim):
            from rich.console import Console
            from rich.text import Text

            Console(file=self._out, highlight=False, soft_wrap=True).print(
                Text(text, "bold" if bold else "dim")
            )
        else:
            self._out.write(text + "\n")
        self._out.flush()


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return value.replace("\n", "\\n").replace("\r", "\\r").replace("\x1b", "\\x1b")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def error_text(line: dict[str, Any], text: str) -> str:
    """An error with the line of the statement that it refers to."""
    place, message = line.get("line"), str(line.get("message", ""))
    if not isinstance(place, int):
        return message
    column = int(line.get("column", 1))
    lines = text.splitlines()
    shown = f"line {place}, column {column}: {message}"
    if 1 <= place <= len(lines):
        shown += f"\n  {lines[place - 1]}\n  {' ' * (column - 1)}^"
    return shown


def is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout is not None and sys.stdout.isatty()
