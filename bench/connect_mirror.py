"""Replication from one broker to another, beside a program that consumes and produces with librdkafka.

Both copy the same topic, exactly once: a task of MirrorSourceConnector copies batches, the program takes each
record from its consumer and gives it to a transactional producer. Processor time is that of the one process.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.process import BrokerProcess, cpu_seconds, scratch
from bench.report import Report, Result
from penstock.client import LATEST, READ_COMMITTED, ClientSettings, Cluster
from tests.connect.mirror.task_process import TaskProcess

TOPIC = "mirrored"
_RECORD = 1024
_PATIENCE_S = 300.0


def measure(report: Report, *, megabytes: int) -> None:
    count = megabytes * (1 << 20) // _RECORD
    with scratch() as here, scratch() as there:
        source, target = BrokerProcess(here), BrokerProcess(there)
        try:
            with _connect(source) as cluster:
                cluster.create_topic(TOPIC, 1)
                cluster.create_topic("mm2-offset-syncs.there.internal", 1)
            with _connect(target) as cluster:
                for name in (f"here.{TOPIC}", "by-hand", "connect-offsets"):
                    cluster.create_topic(name, 1)
            _fill(source, count)
            mirror, mirror_cpu = _mirror(source, target, count)
            program, program_cpu = _consume_and_produce(source, target, count)
        finally:
            source.stop()
            target.stop()
    report.add(
        Result("replication: MirrorSourceConnector, one task", mirror, "MB/s"),
        Result("replication: processor time of the task", mirror_cpu, "s/GB"),
        Result("the same with librdkafka, record by record", program, "MB/s"),
        Result("the same: processor time of the program", program_cpu, "s/GB"),
        Result("replication beside that: processor time", mirror_cpu / program_cpu, "×", at_most=1.0),
    )


def _connect(process: BrokerProcess) -> Cluster:
    return Cluster(ClientSettings.from_kafka({"bootstrap.servers": process.bootstrap}))


def _fill(process: BrokerProcess, count: int) -> None:
    producer = Producer({"bootstrap.servers": process.bootstrap, "linger.ms": 50, "batch.size": 1 << 20})
    value = b"x" * (_RECORD - 16)
    for number in range(count):
        producer.produce(TOPIC, value, b"%016d" % number)
        if number % 1000 == 0:
            producer.poll(0.01)
    if producer.flush(_PATIENCE_S):
        raise RuntimeError("the source topic could not be written")


def _mirror(source: BrokerProcess, target: BrokerProcess, count: int) -> tuple[float, float]:
    """MB/s and seconds of the processor for each GB, from the first committed records on."""
    config = {
        "name": "m",
        "connector.class": "MirrorSourceConnector",
        "task.assigned.partitions": f"{TOPIC}-0",
        "source.cluster.alias": "here",
        "target.cluster.alias": "there",
        "source.cluster.bootstrap.servers": source.bootstrap,
        "target.cluster.bootstrap.servers": target.bootstrap,
    }
    task = TaskProcess(target.bootstrap, "m", config, target.directory / "task.log")
    place = (f"here.{TOPIC}", 0)
    first: tuple[float, float, int] | None = None
    deadline = time.perf_counter() + _PATIENCE_S
    try:
        with _connect(target) as cluster:
            while time.perf_counter() < deadline:
                there = cluster.list_offsets({place: LATEST}, READ_COMMITTED)[place] or 0
                now, used = time.perf_counter(), cpu_seconds(task.process.pid)
                if first is None and there:
                    first = now, used, there
                if first is not None and there >= count:
                    megabytes = (there - first[2]) * _RECORD / 1e6
                    if megabytes <= 0:
                        raise RuntimeError("too few records to measure: raise megabytes")
                    return megabytes / (now - first[0]), (used - first[1]) / megabytes * 1000
                time.sleep(0.02)
    finally:
        task.kill()
    raise RuntimeError(f"not replicated in {_PATIENCE_S:g} s: {(target.directory / 'task.log').read_text()}")


def _consume_and_produce(source: BrokerProcess, target: BrokerProcess, count: int) -> tuple[float, float]:
    consumer = Consumer({"bootstrap.servers": source.bootstrap, "group.id": "by-hand"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    producer = Producer(
        {"bootstrap.servers": target.bootstrap, "transactional.id": "by-hand", "linger.ms": 5}
    )
    producer.init_transactions(60)
    begun, used = time.perf_counter(), time.process_time()
    done = 0
    while done < count:
        producer.begin_transaction()
        taken = 0
        while taken < 16_000 and done < count:
            for message in consumer.consume(1000, 1.0):
                if message.error() is None:
                    producer.produce("by-hand", message.value(), message.key(), message.partition() or 0)
                    taken += 1
                    done += 1
            producer.poll(0)
        producer.commit_transaction(60)
    megabytes = done * _RECORD / 1e6
    seconds, used = time.perf_counter() - begun, time.process_time() - used
    consumer.close()
    return megabytes / seconds, used / megabytes * 1000
