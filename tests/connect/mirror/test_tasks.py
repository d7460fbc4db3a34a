"""The task of MirrorSourceConnector under load and faults: what the target has afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.connect.mirror.conftest import Pair, connect, partition, until, until_equal
from tests.connect.mirror.task_process import TaskProcess
from tests.connect.mirror.test_source import SOURCE
from tests.repetitions import times

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def load(clusters: Pair, name: str) -> Iterator[Any]:
    """Records in three partitions of a topic, until it is asked to stop."""
    clusters.source.create_topic(name, partitions=3)
    stop, written = threading.Event(), threading.Event()

    def run() -> None:
        producer = Producer({"bootstrap.servers": clusters.source.bootstrap, "linger.ms": 5})
        number = 0
        while not stop.is_set():
            for _ in range(200):
                producer.produce(name, f"{number}", f"k{number}")
                number += 1
            producer.flush(60)
            written.set()
            stop.wait(0.1)

    thread = threading.Thread(target=run)
    thread.start()
    written.wait(60)
    try:
        yield lambda: (stop.set(), thread.join())
    finally:
        stop.set()
        thread.join()


def grown(clusters: Pair, topic: str, than: int = 0) -> int:
    """How many records the target has, once there are more."""

    def more() -> int:
        with connect(clusters.target.bootstrap) as target:
            if topic not in target.partitions([topic]):
                return 0
            found = sum(len(partition(target, topic, number)[0]) for number in range(3))
            return found if found > than else 0

    return int(until(more, f"{topic} has more than {than} records"))


def task_config(clusters: Pair, alias: str, topic: str) -> dict[str, object]:
    """As the connector gives it to its task."""
    places = ",".join(f"{topic}-{number}" for number in range(3))
    return {
        "name": "m",
        "connector.class": SOURCE,
        "task.assigned.partitions": places,
        **clusters.config(alias, topics=topic),
    }


def prepare(clusters: Pair, remote: str) -> None:
    with connect(clusters.target.bootstrap) as target:
        target.create_topic(remote, 3)
        target.create_topic("connect-offsets", 2, {"cleanup.policy": "compact"}, True)
    with connect(clusters.source.bootstrap) as source:
        source.create_topic("mm2-offset-syncs.there.internal", 1, {"cleanup.policy": "compact"}, True)


@pytest.mark.repeated
@pytest.mark.promise(
    "mirror",
    "Exactly once: after kill -9 of a task under load, each record is in the target once and in order",
)
def test_a_killed_task_neither_loses_nor_repeats(
    clusters: Pair, tmp_path: Path, name: str, load: Any
) -> None:
    remote, log = f"k1.{name}", tmp_path / "log"
    prepare(clusters, remote)
    config, count = task_config(clusters, "k1", name), 0
    task = TaskProcess(clusters.target.bootstrap, name, config, log)
    for _ in range(times(2, 20)):
        count = grown(clusters, remote, count)
        task.kill()
        task = TaskProcess(clusters.target.bootstrap, name, config, log)
    grown(clusters, remote, count)
    load()
    until_equal(clusters, name, remote, 3)
    assert task.stop() == 0


@pytest.mark.promise("mirror", "A task that hangs and is replaced is fenced and writes no more")
def test_a_task_that_comes_back_is_fenced(clusters: Pair, tmp_path: Path, name: str, load: Any) -> None:
    import signal

    remote = f"z1.{name}"
    prepare(clusters, remote)
    config = task_config(clusters, "z1", name)
    old = TaskProcess(clusters.target.bootstrap, name, config, tmp_path / "old")
    count = grown(clusters, remote)
    old.process.send_signal(signal.SIGSTOP)
    new = TaskProcess(clusters.target.bootstrap, name, config, tmp_path / "new")
    grown(clusters, remote, count)
    old.process.send_signal(signal.SIGCONT)
    assert old.process.wait(120) == 1
    text = (tmp_path / "old").read_text()
    assert "FENCED" in text or "INVALID_PRODUCER_EPOCH" in text, text[-2000:]
    load()
    until_equal(clusters, name, remote, 3)
    assert new.stop() == 0


@pytest.mark.repeated
@pytest.mark.promise(
    "mirror", "The mirror waits for a source or target cluster that restarts: nothing is lost or repeated"
)
@pytest.mark.parametrize(
    "once",
    [
        pytest.param(True, id="exactly-once"),
        pytest.param(False, id="at-least-once", marks=pytest.mark.long),
    ],
)
def test_clusters_that_go_away_are_waited_for(
    clusters: Pair, tmp_path: Path, name: str, load: Any, once: bool
) -> None:
    """The target is killed in the middle of a transaction, which the task aborts itself when it is back."""
    remote = f"w1.{name}"
    prepare(clusters, remote)
    config, log = task_config(clusters, "w1", name), tmp_path / "log"
    # Long transactions: the kill meets one that is open.
    config["transaction.boundary.interval.ms"] = 1000
    task = TaskProcess(clusters.target.bootstrap, name, config, log, once=once)
    count = grown(clusters, remote)
    for _ in range(times(1, 5)):
        clusters.target.kill()
        clusters.target.start()
        count = grown(clusters, remote, count)
    clusters.source.kill()
    clusters.source.start()
    grown(clusters, remote, count)
    load()
    if once:
        until_equal(clusters, name, remote, 3)
    else:
        until_all(clusters, name, remote)
    assert task.stop() == 0, log.read_text()[-3000:]


def until_all(clusters: Pair, topic: str, remote: str) -> None:
    """At least once: nothing is missing."""
    with connect(clusters.source.bootstrap) as source, connect(clusters.target.bootstrap) as target:
        for number in range(3):
            wanted = {each.value for each in partition(source, topic, number)[0]}

            def all_there(number: int = number, wanted: set[bytes | None] = wanted) -> bool:
                return {each.value for each in partition(target, remote, number)[0]} == wanted

            until(all_there, f"{remote}-{number} has every record")
