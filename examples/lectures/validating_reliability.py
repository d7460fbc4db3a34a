"""Validating reliability: six checks of a cluster and its clients, as lectures ask for before production.

Starts three brokers of its own (`penstock up --brokers 3`), and writes with acks=all while it breaks
something. A check passes if everything that was acknowledged can be read, and nothing is there twice. Takes
about a minute.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

SETTINGS = {
    "zookeeper.session.timeout.ms": 3000,  # a broker that is away so long is dead
    "replica.lag.time.max.ms": 3000,  # a follower that is behind so long is not in sync
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
}


class Cluster:
    """`penstock up` starts a broker that ends again; the ready file says which process it is then."""

    def __init__(self, directory: Path) -> None:
        self.ready_file = directory / "ready.json"
        words = [f"--set={name}={value}" for name, value in SETTINGS.items()]
        command = [
            sys.executable,
            "-m",
            "penstock",
            "up",
            "--brokers=3",
            "--port=0",
            "--no-registry",
            "--no-connect",
        ]
        command += ["--json", f"--data={directory / 'data'}", f"--ready-file={self.ready_file}", *words]
        self.log = (directory / "log").open("w")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log)
        ready = json.loads(self.process.stdout.readline())
        # That connections break is what is tried here: the clients need not log it.
        self.client = {"bootstrap.servers": ready["bootstrap"], "log_level": 0}
        self.admin = AdminClient(self.client)

    def broker(self, broker: int) -> dict:
        brokers = json.loads(self.ready_file.read_text())["brokers"]
        return next(each for each in brokers if each["id"] == broker)

    def pid(self, broker: int) -> int:
        return self.broker(broker)["pid"]

    def client_of(self, broker: int) -> dict:
        """Settings of a client that asks this broker, while others accept connections and do not answer."""
        address = self.broker(broker)
        return {**self.client, "bootstrap.servers": f"{address['host']}:{address['port']}"}

    def signal(self, broker: int, number: signal.Signals) -> None:
        os.kill(self.pid(broker), number)

    def partition(self, topic: str, ask: int | None = None) -> PartitionMetadata:
        admin = AdminClient(self.client_of(ask)) if ask else self.admin
        return admin.list_topics(topic, timeout=5).topics[topic].partitions[0]

    def leader(self, topic: str, ask: int | None = None) -> int:
        return self.partition(topic, ask).leader

    def in_sync(self, topic: str, ask: int | None = None) -> set[int]:
        return set(self.partition(topic, ask).isrs)

    def controller(self, ask: int) -> int:
        admin = AdminClient(self.client_of(ask))
        controller = admin.describe_cluster(request_timeout=5).result(6).controller
        return controller.id if controller else -1

    def create(self, topic: str, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(topic, 1, replica_assignment=[[1, 2, 3]], config=settings)  # broker 1 leads
        self.admin.create_topics([new])[topic].result(30)
        until(f"{topic} has a leader", lambda: self.leader(topic) > 0)

    def close(self) -> None:
        for broker in (1, 2, 3):
            with contextlib.suppress(ProcessLookupError):
                self.signal(broker, signal.SIGCONT)  # a process that is stopped does not end
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        self.log.close()


def until(what: str, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 90
    while True:
        try:
            if condition():
                return
        except (KafkaException, TimeoutError):
            pass  # nobody answers just now
        if time.monotonic() > end:
            raise SystemExit(f"FAILED: did not happen within 90 s: {what}")
        time.sleep(0.1)


class Writer:
    """Writes numbers until it is closed, and keeps those that were acknowledged."""

    def __init__(self, cluster: Cluster, topic: str, numbers: count) -> None:
        self.acknowledged: set[int] = set()
        self._open = True
        self._producer = Producer({**cluster.client, "acks": "all", "enable.idempotence": True})
        self._thread = threading.Thread(target=self._run, args=(topic, numbers), daemon=True)
        self._thread.start()

    def _run(self, topic: str, numbers: count) -> None:
        while self._open:
            number = next(numbers)
            self._producer.produce(
                topic,
                str(number),
                on_delivery=lambda error, _, n=number: error or self.acknowledged.add(n),
            )
            self._producer.poll(0.01)
        self._producer.flush(60)

    def more(self, records: int = 50) -> None:
        """Returns when so many more were acknowledged: writing goes on."""
        wanted = len(self.acknowledged) + records
        until(f"{wanted} records are acknowledged", lambda: len(self.acknowledged) >= wanted)

    def close(self) -> set[int]:
        self._open = False
        self._thread.join()
        return self.acknowledged


def read_all(cluster: Cluster, topic: str) -> list[int]:
    consumer = Consumer({**cluster.client, "group.id": "check"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    end = 0
    found: list[int] = []

    def end_is_known() -> bool:
        nonlocal end
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        return True

    def all_are_read() -> bool:
        found.extend(int(message.value()) for message in consumer.consume(1000, 0.5) if not message.error())
        return len(found) >= end

    until(f"the leader of {topic} reports its end", end_is_known)
    until(f"{end} records of {topic} are read", all_are_read)
    consumer.close()
    return found


def while_writing(cluster: Cluster, name: str, disturb: Callable[[str, Writer], None]) -> None:
    topic = name.replace(" ", "-")
    cluster.create(topic, min_insync_replicas="2")
    writer = Writer(cluster, topic, count())
    writer.more()
    disturb(topic, writer)
    writer.more()
    acknowledged, found = writer.close(), read_all(cluster, topic)
    if not acknowledged <= set(found) or len(found) != len(set(found)):
        raise SystemExit(f"FAILED: {name}: records are missing, or there twice")
    print(f"{name}: all acknowledged records are there, once", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(Path(directory))
        try:
            checks(cluster)
        finally:
            cluster.close()


def checks(cluster: Cluster) -> None:
    def leader_election(topic: str, writer: Writer) -> None:
        old = cluster.leader(topic)
        cluster.signal(old, signal.SIGKILL)
        until("another broker leads", lambda: cluster.leader(topic) not in (old, -1))

    def controller_election(topic: str, writer: Writer) -> None:
        old = cluster.controller(ask=1)
        other = 1 if old != 1 else 2
        # Killed at once it would be started again before its session ends, and could be elected itself.
        cluster.signal(old, signal.SIGSTOP)
        until("another broker is the controller", lambda: cluster.controller(ask=other) not in (old, -1))
        cluster.signal(old, signal.SIGKILL)

    def rolling_restart(topic: str, writer: Writer) -> None:
        for broker in (1, 2, 3):
            until("all are in sync", lambda: cluster.in_sync(topic) == {1, 2, 3})
            old = cluster.pid(broker)
            cluster.signal(broker, signal.SIGTERM)
            until("the broker is back", lambda broker=broker, old=old: cluster.pid(broker) != old)
            writer.more()

    def lost_connection(topic: str, writer: Writer) -> None:
        leader = cluster.leader(topic)
        cluster.signal(leader, signal.SIGSTOP)  # nothing is answered; connections stay open
        time.sleep(1)
        cluster.signal(leader, signal.SIGCONT)

    def settle() -> None:
        until("all brokers are in sync", lambda: cluster.in_sync("leader-election") == {1, 2, 3})

    while_writing(cluster, "leader election", leader_election)
    settle()
    while_writing(cluster, "controller election", controller_election)
    settle()
    while_writing(cluster, "rolling restart", rolling_restart)
    settle()
    while_writing(cluster, "lost connection", lost_connection)
    settle()
    restarted_clients(cluster)
    unclean_election(cluster)


def restarted_clients(cluster: Cluster) -> None:
    """Producers and consumers are replaced one by one; each consumer commits what it has handled."""
    cluster.create("clients", min_insync_replicas="2")
    numbers, acknowledged, handled = count(), set(), []
    for _ in range(3):
        writer = Writer(cluster, "clients", numbers)
        writer.more()
        consumer = Consumer(
            {
                **cluster.client,
                "group.id": "restarted",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["clients"])
        acknowledged |= writer.close()

        def all_are_handled(consumer: Consumer = consumer, wanted: set[int] = acknowledged) -> bool:
            messages = [message for message in consumer.consume(10, 0.5) if not message.error()]
            handled.extend(int(message.value()) for message in messages)
            if messages:
                consumer.commit(messages[-1], asynchronous=False)
            return wanted <= set(handled)

        until("all acknowledged records are handled", all_are_handled)
        consumer.close()
    if len(handled) != len(set(handled)):
        raise SystemExit("FAILED: restarted clients: records were handled twice")
    print("restarted clients: each acknowledged record was handled once", flush=True)


def unclean_election(cluster: Cluster) -> None:
    """What was written while one replica was in sync is safe, unless an unclean election is allowed."""
    cluster.create("clean")
    cluster.create("unclean", unclean_leader_election_enable="true")
    alone, others = 1, {2, 3}
    for topic in ("clean", "unclean"):
        until("broker 1 leads", lambda topic=topic: cluster.leader(topic) == alone)
    for broker in others:
        cluster.signal(broker, signal.SIGSTOP)
    for topic in ("clean", "unclean"):
        until("one is left in sync", lambda topic=topic: cluster.in_sync(topic, ask=alone) == {alone})
        producer = Producer({**cluster.client_of(alone), "acks": "all"})
        producer.produce(topic, "17")
        if producer.flush(60):
            raise SystemExit(f"FAILED: unclean election: the last replica in sync of {topic} takes no record")
    cluster.signal(alone, signal.SIGSTOP)
    for broker in others:
        cluster.signal(broker, signal.SIGCONT)
    until("one that was not in sync leads", lambda: cluster.leader("unclean", ask=2) in others)
    until("nobody leads", lambda: cluster.leader("clean", ask=2) == -1)
    cluster.signal(alone, signal.SIGCONT)
    until("the last one in sync leads again", lambda: cluster.leader("clean", ask=2) != -1)
    kept, lost = read_all(cluster, "clean"), read_all(cluster, "unclean")
    print(f"unclean election: off, the partition waited and has {kept}; on, it went on and has {lost}")
    if kept != [17]:
        raise SystemExit("FAILED: unclean election: a record is lost though it was off")


if __name__ == "__main__":
    main()
