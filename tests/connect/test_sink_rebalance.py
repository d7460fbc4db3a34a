"""A sink whose partitions move to another member and back, while its store is away or it is paused."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer

from penstock.testing import PenstockBroker
from tests.connect.conftest import Topics, Worker, until

MOST = 100


class OtherMember:
    """Of the sink's group; by its name, partition 0 is assigned to it."""

    def __init__(self, broker: PenstockBroker, name: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "client.id": "a",
                "group.id": f"connect-{name}",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 100,
            }
        )
        self._consumer.subscribe([name])
        until(self._assigned, "a partition moves to the other member")
        assert [each.partition for each in self._consumer.assignment()] == [0]

    def _assigned(self) -> bool:
        self._consumer.poll(0.1)
        return bool(self._consumer.assignment())

    def leave(self) -> None:
        self._consumer.close()


@pytest.mark.promise(
    "connect",
    "A sink continues every partition that moves to another member and back while its store is "
    "unavailable or it is paused; memory stays bounded",
)
def test_partitions_that_move_while_the_store_is_away_or_the_sink_paused_are_read_on(
    broker: PenstockBroker, worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    store, away = tmp_path / "store", tmp_path / "away"
    broker.create_topic(name, partitions=2)
    worker.put(
        name,
        {
            "connector.class": "trial_connectors.OwnOffsetsSink",
            "topics": name,
            "path": str(store),
            "away": str(away),
            "value.converter": "string",
            "consumer.override.max.poll.records": str(MOST),
            "consumer.override.heartbeat.interval.ms": "100",
        },
    )

    def log() -> list[str]:
        path = store / "log"
        return path.read_text().splitlines() if path.exists() else []

    def lines(partition: int) -> list[int]:
        path = store / f"{name}-{partition}"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def write(numbers: range) -> None:
        for partition in (0, 1):
            topics.write(name, *(b"%d" % number for number in numbers), partition=partition)

    def attempts() -> int:
        return sum(line.startswith("away") for line in log())

    def leave_and_wait(other: OtherMember) -> None:
        before = len(log())
        other.leave()
        until(lambda: any(line.startswith("open") for line in log()[before:]), "the partition comes back")

    until(lambda: "open 0 1" in log(), "both partitions are the sink's")
    other = OtherMember(broker, name)
    away.touch()
    write(range(1000))
    until(attempts, "the sink waits for its store")
    leave_and_wait(other)
    seen = attempts()
    until(lambda: attempts() >= seen + 2, "the sink waits, now with both partitions")
    other = OtherMember(broker, name)
    away.unlink()
    until(lambda: len(lines(1)) >= 1000, "the partition that stayed is read on")
    leave_and_wait(other)
    until(lambda: len(lines(0)) >= 1000, "the partition that came back is read on")

    assert worker.http.put(f"/connectors/{name}/pause").status_code == 202
    worker.until_state(name, "PAUSED")
    other = OtherMember(broker, name)
    assert worker.http.put(f"/connectors/{name}/resume").status_code == 202
    worker.until_state(name, "RUNNING")
    leave_and_wait(other)
    write(range(1000, 1100))
    until(
        lambda: len(lines(0)) >= 1100 and len(lines(1)) >= 1100,
        "both are read on",
        lambda: f"{lines(0)[-1:]}",
    )

    assert lines(0) == lines(1) == list(range(1100)), "each once and in order"
    sizes = [int(line.split()[1]) for line in log() if line.startswith(("put", "away"))]
    assert max(sizes) <= MOST, "nothing is gathered meanwhile"
