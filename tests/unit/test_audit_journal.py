"""The audit's journal: repetitions are folded, nothing grows without limit, what does not fit is counted."""

from __future__ import annotations

import json

import pytest

from penstock.broker.audit.event import Entry, Event, Kind, Source, encoded
from penstock.broker.audit.journal import Journal

WINDOW = 10_000


def denied(name: str | None = "t", principal: str = "User:eve", client_id: str | None = None) -> Event:
    source = Source(principal, "10.0.0.1", "PLAINTEXT", client_id)
    return Event(
        Kind.DENIED, source, "Produce", "Write", "Topic", name, "TOPIC_AUTHORIZATION_FAILED"
    )  # fmt: skip


def admin(name: str) -> Event:
    return Event(
        Kind.ADMIN, Source("User:admin", "::1", "SSL", "cli"), "CreateTopics", "Create", "Topic", name
    )


def taken(journal: Journal) -> list[Entry]:
    found = journal.first(1_000_000)
    journal.written(len(found))
    return found


@pytest.mark.promise(
    "access",
    "A request neither waits for its audit record nor fails with it; the queue of audit records is "
    "limited, repetitions are combined, and dropped records are counted",
)
def test_the_first_of_equal_denials_is_written_at_once_and_the_rest_as_one_count() -> None:
    journal = Journal(window_ms=WINDOW)
    for number in range(1000):
        journal.add(denied(client_id=f"client-{number}"), number)
    assert [(one.count, one.first_ms) for one in taken(journal)] == [(1, 0)]
    journal.close_windows(WINDOW - 1)
    assert taken(journal) == []
    journal.close_windows(WINDOW)
    (folded,) = taken(journal)
    assert (folded.count, folded.first_ms, folded.last_ms) == (999, 0, 999)
    journal.add(denied(), WINDOW + 1)
    assert [one.count for one in taken(journal)] == [1]
    journal.close_windows(3 * WINDOW)
    assert taken(journal) == []  # it was not repeated
    assert not journal.has_entries


@pytest.mark.promise(
    "access",
    "A request neither waits for its audit record nor fails with it; the queue of audit records is "
    "limited, repetitions are combined, and dropped records are counted",
)
def test_of_a_sender_with_many_names_only_the_first_are_named() -> None:
    journal = Journal(window_ms=WINDOW, names=5)
    for number in range(10_000):
        journal.add(denied(f"t{number}"), 0)
    journal.add(denied("other", principal="User:bob"), 0)
    entries = taken(journal)
    assert [one.event.name for one in entries if one.event] == ["t0", "t1", "t2", "t3", "t4", None, "other"]
    journal.close_windows(WINDOW)
    (rest,) = taken(journal)
    assert rest.event is not None and (rest.event.name, rest.count) == (None, 9_994)
    journal.add(denied("t9"), WINDOW)
    assert [one.event.name for one in taken(journal) if one.event] == ["t9"]  # names count anew


@pytest.mark.promise(
    "access",
    "A request neither waits for its audit record nor fails with it; the queue of audit records is "
    "limited, repetitions are combined, and dropped records are counted",
)
def test_what_does_not_fit_is_counted_and_the_count_is_recorded_when_there_is_room() -> None:
    journal = Journal(capacity=10, window_ms=WINDOW)
    for number in range(100):
        journal.add(denied(principal=f"User:{number}"), number)
    for number in range(20):
        journal.add(admin(f"t{number}"), 200)
    full = taken(journal)
    kinds = [one.event.kind for one in full if one.event]
    # Denied clients have half of the room, so that what administrators do is not lost to them.
    assert kinds == [Kind.DENIED] * 5 + [Kind.ADMIN] * 5
    (dropped,) = taken(journal)
    assert dropped.event is None and dropped.count == 95 + 15
    assert (dropped.first_ms, dropped.last_ms) == (5, 200)
    assert taken(journal) == []


def test_entries_stay_until_they_are_written() -> None:
    journal = Journal()
    journal.add(admin("a"), 1)
    journal.add(admin("b"), 2)
    assert journal.first(1) == journal.first(1)
    journal.written(1)
    (left,) = journal.first(5)
    assert left.event is not None and left.event.name == "b"


def test_a_clock_that_is_set_back_does_not_hold_windows_open() -> None:
    journal = Journal(window_ms=WINDOW)
    journal.add(denied(), 1_000_000)
    journal.add(denied(), 1_000_000)
    taken(journal)
    journal.close_windows(5)
    assert [one.count for one in taken(journal)] == [1]


def test_the_value_of_a_record_is_json_with_names_of_bounded_length() -> None:
    value = json.loads(encoded(Entry(denied("x" * 30_000), 0, 1_700_000_000_123, 3), 7))
    assert value["resource"] == "x" * 256 + "…"
    del value["resource"]
    assert value == {
        "time": "2023-11-14T22:13:20.123Z", "type": "denied", "broker": 7, "principal": "User:eve",
        "host": "10.0.0.1", "listener": "PLAINTEXT", "client_id": None, "api": "Produce",
        "operation": "Write", "resource_type": "Topic", "allowed": False,
        "error": "TOPIC_AUTHORIZATION_FAILED", "count": 3, "first_time": "1970-01-01T00:00:00.000Z",
    }  # fmt: skip
    dropped = json.loads(encoded(Entry(None, 0, 0, 12), 7))
    assert (dropped["type"], dropped["count"]) == ("dropped", 12)
