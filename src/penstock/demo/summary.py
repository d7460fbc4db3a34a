"""The summary: counts and checks of the flights that were sent and the results that came out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from penstock.demo.replay import FLIGHTS, HOUR, Event

# As the pipeline has them.
ALERT_MINUTES = 120
LATENESS = 2 * HOUR


@dataclass(frozen=True)
class Row:
    """A flight in the table; `at` in seconds."""

    id: int
    origin: str
    at: int
    delay_minutes: int | None
    cancelled: bool
    with_weather: bool

    @property
    def alerts(self) -> bool:
        return self.cancelled or (self.delay_minutes or 0) >= ALERT_MINUTES


@dataclass
class Outcome:
    """All results, over all runs with this data."""

    table: list[Row] = field(default_factory=list)
    dead: list[tuple[int, str]] = field(default_factory=list)
    """The flight's id, which is its record's key, and the reason."""
    windows: list[tuple[str, int, int]] = field(default_factory=list)
    """Airport, the hour's beginning in seconds, flights."""
    alerts: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Check:
    """A condition that must hold."""

    promise: str
    broken: str = ""

    @property
    def ok(self) -> bool:
        return not self.broken


def counts(sent: Sequence[Event], outcome: Outcome) -> dict[str, int]:
    """The numbers of the summary, in the order in which they are shown."""
    flights = [event for event in sent if event.topic == FLIGHTS]
    in_windows = sum(flights for _, _, flights in outcome.windows)
    return {
        "flights_in": len(flights),
        "weather_in": len(sent) - len(flights),
        "sent_late": sum(event.late for event in flights),
        "sent_broken": sum(event.fault is not None for event in flights),
        "parsed": len(outcome.table),
        "dead": len(outcome.dead),
        "joined": sum(row.with_weather for row in outcome.table),
        "without_weather": sum(not row.with_weather for row in outcome.table),
        "windows": len(outcome.windows),
        "in_windows": in_windows,
        "late_or_in_open_windows": len(outcome.table) - in_windows,
        "alerts": len(outcome.alerts),
        "delta_rows": len(outcome.table),
        "not_yet_done": len(flights) - len(outcome.table) - len(outcome.dead),
    }


def checks(sent: Sequence[Event], outcome: Outcome, *, drained: bool) -> list[Check]:
    """`drained` says that the pipeline had time to process everything; otherwise the last results may be
    missing.
    """
    flights = [event for event in sent if event.topic == FLIGHTS]
    return [
        _accounted(flights, outcome, drained),
        _reasons(flights, outcome),
        _once("alert", outcome.alerts),
        _alerts(outcome, drained),
        _windows(flights, outcome, drained),
    ]


def _accounted(flights: Sequence[Event], outcome: Outcome, drained: bool) -> Check:
    promise = "every flight sent is in the table or among the dead letters, once"
    there = Counter(row.id for row in outcome.table)
    there.update(id for id, _ in outcome.dead)
    wanted = {event.id for event in flights}
    twice = [id for id, count in there.items() if count > 1]
    missing = wanted - there.keys() if drained else set()
    strange = there.keys() - wanted
    if twice or missing or strange:
        return Check(
            promise,
            f"{len(missing)} missing{_some(missing)}, {len(twice)} more than once{_some(twice)}, "
            f"{len(strange)} never sent{_some(strange)}",
        )
    return Check(promise)


def _reasons(flights: Sequence[Event], outcome: Outcome) -> Check:
    promise = "a record is a dead letter if and only if it was broken, and the reason is the right one"
    faults = {event.id: event.fault for event in flights if event.fault is not None}
    wrong = [
        f"{id}: {reason}"
        for id, reason in outcome.dead
        if (fault := faults.get(id)) is None or not reason.startswith(fault.value)
    ]
    wrong += [f"{row.id} is in the table" for row in outcome.table if row.id in faults]
    return Check(promise, "; ".join(wrong[:3]))


def _once(what: str, ids: Iterable[int]) -> Check:
    twice = [id for id, count in Counter(ids).items() if count > 1]
    return Check(f"no {what} comes twice", f"{len(twice)} do{_some(twice)}" if twice else "")


def _alerts(outcome: Outcome, drained: bool) -> Check:
    promise = "there is an alert for each flight that was two hours late or cancelled, and for no other"
    wanted = {row.id for row in outcome.table if row.alerts}
    given = set(outcome.alerts)
    if not drained:
        # Table and alerts are written by two queries, and one of them was ahead.
        known = {row.id for row in outcome.table}
        missing, strange = set[int](), (given & known) - wanted
    else:
        missing, strange = wanted - given, given - wanted
    if missing or strange:
        return Check(
            promise, f"{len(missing)} missing{_some(missing)}, {len(strange)} too many{_some(strange)}"
        )
    return Check(promise)


def _windows(flights: Sequence[Event], outcome: Outcome, drained: bool) -> Check:
    promise = "each closed window comes once and counts its flights once, all but those that came too late"
    places = Counter((origin, hour) for origin, hour, _ in outcome.windows)
    wrong = [
        f"{origin} {_time(hour)} comes {count} times" for (origin, hour), count in places.items() if count > 1
    ]
    late = {event.id for event in flights if event.late}
    most: Counter[tuple[str, int]] = Counter()
    least: Counter[tuple[str, int]] = Counter()
    for row in outcome.table:
        place = (row.origin, row.at - row.at % HOUR)
        most[place] += 1
        least[place] += row.id not in late
    if drained:
        closed = max((row.at for row in outcome.table), default=0) - LATENESS - HOUR
        missing = [
            place for place, count in least.items() if count and place[1] <= closed and not places[place]
        ]
        wrong += [f"{origin} {_time(hour)} is missing" for origin, hour in sorted(missing)]
    for origin, hour, count in outcome.windows:
        if not least[origin, hour] <= count <= most[origin, hour]:
            wrong.append(
                f"{origin} {_time(hour)} counts {count}, not {least[origin, hour]} to {most[origin, hour]}"
            )
    return Check(promise, "; ".join(wrong[:3]))


def _some(ids: Iterable[int]) -> str:
    first = sorted(ids)[:3]
    return f" ({', '.join(map(str, first))}, ...)" if first else ""


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
