"""The summary notices whatever is lost, doubled or misjudged, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.demo.replay import FLIGHTS, HOUR, WEATHER, Event, Fault
from penstock.demo.summary import Outcome, Row, checks, counts

NOON = 12 * HOUR


def event(id: int, *, late: bool = False, fault: Fault | None = None) -> Event:
    return Event(NOON, FLIGHTS, 0, str(id).encode(), b"", id, late, fault)


def row(id: int, *, delay: int | None = 0, cancelled: bool = False, weather: bool = True) -> Row:
    return Row(id, "EWR", NOON + id, delay, cancelled, weather)


SENT = [
    Event(NOON, WEATHER, 0, b"EWR@12", b"", -1),
    event(1),
    event(2, late=True),
    event(3, fault=Fault.CUT),
    event(4),
]


def outcome() -> Outcome:
    return Outcome(
        table=[row(1), row(2, weather=False), row(4, delay=None, cancelled=True)],
        dead=[(3, "not JSON")],
        windows=[("EWR", NOON, 2)],
        alerts=[4],
    )


def failed(result: Outcome, *, drained: bool = True) -> list[str]:
    return [check.promise for check in checks(SENT, result, drained=drained) if not check.ok]


def test_the_counts_add_up() -> None:
    found = counts(SENT, outcome())
    assert found["flights_in"] == found["parsed"] + found["dead"] == 4
    assert found["joined"] + found["without_weather"] == found["parsed"] == found["delta_rows"]
    assert found["in_windows"] + found["late_or_in_open_windows"] == found["parsed"]
    assert (found["weather_in"], found["sent_late"], found["sent_broken"]) == (1, 1, 1)
    assert (found["windows"], found["alerts"], found["not_yet_done"]) == (1, 1, 0)


def test_all_is_well_when_every_flight_is_accounted_for() -> None:
    assert failed(outcome()) == []


def test_a_late_flight_may_be_in_its_window_or_not() -> None:
    result = outcome()
    result.windows = [("EWR", NOON, 3)]
    assert failed(result) == []


@pytest.mark.promise("demo", "The summary fails if a flight is lost, duplicated or wrongly classified")
@pytest.mark.parametrize(
    ("spoil", "promise"),
    [
        (lambda result: result.table.pop(0), "every flight sent"),
        (lambda result: result.dead.pop(), "every flight sent"),
        (lambda result: result.table.append(row(1)), "every flight sent"),
        (lambda result: result.table.append(row(9)), "every flight sent"),
        (lambda result: result.dead.append((1, "not JSON")), "a record is a dead letter"),
        (lambda result: result.dead.__setitem__(0, (3, "no origin")), "a record is a dead letter"),
        (lambda result: result.alerts.append(4), "no alert comes twice"),
        (lambda result: result.alerts.append(1), "there is an alert for each"),
        (lambda result: result.alerts.clear(), "there is an alert for each"),
        (lambda result: result.windows.append(("EWR", NOON, 2)), "each closed window"),
        (lambda result: result.windows.__setitem__(0, ("EWR", NOON, 4)), "each closed window"),
        (lambda result: result.windows.__setitem__(0, ("EWR", NOON, 1)), "each closed window"),
    ],
)  # fmt: skip
def test_what_is_lost_doubled_or_misjudged_is_noticed(spoil: object, promise: str) -> None:
    result = outcome()
    spoil(result)  # type: ignore[operator]
    assert any(found.startswith(promise) for found in failed(result))


@pytest.mark.promise("demo", "The summary fails if a flight is lost, duplicated or wrongly classified")
def test_a_window_is_missed_only_once_it_must_have_closed() -> None:
    result = outcome()
    result.windows.clear()
    assert failed(result) == []
    # Two hours after its end no flight is waited for any more.
    result.table[0] = replace(result.table[0], at=NOON + 3 * HOUR)
    assert any(promise.startswith("each closed window") for promise in failed(result))
    assert failed(result, drained=False) == []


def test_a_run_that_was_interrupted_may_have_flights_left_but_none_twice() -> None:
    result = outcome()
    result.table.pop()
    assert failed(result, drained=False) == []
    assert counts(SENT, result)["not_yet_done"] == 1
    result.table.append(replace(result.table[0]))
    assert failed(result, drained=False) != []
