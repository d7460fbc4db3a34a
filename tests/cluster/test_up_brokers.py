"""`penstock up --brokers N`: a cluster on this machine, kept running, stopped in order, never left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.ensemble.server import is_serving
from tests.cluster.harness import PATIENCE, wait_until

pytestmark = pytest.mark.timeout(300)


class Up:
    def __init__(self, directory: Path, *options: str) -> None:
        self.ready_file = directory / "ready.json"
        self.log = directory / "up.log"
        command = [
            sys.executable,
            "-m",
            "penstock",
            "up",
            "--brokers",
            "3",
            "--port",
            "0",
            "--json",
            "--no-connect",
        ]
        command += ["--data", str(directory / "data"), "--ready-file", str(self.ready_file), *options]
        # Sessions that a busy machine does not end.
        command += ["--set", "zookeeper.session.timeout.ms=20000"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.ready: dict[str, Any] = json.loads(line)

    @property
    def told(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.ready_file.read_text())
        return state

    def children(self) -> list[int]:
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in found.split()]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE * 2)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start(*options: str) -> Up:
        started.append(Up(tmp_path, *options))
        return started[-1]

    yield start
    for one in started:
        one.close()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def produce(up: Up, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": up.ready["bootstrap"], "acks": "all", "log_level": 0})
    errors: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE) == 0
    assert errors == [None] * len(values)


def consume(up: Up, topic: str, count: int) -> set[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": up.ready["bootstrap"],
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    try:
        messages = consumer.consume(count, PATIENCE)
        return {message.value() for message in messages}
    finally:
        consumer.close()


@pytest.mark.promise(
    "commands",
    "`penstock up --brokers 3` starts a cluster with its ZooKeeper: processes that die are restarted, it "
    "stops in order, and no process is left when it is killed",
)
def test_a_cluster_replicates_restarts_what_died_and_keeps_its_data(start: Callable[..., Up]) -> None:
    up = start("--no-registry")
    ready = up.ready
    assert ready == up.told and "registry" not in ready
    assert [broker["id"] for broker in ready["brokers"]] == [1, 2, 3]
    addresses = [f"{broker['host']}:{broker['port']}" for broker in ready["brokers"]]
    assert ready["bootstrap"] == ",".join(addresses)
    host, _, port = ready["zookeeper"].rpartition(":")
    assert is_serving(host, int(port))

    # Ready means: a topic with a replica on each can be made at once, at any of them.
    admin = AdminClient({"bootstrap.servers": addresses[2], "log_level": 0})
    admin.create_topics([NewTopic("t", 3)])["t"].result(PATIENCE)
    described = admin.list_topics("t", timeout=PATIENCE).topics["t"]
    assert all(sorted(one.replicas) == [1, 2, 3] for one in described.partitions.values())
    produce(up, "t", b"one", b"two")

    killed = ready["brokers"][0]["pid"]
    os.kill(killed, signal.SIGKILL)
    wait_until("broker 1 is told with its new process", lambda: up.told["brokers"][0]["pid"] != killed)
    assert up.told["brokers"][0]["port"] == ready["brokers"][0]["port"]
    assert "broker 1 ended with exit code -9, restarting" in up.log.read_text()
    produce(up, "t", b"three")

    children = up.children()
    assert len(children) == 4
    assert up.stop() == 0
    assert not any(map(is_alive, children)) and not up.ready_file.exists()
    again = start("--no-registry")
    assert consume(again, "t", 3) == {b"one", b"two", b"three"}
    assert again.stop() == 0


@pytest.mark.promise(
    "commands",
    "`penstock up --brokers 3` starts a cluster with its ZooKeeper: processes that die are restarted, it "
    "stops in order, and no process is left when it is killed",
)
def test_no_process_outlives_up_that_was_killed(start: Callable[..., Up]) -> None:
    up = start()
    assert up.ready["registry"].startswith("http://")
    children = up.children()
    assert len(children) == 5
    up.process.kill()
    up.process.wait()
    wait_until("they have ended with it", lambda: not any(map(is_alive, children)))


def refused(tmp_path: Path, *options: str) -> tuple[int, str]:
    command = [
        sys.executable,
        "-m",
        "penstock",
        "up",
        "--brokers",
        "2",
        "--no-registry",
        "--no-connect",
        *options,
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE * 2)
    return done.returncode, done.stderr


@pytest.mark.promise(
    "commands",
    "`penstock up --brokers 3` starts a cluster with its ZooKeeper: processes that die are restarted, it "
    "stops in order, and no process is left when it is killed",
)
def test_what_prevents_a_cluster_is_said(tmp_path: Path) -> None:
    code, said = refused(tmp_path, "--set", "node.id=4")
    assert code == 2 and "--set node.id: each of the 2 brokers has its own" in said
    code, said = refused(tmp_path, "--host", "0.0.0.0")
    assert code == 2 and "every address" in said
    code, said = refused(tmp_path, "--set", "num.partition=2")
    assert code == 1 and said.count("num.partitions") == 1
    (tmp_path / "file").write_text("")
    code, said = refused(tmp_path, "--data", "file/below")
    assert code == 1 and "file" in said and "Traceback" not in said


@pytest.mark.promise(
    "commands",
    "`penstock up --brokers 3` starts a cluster with its ZooKeeper: processes that die are restarted, it "
    "stops in order, and no process is left when it is killed",
)
def test_a_port_in_use_is_said_by_the_broker_that_wanted_it(tmp_path: Path, unused_port: int) -> None:
    code, said = refused(tmp_path, "--port", str(unused_port))
    last = said.splitlines()[-1]
    assert code == 1 and "did not start" in last and "in use" in last, said


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port whose successor is taken."""
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1] - 1
