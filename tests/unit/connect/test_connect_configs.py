"""The config topic's state, and who runs what: pure."""

from __future__ import annotations

import random

import pytest

from penstock.connect.worker.configs import (
    ConfigState,
    Unit,
    assign,
    assignment_record,
    connector_record,
    removal_records,
    target_record,
    task_count_record,
    task_records,
)


def replayed(*records: tuple[bytes, bytes | None]) -> ConfigState:
    state = ConfigState()
    for offset, (key, value) in enumerate(records):
        state.apply(key, value, offset, None)
    return state


@pytest.mark.promise("connect", "The state topics contain records in Kafka Connect's format")
def test_tasks_count_only_when_all_of_them_are_committed() -> None:
    tasks = task_records("c", [{"n": "0"}, {"n": "1"}])
    state = replayed(connector_record("c", {"a": "b"}), *tasks[:-1])
    assert state.connectors["c"].tasks == () and state.units() == [Unit("c")]
    state.apply(*tasks[-1], 9, None)
    assert state.units() == [Unit("c"), Unit("c", 0), Unit("c", 1)]
    assert state.connectors["c"].divided == state.connectors["c"].generation == 0
    state.apply(*connector_record("c", {"a": "c"}), 10, None)
    assert state.connectors["c"].divided != state.connectors["c"].generation, "its tasks are old now"


def test_a_stopped_connector_runs_nothing_and_a_deleted_one_is_gone() -> None:
    state = replayed(target_record("c", "STOPPED"), connector_record("c", {}), *task_records("c", [{}]))
    assert state.connectors["c"].target == "STOPPED" and state.units() == []
    assert state.preview([target_record("c", "STARTED")]).units() == [Unit("c"), Unit("c", 0)]
    assert state.units() == [], "a preview changes nothing"
    for key, value in removal_records("c", 1):
        state.apply(key, value, 20, None)
    assert state.connectors == {}


def test_tasks_of_a_deleted_connector_are_fenced_by_a_new_one_of_its_name() -> None:
    state = replayed(connector_record("c", {}), task_count_record("c", 3), *removal_records("c", 3))
    assert state.connectors == {}
    after = [connector_record("c", {"new": "1"}), *task_records("c", [{}])]
    assert state.preview(after).connectors["c"].most_tasks == 3
    for key, value in [*after, task_count_record("c", 1)]:
        state.apply(key, value, 30, None)
    assert state.connectors["c"].most_tasks == 1


@pytest.mark.promise("connect", "The state topics contain records in Kafka Connect's format")
def test_records_of_others_are_passed_over() -> None:
    state = replayed((b"session-key", b'{"key":1}'), (b"\xff", b"{}"), (b"connector-x", b"["), (b"x", b"5"))
    assert state.connectors == {}


def test_an_assignment_is_read_as_it_was_written() -> None:
    given = {Unit("a"): "w1", Unit("a", 0): "w2", Unit("b-1", 11): "w1"}
    assert replayed(assignment_record(given)).assignment == given


@pytest.mark.promise(
    "connect",
    "The workers of a group share connectors and tasks evenly; kill -9 of a worker moves its tasks, and "
    "no record is lost",
)
def test_work_is_balanced_and_moves_only_where_it_must() -> None:
    chance = random.Random(7)
    workers, before = {"w0"}, {}
    for step in range(300):
        if chance.random() < 0.3:
            workers = set(chance.sample([f"w{n}" for n in range(6)], chance.randint(1, 6)))
        units = [
            Unit(f"c{n}", task)
            for n in range(chance.randint(0, 5))
            for task in range(-1, chance.randint(0, 6))
        ]
        after = assign(units, workers, before)
        assert set(after) == set(units) and set(after.values()) <= workers, step
        for kind in (False, True):
            mine = [unit for unit in units if unit.is_task is kind]
            held = {w: [u for u in mine if after[u] == w] for w in workers}
            sizes = [len(found) for found in held.values()]
            assert max(sizes) - min(sizes) <= 1, step
            # What stays is as much as the shares allow.
            most = -(-len(mine) // len(workers))
            kept = sum(1 for u in mine if before.get(u) == after[u])
            could = sum(min(most, sum(1 for u in mine if before.get(u) == w)) for w in workers)
            assert kept >= could - len(workers), step
        assert assign(units, workers, after) == after, "a second look changes nothing"
        before = after
