"""A broker to kill, an input to read, and the examples that read it."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.testing import PenstockBroker
from tests.examples.crashes import PARTITIONS, RECORDS, Example

NAMES = [f"order-{number}" for number in range(RECORDS)]


@pytest.fixture
def broker() -> Iterator[PenstockBroker]:
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 3,
        "transaction.state.log.num.partitions": 3,
    }
    with PenstockBroker(settings) as process:
        process.create_topic("orders", PARTITIONS)
        yield process


@pytest.fixture
def orders(broker: PenstockBroker) -> list[str]:
    """The names of the records in the topic `orders`."""
    broker.produce(
        "orders",
        [
            {"key": name, "value": f"value of {name}", "partition": number % PARTITIONS}
            for number, name in enumerate(NAMES)
        ],
    )
    return NAMES


@pytest.fixture
def example(broker: PenstockBroker, tmp_path: Path) -> Iterator[Callable[..., Example]]:
    made: list[Example] = []
    numbers = itertools.count()

    def make(name: str, *options: str) -> Example:
        made.append(Example(name, broker, tmp_path / f"example-{next(numbers)}.log", *options))
        return made[-1]

    yield make
    for each in made:
        each.kill()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


@pytest.fixture
def results(database: Path) -> Callable[[], list[str]]:
    """The names in the table of results."""

    def read() -> list[str]:
        with closing(sqlite3.connect(database)) as connection:
            return [name for (name,) in connection.execute("SELECT id FROM results")]

    return read
