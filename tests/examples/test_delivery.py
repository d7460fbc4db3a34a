"""Each delivery promise of docs/delivery.md, kept by its example while it and the broker are killed."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import pytest

from tests.examples.crashes import RECORDS, crash_and_finish
from tests.repetitions import times

SEEDS = [pytest.param(seed, marks=pytest.mark.repeated) for seed in range(1, times(1, 4) + 1)]


@pytest.fixture
def to_database(example, database):
    return lambda name, *options: example(name, "--database", str(database), "--exit-at-end", *options)


@pytest.fixture
def transform(broker, example):
    broker.create_topic("shouted-orders", 2)
    return example("exactly_once_transform", "--exit-at-end")


def shouted(broker):
    records = broker.consume("shouted-orders", isolation="read_committed")
    assert all(record.value.decode() == f"VALUE OF {record.key.decode().upper()}" for record in records)
    return [record.key.decode() for record in records]


# At most once


@pytest.mark.promise(
    "delivery",
    "At most once: no record is processed twice, and a crash loses the record that is being processed",
)
@pytest.mark.parametrize("seed", SEEDS)
def test_at_most_once_does_nothing_twice(seed, broker, orders, to_database, results):
    crash_and_finish(to_database("at_most_once"), broker, random.Random(seed))
    assert len(results()) == len(set(results()))
    assert set(results()) <= set(orders)
    assert len(results()) > RECORDS // 2  # a crash costs the record in hand, not what comes after it


@pytest.mark.promise(
    "delivery",
    "At most once: no record is processed twice, and a crash loses the record that is being processed",
)
def test_at_most_once_loses_what_was_in_hand(broker, orders, to_database, database, results):
    program = to_database("at_most_once")
    program.start()
    program.read_until("done")
    with closing(sqlite3.connect(database, isolation_level=None, timeout=30)) as lock:
        lock.execute("BEGIN IMMEDIATE")  # now its work has to wait
        (done,) = lock.execute("SELECT count(*) FROM results").fetchone()
        for _ in range(done - 1):
            program.read_until("done")
        program.read_until("committed")
        program.kill()
    program.finish()
    assert len(results()) == len(set(results())) == RECORDS - 1


# At least once


@pytest.mark.promise(
    "delivery",
    "At least once: every record is processed, and a crash repeats the record that is being processed",
)
@pytest.mark.parametrize("seed", SEEDS)
def test_at_least_once_leaves_nothing_out(seed, broker, orders, to_database, results):
    crash_and_finish(to_database("at_least_once"), broker, random.Random(seed))
    assert set(results()) == set(orders)


@pytest.mark.promise(
    "delivery",
    "At least once: every record is processed, and a crash repeats the record that is being processed",
)
def test_at_least_once_repeats_what_was_in_hand(broker, orders, to_database, results):
    program = to_database("at_least_once")
    broker.faults.drop("OffsetCommit", times=None)
    program.start()
    program.read_until("done")
    program.kill()
    broker.faults.clear()
    program.finish()
    assert set(results()) == set(orders)
    assert len(results()) == RECORDS + 1


# Effectively once


@pytest.mark.promise("delivery", "Effectively once: records that were sent or read twice are dropped")
@pytest.mark.parametrize("seed", SEEDS)
def test_effectively_once_drops_what_was_sent_or_read_twice(seed, broker, example, to_database, results):
    rng = random.Random(seed)
    sender = example("effectively_once", "--send", str(RECORDS))
    sender.start()
    sender.read_lines(rng.randrange(2, 10))
    sender.kill()
    sender.finish()
    crash_and_finish(to_database("effectively_once"), broker, rng)
    sent = broker.consume("orders")
    assert len(sent) > RECORDS
    assert sorted(results()) == sorted({record.key.decode() for record in sent})
    assert len(results()) == RECORDS


# Exactly once


@pytest.mark.promise("delivery", "Exactly once, from topic to topic, killed at any step of the transaction")
@pytest.mark.parametrize("seed", SEEDS)
def test_exactly_once_from_topic_to_topic(seed, broker, orders, transform):
    crash_and_finish(transform, broker, random.Random(seed))
    assert sorted(shouted(broker)) == sorted(orders)


@pytest.mark.promise("delivery", "Exactly once, from topic to topic, killed at any step of the transaction")
@pytest.mark.parametrize("step", ["produced", "sent offsets"])
def test_exactly_once_aborts_what_was_in_hand(step, broker, orders, transform):
    # The step after the one that it says is the one that never ends.
    broker.faults.drop("EndTxn" if step == "sent offsets" else "TxnOffsetCommit", times=None)
    transform.start()
    transform.read_until(step)
    transform.kill()
    broker.faults.clear()
    transform.finish()
    assert sorted(shouted(broker)) == sorted(orders)
    assert len(broker.consume("shouted-orders", isolation="read_uncommitted")) >= RECORDS


@pytest.mark.promise("delivery", "Exactly once, into a SQL database that holds results and offsets")
@pytest.mark.parametrize("seed", SEEDS)
def test_exactly_once_into_a_database(seed, broker, orders, to_database, results):
    crash_and_finish(to_database("exactly_once_sql"), broker, random.Random(seed))
    assert sorted(results()) == sorted(orders)


@pytest.mark.promise("delivery", "Exactly once, into a SQL database that holds results and offsets")
def test_exactly_once_goes_on_from_the_database_not_from_the_group(broker, orders, to_database, results):
    to_database("exactly_once_sql").finish()
    to_database("exactly_once_sql", "--group", "another").finish()
    assert sorted(results()) == sorted(orders)


# All of them


@pytest.mark.parametrize(
    "name", ["at_most_once", "at_least_once", "exactly_once_sql", "exactly_once_transform"]
)
def test_who_is_fenced_ends(name, broker, orders, example, database):
    options = (
        ["--output", "shouted-orders"] if name == "exactly_once_transform" else ["--database", str(database)]
    )
    broker.create_topic("shouted-orders", 2)
    first, second = example(name, *options), example(name, *options)
    first.start()
    first.read_lines(3)
    second.start()
    code, said = first.ends()
    assert code == 1
    assert "fenced" in said.lower()


def test_effectively_once_says_what_it_cannot_tell_apart(orders, to_database):
    program = to_database("effectively_once")
    program.start()
    code, said = program.ends()
    assert code == 1
    assert "no header 'id'" in said
    assert "Traceback" not in said
