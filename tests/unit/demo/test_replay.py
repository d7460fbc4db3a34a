"""The replay of the flights: by time, the same each time, nothing lost, and what is broken is known."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pyarrow.compute as pc
import pytest
from kafka.partitioner.default import murmur2

from penstock.demo import data
from penstock.demo.replay import (
    FLIGHTS,
    HOUR,
    PARTITIONS,
    WEATHER,
    Event,
    Fault,
    Faults,
    Replay,
    broken,
    timestamp,
)

START = datetime(2013, 12, 29, tzinfo=UTC)


@pytest.fixture(scope="module")
def year() -> data.Year:
    return data.load()


@pytest.fixture(scope="module")
def events(year: data.Year) -> list[Event]:
    return list(Replay(year, start=START).events())


def happened(event: Event) -> str:
    flight = json.loads(event.value)
    return flight["departed"] or flight["scheduled"]


def test_the_records_are_in_the_order_of_their_time(events: list[Event]) -> None:
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert events[0].at >= START.timestamp()


def test_every_flight_from_the_start_on_comes_once(year: data.Year, events: list[Event]) -> None:
    ids = [event.id for event in events if event.topic == FLIGHTS]
    assert len(ids) == len(set(ids)) > 2000
    happened = pc.add(
        pc.add(pc.cast(year.flights["time_hour"], "int64"), pc.multiply(year.flights["minute"], 60)),
        pc.multiply(pc.fill_null(year.flights["dep_delay"], 0), 60),
    )
    assert set(ids) == set(np.flatnonzero(happened.to_numpy() >= START.timestamp()))


def test_the_weather_of_an_hour_comes_before_the_flights_of_that_hour(events: list[Event]) -> None:
    told: set[bytes] = set()
    missing = 0
    for event in events:
        if event.topic == WEATHER:
            told.add(event.key)
        elif event.fault is None and not event.late:
            flight = json.loads(event.value)
            missing += f"{flight['origin']}@{happened(event)[:13]}:00:00Z".encode() not in told
    # The observations have a few holes of their own, and end a day before the flights.
    with_weather = sum(event.at < max(e.at for e in events if e.topic == WEATHER) for event in events)
    assert with_weather > 1000
    assert missing < len(events) - with_weather + 50


@pytest.mark.promise(
    "demo", "The replay is deterministic, and continues after the records that each partition already has"
)
def test_the_same_seed_gives_the_same_records_and_another_gives_others(
    year: data.Year, events: list[Event]
) -> None:
    assert list(Replay(year, start=START).events()) == events
    assert list(Replay(year, start=START, seed=1).events()) != events


def test_a_flight_has_the_same_fate_wherever_the_replay_starts(year: data.Year, events: list[Event]) -> None:
    later = Replay(year, start=datetime(2013, 12, 30, tzinfo=UTC))
    fates = {event.id: event for event in events if event.topic == FLIGHTS}
    for event in later.events():
        if event.topic == FLIGHTS:
            assert fates[event.id] == event


@pytest.mark.promise(
    "demo", "The replay is deterministic, and continues after the records that each partition already has"
)
def test_a_replay_goes_on_after_what_each_partition_has(year: data.Year, events: list[Event]) -> None:
    """Also when a crash left one partition further than another."""
    sent = events[:700]
    lost = [event for event in sent[600:] if (event.topic, event.partition) == (FLIGHTS, 1)]
    assert lost
    there = Counter((event.topic, event.partition) for event in sent)
    there[(FLIGHTS, 1)] -= len(lost)
    assert list(Replay(year, start=START).events(after=there)) == lost + events[700:]


def test_some_are_out_of_order_some_late_and_some_broken(events: list[Event]) -> None:
    flights = [event for event in events if event.topic == FLIGHTS]
    late = [event for event in flights if event.late]
    assert 0.01 < len(late) / len(flights) < 0.03
    for event in late:
        sent_after = event.at - datetime.fromisoformat(happened(event)).timestamp()
        assert 4 * HOUR <= sent_after <= 12 * HOUR
    assert {event.fault for event in flights} == {None, *Fault}
    times = [happened(event) for event in flights if event.fault is None and not event.late]
    assert times != sorted(times)


def test_nothing_is_wrong_when_nothing_is_asked_for(year: data.Year) -> None:
    clean = Replay(year, start=START, faults=Faults(shuffled=0, late=0, broken=0))
    flights = [event for event in clean.events() if event.topic == FLIGHTS]
    assert [happened(event) for event in flights] == [timestamp(event.at) for event in flights]
    assert all(event.fault is None and not event.late for event in flights)


def test_a_record_has_the_partition_that_javas_producer_gives_its_key(events: list[Event]) -> None:
    assert {event.partition for event in events} == set(range(PARTITIONS))
    for event in events:
        assert event.partition == (murmur2(event.key) & 0x7FFFFFFF) % PARTITIONS


@pytest.mark.parametrize("fault", Fault)
def test_each_fault_breaks_a_record_in_its_way(fault: Fault) -> None:
    value = broken({"id": 1, "flight": "UA1", "origin": "EWR", "delay_minutes": 3}, fault)
    if fault is Fault.NOT_TEXT:
        with pytest.raises(UnicodeDecodeError):
            value.decode()
    elif fault is Fault.CUT:
        with pytest.raises(json.JSONDecodeError):
            json.loads(value)
    else:
        flight = json.loads(value)
        assert (flight.get("origin"), flight["delay_minutes"]) in (
            (None, 3), ("XXX", 3), ("EWR", "two hours"),
        )  # fmt: skip
