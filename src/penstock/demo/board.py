"""The results of the demo, collected from the records of the output topics. No sockets, no clock."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.demo.summary import Outcome
from penstock.demo.topics import ALERTS, DEAD, DELAYS

_KEPT = 24


@dataclass(frozen=True)
class Hour:
    """One airport in one hour."""

    origin: str
    hour: str
    flights: int
    cancelled: int
    mean_delay: float | None
    worst_delay: int | None
    wind_mph: float | None
    visibility_miles: float | None

    def __str__(self) -> str:
        return (
            f"{self.origin} {self.hour}  {self.flights} flights, {self.cancelled} cancelled, "
            f"mean delay {_minutes(self.mean_delay)}, worst {_minutes(self.worst_delay)}, {self.weather}"
        )

    @property
    def weather(self) -> str:
        return weather(self.wind_mph, self.visibility_miles)


@dataclass(frozen=True)
class Alert:
    """One flight that left hours late, or not at all."""

    flight: str
    origin: str
    dest: str
    scheduled: str
    delay_minutes: int | None
    cancelled: bool
    wind_mph: float | None
    visibility_miles: float | None

    def __str__(self) -> str:
        what = "cancelled" if self.cancelled else f"{_minutes(self.delay_minutes)} late"
        return f"{self.flight} {self.origin}-{self.dest} {self.scheduled} {what}, {self.weather}"

    @property
    def weather(self) -> str:
        return weather(self.wind_mph, self.visibility_miles)


@dataclass(frozen=True)
class DeadLetter:
    """One record that is not a valid flight."""

    reason: str
    source: str
    value: str

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}: {self.value}"


@dataclass
class Board:
    """The newest results, newest first, and how many there were of each kind."""

    outcome: Outcome = field(default_factory=Outcome)
    """All of them, for the summary; the table of flights is read from Delta."""
    reasons: Counter[str] = field(default_factory=Counter)
    hours: deque[Hour] = field(default_factory=lambda: deque(maxlen=_KEPT))
    newest_alerts: deque[Alert] = field(default_factory=lambda: deque(maxlen=_KEPT))
    newest_dead: deque[DeadLetter] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def take(
        self, topic: str, key: bytes, value: bytes, headers: Sequence[tuple[str, bytes | None]] | None
    ) -> Hour | Alert | DeadLetter:
        """One record of an output topic."""
        if topic == DELAYS:
            row = json.loads(value)
            hour = _hour(row)
            begins = int(datetime.fromisoformat(row["hour"]).timestamp())
            self.outcome.windows.append((hour.origin, begins, hour.flights))
            self.hours.appendleft(hour)
            return hour
        if topic == ALERTS:
            row = json.loads(value)
            alert = _alert(row)
            self.outcome.alerts.append(row["id"])
            self.newest_alerts.appendleft(alert)
            return alert
        if topic != DEAD:
            raise ValueError(f"{topic} is not an output of the demonstration")
        letter = {name: (content or b"").decode() for name, content in headers or ()}
        dead = DeadLetter(
            letter.get("reason", "no reason given"),
            letter.get("source", "?"),
            value[:60].decode(errors="backslashreplace"),
        )
        self.outcome.dead.append((int(key), dead.reason))
        # The part of the reason about the single record does not distinguish kinds.
        self.reasons[_kind(dead.reason)] += 1
        self.newest_dead.appendleft(dead)
        return dead


def weather(wind_mph: float | None, visibility_miles: float | None) -> str:
    """The weather as text; missing observations are shown as such."""
    if wind_mph is None and visibility_miles is None:
        return "no weather"
    wind = "?" if wind_mph is None else f"{wind_mph:.0f}"
    seen = "?" if visibility_miles is None else f"{visibility_miles:g}"
    return f"wind {wind} mph, sees {seen} mi"


def _kind(reason: str) -> str:
    known = ("unknown airport", "delay_minutes is not a number")
    return next((kind for kind in known if reason.startswith(kind)), reason)


def _minutes(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} min"


def _time(text: str) -> str:
    """2013-02-08T14:00:00.000Z as `02-08 14:00`."""
    return f"{text[5:10]} {text[11:16]}"


def _hour(row: Mapping[str, Any]) -> Hour:
    return Hour(
        row["origin"],
        _time(row["hour"]),
        row["flights"],
        row["cancelled"],
        row.get("mean_delay"),
        row.get("worst_delay"),
        row.get("wind_mph"),
        row.get("visibility_miles"),
    )


def _alert(row: Mapping[str, Any]) -> Alert:
    return Alert(
        row["flight"],
        row["origin"],
        row["dest"],
        _time(row["scheduled"]),
        row.get("delay_minutes"),
        bool(row.get("cancelled")),
        row.get("wind_mph"),
        row.get("visibility_miles"),
    )
