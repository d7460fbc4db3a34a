"""A sink whose partitions move to another member and back, or whose topic is another one than before."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

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
    "A sink continues every partition that moves to another member and back while its target is "
    "unavailable or the connector is paused; memory stays bounded",
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


@pytest.mark.promise(
    "connect",
    "A sink that stores its offsets with its data fails if its topic ends before these offsets, as after "
    "the topic was deleted and created again: new records are not mistaken for old ones",
)
def test_a_topic_that_was_created_again_fails_the_sink_until_its_offsets_are_reset(
    broker: PenstockBroker, worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    directory = tmp_path / "files"

    def written() -> list[str]:
        return sorted(line for path in directory.glob("[!.]*") for line in path.read_text().splitlines())

    def stop() -> None:
        assert worker.http.put(f"/connectors/{name}/stop").status_code == 204
        worker.until_state(name, "STOPPED", None)

    topics.write(name, b"1", b"2", b"3")
    # An expression that POSIX does not have.
    config = {"connector.class": "DirectorySink", "topics.regex": f"(?:{name})", "path": str(directory)}
    config |= {"value.converter": "json", "value.converter.schemas.enable": "false"}
    config |= {"penstock.task.restart.attempts": "0"}
    worker.put(name, config)
    until(lambda: written() == ["1", "2", "3"], "the first records", lambda: str(worker.status(name)))
    stop()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([name])[name].result()
    topics.write(name, b"4")
    assert worker.http.put(f"/connectors/{name}/resume").status_code == 202
    trace = worker.until_state(name, "FAILED")["trace"]
    assert f"{name}-0 ends at offset 1, but the sink has written its records up to 3" in trace

    stop()
    for path in directory.glob("[!.]*"):
        path.unlink()
    assert worker.http.delete(f"/connectors/{name}/offsets").status_code == 200
    assert worker.http.put(f"/connectors/{name}/resume").status_code == 202
    until(lambda: written() == ["4"], "the new record", lambda: str(worker.status(name)))
