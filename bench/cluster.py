"""Three brokers over ZooKeeper on this machine: what replication costs, how soon others take over, how fast a
broker that was away catches up.

Throughput stands beside that of one broker without replication in the same rounds: each byte is written three
times, on the same processors. Times after a kill are those that a producer sees.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from confluent_kafka import Producer

from bench import limits, wire
from bench.process import BrokerProcess, broker, scratch
from bench.report import Report, Result
from penstock.ensemble import ServerSpec, ZooKeeperProcess, free_port
from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

BROKERS = 3
SESSION_S = 6.0
MANY_PARTITIONS = 1000
GB = 1e9
WARM_UP_ROUNDS = 1
_RECORD_BYTES, _RECORDS_IN_BATCH = 1024, 1000
_PATIENCE_S = 120.0
_POLL_S = 0.02


class Cluster:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.zookeeper = ZooKeeperProcess(ServerSpec(directory / "zookeeper", free_port()))
        self.brokers: dict[int, BrokerProcess] = {}

    def start(self, number: int) -> BrokerProcess:
        directory = self._directory / f"broker-{number}"
        directory.mkdir(exist_ok=True)
        settings = {
            "node.id": str(number),
            "zookeeper.connect": self.zookeeper.address,
            "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
        }
        self.brokers[number] = BrokerProcess(directory, settings=settings)
        return self.brokers[number]

    @property
    def bootstrap(self) -> str:
        return ",".join(process.bootstrap for process in self.brokers.values() if process.is_running)

    def port(self) -> int:
        return next(process.port for process in self.brokers.values() if process.is_running)

    def metadata(self, topic: str | None = None) -> Message:
        with WireClient(self.port(), timeout=_PATIENCE_S) as client:
            topics = [] if topic is None else [Message(name=topic)]
            return client.request(ApiKey.METADATA, 7, Message(topics=topics, allow_auto_topic_creation=False))

    def leaders(self, topic: str) -> dict[int, int]:
        found = self.metadata(topic).topics[0]
        return {one.partition_index: one.leader_id for one in found.partitions}

    def in_sync(self, topic: str, replicas: int) -> bool:
        found = self.metadata(topic).topics[0]
        return found.error_code == 0 and all(len(one.isr_nodes) == replicas for one in found.partitions)

    def make_topic(self, name: str, assignments: list[list[int]], **configs: str) -> None:
        """`assignments` has the replicas of each partition, the leader first."""
        topic = Message(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                Message(partition_index=index, broker_ids=replicas)
                for index, replicas in enumerate(assignments)
            ],
            configs=[Message(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        request = Message(topics=[topic], timeout_ms=int(_PATIENCE_S * 1000), validate_only=False)
        with WireClient(self.port(), timeout=_PATIENCE_S) as client:
            answer = client.request(ApiKey.CREATE_TOPICS, 5, request).topics[0]
        if answer.error_code:
            raise RuntimeError(f"{name} could not be made: {answer.error_code} {answer.error_message}")
        wait_until(f"{name} is led", lambda: self._is_led(name, len(assignments)))

    def _is_led(self, name: str, partitions: int) -> bool:
        """By everybody who is said to."""
        for process in self.brokers.values():
            if not process.is_running:
                continue
            with WireClient(process.port, timeout=_PATIENCE_S) as client:
                answer = client.request(
                    ApiKey.METADATA, 7, Message(topics=[Message(name=name)], allow_auto_topic_creation=False)
                )
            found = answer.topics[0]
            if found.error_code or len(found.partitions) != partitions or len(answer.brokers) < 1:
                return False
        return True

    def drop_topic(self, name: str) -> None:
        wire.drop_topic(self.port(), name)
        for process in self.brokers.values():
            process.wait_until_deleted(name)


@contextmanager
def running() -> Iterator[Cluster]:
    with scratch() as directory, ExitStack() as stack:
        cluster = Cluster(directory)
        cluster.zookeeper.start()
        stack.callback(cluster.zookeeper.kill)
        for number in range(1, BROKERS + 1):
            cluster.start(number)
        stack.callback(lambda: [process.kill() for process in cluster.brokers.values()])
        wait_until("all brokers are known", lambda: len(cluster.metadata().brokers) == BROKERS)
        yield cluster


def wait_until(what: str, condition: Callable[[], object]) -> None:
    end = time.perf_counter() + _PATIENCE_S
    while not condition():
        if time.perf_counter() > end:
            raise RuntimeError(f"after {_PATIENCE_S:.0f} s still not so: {what}")
        time.sleep(_POLL_S)


def measure(report: Report, *, gigabytes: float, rounds: int, kills: int, away_gigabytes: float) -> None:
    with running() as cluster:
        _throughput(report, cluster, gigabytes, rounds)
        _catch_up(report, cluster, away_gigabytes)
        _failover(report, cluster, kills)
        _many_partitions(report, cluster)


# throughput


def _throughput(report: Report, cluster: Cluster, gigabytes: float, rounds: int) -> None:
    batch = wire.batch(_RECORDS_IN_BATCH, _RECORD_BYTES)
    alone: list[float] = []
    replicated: list[float] = []
    cpu: list[float] = []
    with broker() as single:
        for number in range(rounds + WARM_UP_ROUNDS):
            wire.make_topic(single.port, "load", BROKERS)
            one = _produce(dict.fromkeys(range(BROKERS), single.port), batch.data, gigabytes, acks=1)
            wire.drop_topic(single.port, "load")
            single.wait_until_deleted("load")
            ids = sorted(cluster.brokers)
            cluster.make_topic("load", [ids[n:] + ids[:n] for n in range(BROKERS)], file_delete_delay_ms="0")
            ports = {index: cluster.brokers[leader].port for index, leader in cluster.leaders("load").items()}
            before = sum(process.cpu_seconds() for process in cluster.brokers.values())
            all_of_them = _produce(ports, batch.data, gigabytes, acks=-1)
            used = sum(process.cpu_seconds() for process in cluster.brokers.values()) - before
            cluster.drop_topic("load")
            if number >= WARM_UP_ROUNDS:
                alone.append(one)
                replicated.append(all_of_them)
                cpu.append(used / gigabytes)
    ratios = [three / one for one, three in zip(alone, replicated)]
    report.add(
        Result("one broker, acks=1", median(alone), "GB/s", note=_range(alone)),
        Result(
            "three brokers, three replicas, acks=all", median(replicated), "GB/s", note=_range(replicated)
        ),
        Result("three replicas, acks=all / one broker", median(ratios), at_least=0.25, note=_range(ratios)),
        Result("CPU of all three brokers", median(cpu), "s/GB"),
    )


def _range(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def _produce(ports: dict[int, int], data: bytes, gigabytes: float, acks: int) -> float:
    """A connection to the leader of each partition; GB/s of all of them together."""
    requests = {index: wire.produce_request("load", index, data, acks) for index in ports}
    repeat = max(2, round(gigabytes * GB / len(requests[0]) / len(ports)))
    barrier = threading.Barrier(len(ports) + 1)
    failures: list[Exception] = []

    def push(index: int, port: int) -> None:
        try:
            with wire.connect(port) as connection:
                answer_bytes = 4 + len(wire.round_trip(connection, requests[index]))
                barrier.wait(_PATIENCE_S)
                wire.push(connection, [requests[index]], repeat - 1, answer_bytes)
        except (OSError, threading.BrokenBarrierError) as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=push, args=item) for item in ports.items()]
    for thread in threads:
        thread.start()
    barrier.wait(_PATIENCE_S)
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    if failures:
        raise failures[0]
    for index, port in ports.items():
        if (there := wire.end_offsets(port, "load", len(ports))[index]) != repeat * _RECORDS_IN_BATCH:
            raise RuntimeError(f"partition {index} ends at {there}, not {repeat * _RECORDS_IN_BATCH}")
    return sum(len(one) for one in requests.values()) * (repeat - 1) / GB / seconds


# a broker that was away


def _catch_up(report: Report, cluster: Cluster, gigabytes: float) -> None:
    ids = sorted(cluster.brokers)
    leader, follower = ids[0], ids[-1]
    cluster.make_topic("away", [[leader, follower]], file_delete_delay_ms="0")
    cluster.brokers[follower].stop()
    batch = wire.batch(_RECORDS_IN_BATCH, _RECORD_BYTES)
    request = wire.produce_request("away", 0, batch.data)
    repeat = round(gigabytes * GB / len(batch.data))
    with wire.connect(cluster.brokers[leader].port) as connection:
        answer_bytes = 4 + len(wire.round_trip(connection, request))
        wire.push(connection, [request], repeat - 1, answer_bytes)
    with scratch() as directory:
        file = directory / "limit"
        with file.open("wb") as out:
            for _ in range(repeat):
                out.write(batch.data)
        total = file.stat().st_size
        limit = total / GB / median(limits.seconds_out(file, total) for _ in range(3))
    data = cluster.brokers[follower].directory / "data" / "away-0"
    samples: list[tuple[float, int]] = []
    done = threading.Event()

    def sample() -> None:
        while not done.is_set():
            try:
                size = sum(one.stat().st_size for one in data.glob("*.log"))
            except OSError:
                size = 0
            samples.append((time.perf_counter(), size))
            if size >= total:
                return
            done.wait(0.005)

    watcher = threading.Thread(target=sample)
    watcher.start()
    cluster.start(follower)
    watcher.join(_PATIENCE_S)
    done.set()
    at_rest = [moment for moment, size in samples if size == samples[0][1]]
    seconds = samples[-1][0] - at_rest[-1]
    wait_until("the follower is in sync", lambda: cluster.in_sync("away", 2))
    rate = (samples[-1][1] - samples[0][1]) / GB / seconds
    report.add(
        Result("fetch limit: file to socket by sendfile", limit, "GB/s"),
        Result(f"a follower that was away for {gigabytes:g} GB catches up at", rate, "GB/s"),
        Result("catching up / fetch limit", rate / limit, at_least=0.5),
    )
    cluster.drop_topic("away")


# who takes over


def _failover(report: Report, cluster: Cluster, kills: int) -> None:
    ids = sorted(cluster.brokers)
    cluster.make_topic("failover", [ids], min_insync_replicas="2")
    seconds = []
    for _ in range(kills):
        wait_until("all are in sync", lambda: cluster.in_sync("failover", BROKERS))
        seconds.append(_seconds_without(cluster))
    report.add(
        Result(
            f"kill -9 of a leader to the next acknowledged record, session {SESSION_S:g} s",
            max(seconds),
            "s",
            at_most=SESSION_S + 1,
            note=f"the longest of {_range(seconds)}",
        )
    )


def _seconds_without(cluster: Cluster) -> float:
    """From the kill to the acknowledgement of a record that was sent after it."""
    acknowledged: list[tuple[int, float]] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            # By default librdkafka asks who leads only as often as it tries to reach the dead broker again,
            # which is up to ten seconds.
            "topic.metadata.refresh.interval.ms": 250,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )

    def delivered(error: object, message: object, number: int) -> None:
        if error is None:
            acknowledged.append((number, time.perf_counter()))

    def send(number: int) -> None:
        producer.produce(
            "failover", b"x" * 100, on_delivery=lambda error, message: delivered(error, message, number)
        )
        producer.poll(0.01)

    number = 0
    end = time.perf_counter() + 0.5
    while not acknowledged or time.perf_counter() < end:
        send(number := number + 1)
    victim = cluster.leaders("failover")[0]
    cluster.brokers[victim].kill()
    killed, first_after = time.perf_counter(), number + 1
    while not acknowledged or acknowledged[-1][0] < first_after:
        send(number := number + 1)
        if time.perf_counter() > killed + _PATIENCE_S:
            raise RuntimeError("nothing is acknowledged any more")
    seconds = next(moment for which, moment in acknowledged if which >= first_after) - killed
    producer.flush(_PATIENCE_S)
    cluster.start(victim)
    return seconds


def _many_partitions(report: Report, cluster: Cluster) -> None:
    wait_until("all brokers are known", lambda: len(cluster.metadata().brokers) == BROKERS)
    ids = sorted(cluster.brokers)
    # The controller leads all of them: who takes over has to take its place as well.
    victim = cluster.metadata().controller_id
    others = [one for one in ids if one != victim]
    began = time.perf_counter()
    cluster.make_topic("many", [[victim, *others]] * MANY_PARTITIONS)
    made = time.perf_counter() - began
    wait_until("all are in sync", lambda: cluster.in_sync("many", BROKERS))
    data = wire.batch(1, 100).data
    for index in range(0, MANY_PARTITIONS, 100):
        _write(cluster, "many", dict.fromkeys(range(index, index + 100), victim), data)
    cluster.brokers[victim].kill()
    killed = time.perf_counter()
    left = set(range(MANY_PARTITIONS))
    while left:
        leaders = {index: leader for index, leader in cluster.leaders("many").items() if index in left}
        left -= _write(
            cluster, "many", {index: leader for index, leader in leaders.items() if leader in others}, data
        )
        if time.perf_counter() > killed + _PATIENCE_S:
            raise RuntimeError(f"{len(left)} partitions have no leader")
        time.sleep(_POLL_S)
    seconds = time.perf_counter() - killed
    cluster.start(victim)
    report.add(
        Result(f"{MANY_PARTITIONS} partitions with three replicas are made in", made, "s"),
        Result(
            f"{MANY_PARTITIONS} partitions fail over and take acks=all, beyond the session",
            max(seconds - SESSION_S, 0.0),
            "s",
            at_most=5.0,
            note=f"{seconds:.1f} s after kill -9 of their leader, which was the controller",
        ),
    )


def _write(cluster: Cluster, topic: str, leaders: dict[int, int], data: bytes) -> set[int]:
    """A record to each of these partitions with acks=all; those where it is acknowledged."""
    written: set[int] = set()
    by_leader: dict[int, list[int]] = {}
    for index, leader in leaders.items():
        by_leader.setdefault(leader, []).append(index)
    for leader, indexes in by_leader.items():
        topic_data = Message(
            name=topic, partition_data=[Message(index=index, records=data) for index in indexes]
        )
        request = Message(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[topic_data])
        with WireClient(cluster.brokers[leader].port, timeout=_PATIENCE_S) as client:
            answer = client.request(ApiKey.PRODUCE, wire.PRODUCE_VERSION, request)
        written.update(
            one.index
            for found in answer.responses
            for one in found.partition_responses
            if one.error_code == 0
        )
    return written


def main() -> None:
    """Alone: python -m bench.cluster"""
    measure(
        Report(),
        gigabytes=float(os.environ.get("GIGABYTES", "0.25")),
        rounds=3,
        kills=2,
        away_gigabytes=1.0,
    )


if __name__ == "__main__":
    main()
