"""What the demonstration's page in the console shows, collected from the output topics while it is open."""

from __future__ import annotations

import csv
import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.demo.board import Alert, Board, DeadLetter, Hour
from penstock.demo.data import directory
from penstock.demo.reader import ResultReader
from penstock.demo.replay import FLIGHTS
from penstock.demo.topics import ALERTS, DEAD, DELAYS

_HOURS = 72
"""Of each airport."""
_RECENT = 150
"""Alerts of which the map shows the routes."""
_WEST, _EAST, _SOUTH, _NORTH = -126.0, -65.0, 23.0, 50.0


@dataclass(frozen=True, slots=True)
class Airport:
    code: str
    name: str
    longitude: float
    latitude: float


def airports() -> dict[str, Airport]:
    """Of the contiguous United States, by their codes: so many that they draw the map."""
    found = {}
    with (directory() / "airports.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            longitude, latitude = float(row["lon"]), float(row["lat"])
            if _WEST <= longitude <= _EAST and _SOUTH <= latitude <= _NORTH:
                found[row["faa"]] = Airport(row["faa"], row["name"], longitude, latitude)
    return found


@dataclass
class Live:
    """Results, newest last; one for a console. `begin` may be called again and again."""

    board: Board = field(default_factory=Board)
    hours: dict[str, deque[Hour]] = field(default_factory=dict)
    recent: deque[Alert] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def __post_init__(self) -> None:
        self._reader: ResultReader | None = None
        self._lock = threading.Lock()

    @property
    def failure(self) -> str | None:
        return self._reader.failure if self._reader is not None else None

    def begin(self, bootstrap: str, topics: Mapping[str, object]) -> bool:
        """Start reading when the topics are there. Whether it reads."""
        with self._lock:
            if self._reader is None and all(each in topics for each in (FLIGHTS, DELAYS, ALERTS, DEAD)):
                self._reader = ResultReader(bootstrap, self.board, self.take)
                self._reader.start()
            return self._reader is not None

    def take(self, result: Hour | Alert | DeadLetter) -> None:
        """Called by the reader's thread."""
        if isinstance(result, Hour):
            self.hours.setdefault(result.origin, deque(maxlen=_HOURS)).append(result)
        elif isinstance(result, Alert):
            self.recent.append(result)

    def newest(self) -> dict[str, Hour]:
        """The last closed hour of each airport."""
        return {origin: max(list(hours), key=lambda hour: hour.hour) for origin, hours in self.hours.items()}

    def routes(self) -> Counter[str]:
        """How many of the recent alerts each destination has."""
        return Counter(alert.dest for alert in list(self.recent))
