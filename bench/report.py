"""Tables for people, and the same numbers for programs."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Result:
    """One number that the project promises something about; `at_least` or `at_most`, or neither."""

    name: str
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def ok(self) -> bool:
        if self.at_least is not None and self.value < self.at_least:
            return False
        return self.at_most is None or self.value <= self.at_most

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f">= {number(self.at_least)}"
        return f"<= {number(self.at_most)}" if self.at_most is not None else ""


@dataclass
class Report:
    results: list[Result] = field(default_factory=list)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    load_at_start: float = field(default_factory=lambda: os.getloadavg()[0])

    def add(self, *results: Result) -> None:
        for result in results:
            self.results.append(result)
            print(_line(result), flush=True)

    def table(self, title: str, rows: list[dict[str, Any]]) -> None:
        self.tables[title] = rows
        print(f"\n{title}")
        names = list(rows[0])
        cells = [names, *([number(row[name]) for name in names] for row in rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
        for row in cells:
            print("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths)), flush=True)

    def missed(self) -> list[Result]:
        return [result for result in self.results if not result.ok]

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "machine": {
                "system": platform.platform(),
                "python": platform.python_version(),
                "cpus": os.cpu_count(),
                "load_at_start": self.load_at_start,
            },
            "results": [{**asdict(result), "ok": result.ok} for result in self.results],
            "tables": self.tables,
        }
        path.write_text(json.dumps(content, indent=2) + "\n")


def number(value: Any) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


def _line(result: Result) -> str:
    verdict = "" if not result.target else ("ok" if result.ok else "MISSED")
    text = f"  {result.name:<52} {number(result.value):>9} {result.unit:<10} {result.target:<11} {verdict}"
    return f"{text.rstrip()}   {result.note}" if result.note else text.rstrip()
