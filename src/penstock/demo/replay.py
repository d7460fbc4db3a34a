"""The year as a sequence of records, in the order and with the faults that a stream of it would have.

Pure and deterministic: the same tables, start and seed give the same records, so that a stopped replay goes
on where the topics end. A flight is sent when it departs, or when it should have if it was cancelled; the
weather of an hour is sent as the hour begins. Some flights come a little out of order, some so late that
their window has closed, and some are broken; what happens to a flight depends on its row and the seed alone.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from penstock.client.partitioning import partition_for_key
from penstock.demo.data import Year

FLIGHTS = "flights"
WEATHER = "weather"
PARTITIONS = 3
"""Of each topic that the replay writes."""
MINUTE = 60
HOUR = 60 * MINUTE
_CHUNK = 2048


class Fault(Enum):
    """How a record is broken, and the beginning of the reason that the pipeline gives for it."""

    CUT = "not JSON"
    NOT_TEXT = "not UTF-8"
    NO_ORIGIN = "no origin"
    UNKNOWN_AIRPORT = "unknown airport"
    DELAY_IS_TEXT = "delay_minutes is not a number"


@dataclass(frozen=True)
class Faults:
    """How often things go wrong, of 1; and how late the late ones are, in seconds of event time."""

    shuffled: float = 0.10
    shuffled_by: int = 45 * MINUTE
    late: float = 0.02
    late_by: tuple[int, int] = (4 * HOUR, 12 * HOUR)
    broken: float = 0.02


@dataclass(frozen=True, slots=True)
class Event:
    """One record of the stream: `at` is when it is sent, in seconds of event time."""

    at: int
    topic: str
    partition: int
    key: bytes
    value: bytes
    id: int
    """The row of the flight; -1 for the weather."""
    late: bool = False
    fault: Fault | None = None


class Replay:
    """The records from `start` on."""

    def __init__(
        self, year: Year, *, start: datetime, seed: int = 2013, faults: Faults | None = None
    ) -> None:
        import numpy
        import pyarrow.compute as pc

        self._flights = year.flights
        self._weather = year.weather
        faults = faults or Faults()
        first = int(start.timestamp())
        rows = year.flights.num_rows
        # The same draws for each row, wherever the replay starts.
        draws = numpy.random.default_rng(seed).random((rows, 3))

        hours = _seconds(year.flights["time_hour"])
        scheduled = hours + year.flights["minute"].to_numpy() * MINUTE
        delay = pc.fill_null(year.flights["dep_delay"], 0).to_numpy()
        self._scheduled = scheduled
        self._happened = scheduled + delay * MINUTE

        lot, amount, self._fault_lot = draws[:, 0], draws[:, 1], draws[:, 2]
        self._late = lot < faults.late
        shuffled = (lot >= faults.late) & (lot < faults.late + faults.shuffled)
        self._broken = lot >= 1 - faults.broken
        least, most = faults.late_by
        held = numpy.where(self._late, least + amount * (most - least), 0)
        held = numpy.where(shuffled, amount * faults.shuffled_by, held)
        self._sent = self._happened + held.astype(numpy.int64)
        order = numpy.argsort(self._sent, kind="stable")
        self._order = order[self._happened[order] >= first]

        observed = _seconds(year.weather["time_hour"])
        order = numpy.argsort(observed, kind="stable")
        # A flight at the first minute needs the weather of the hour that it falls into.
        self._weather_order = order[observed[order] > first - HOUR]
        self._observed = observed

    def events(self, after: Mapping[tuple[str, int], int] | None = None) -> Iterator[Event]:
        """All records by time, without the first ones of each (topic, partition): `after` says how many."""
        left = dict(after or {})
        # Of records at the same second the weather is first: merge keeps the order of its arguments.
        for event in heapq.merge(self._weather_events(), self._flight_events(), key=lambda event: event.at):
            place = (event.topic, event.partition)
            if left.get(place, 0) > 0:
                left[place] -= 1
            else:
                yield event

    def _weather_events(self) -> Iterator[Event]:
        for index, row in _rows(self._weather, self._weather_order):
            at = int(self._observed[index])
            origin = row["origin"]
            value = {
                "origin": origin,
                "hour": timestamp(at),
                "temperature_f": row["temp"],
                "wind_mph": _rounded(row["wind_speed"]),
                "gust_mph": _rounded(row["wind_gust"]),
                "rain_inches": row["precip"],
                "visibility_miles": row["visib"],
            }
            key = f"{origin}@{timestamp(at)}".encode()
            yield Event(at, WEATHER, _partition(key), key, _json(value), -1)

    def _flight_events(self) -> Iterator[Event]:
        for index, row in _rows(self._flights, self._order):
            cancelled = row["dep_time"] is None
            flight = {
                "id": int(index),
                "flight": f"{row['carrier']}{row['flight']}",
                "tail": row["tailnum"],
                "origin": row["origin"],
                "dest": row["dest"],
                "scheduled": timestamp(int(self._scheduled[index])),
                "departed": None if cancelled else timestamp(int(self._happened[index])),
                "delay_minutes": row["dep_delay"],
                "cancelled": cancelled,
            }
            value, fault = _json(flight), None
            if self._broken[index]:
                kinds = list(Fault)
                fault = kinds[int(self._fault_lot[index] * len(kinds))]
                value = broken(flight, fault)
            key = str(index).encode()
            yield Event(
                int(self._sent[index]),
                FLIGHTS,
                _partition(key),
                key,
                value,
                int(index),
                bool(self._late[index]),
                fault,
            )


def _partition(key: bytes) -> int:
    """Where a producer puts the key; known here, because a replay continues where each partition ends."""
    return partition_for_key(key, PARTITIONS)


def broken(flight: dict[str, Any], fault: Fault) -> bytes:
    """The record of a flight with one thing wrong."""
    if fault is Fault.CUT:
        whole = _json(flight)
        return whole[: len(whole) // 2]
    if fault is Fault.NOT_TEXT:
        return _json(flight).replace(b'"flight"', b'"fl\xffght"')
    if fault is Fault.NO_ORIGIN:
        return _json({name: value for name, value in flight.items() if name != "origin"})
    if fault is Fault.UNKNOWN_AIRPORT:
        return _json({**flight, "origin": "XXX"})
    return _json({**flight, "delay_minutes": "two hours"})


def timestamp(seconds: int) -> str:
    """As the records write a time."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _seconds(column: Any) -> Any:
    import pyarrow as pa

    return column.cast(pa.timestamp("s", tz="UTC")).cast(pa.int64()).to_numpy()


def _rows(table: Any, order: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Row by row in this order, with only a part of the table as Python objects."""
    for start in range(0, len(order), _CHUNK):
        part = order[start : start + _CHUNK]
        yield from zip(part, table.take(part).to_pylist())
