"""Groups and transactions: how soon a group settles, how many commits and transactions a second, what groups
weigh, and how long a broker reads a long `__consumer_offsets`.

One partition of each internal topic, so that one shard does all of the work.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import wire
from bench.process import BrokerProcess, broker, scratch
from bench.report import Report, Result
from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message, decode_response, encode_data

JOIN, SYNC, HEARTBEAT, COMMIT, FETCH_OFFSETS = 9, 5, 4, 8, 8
PRODUCE, END_TXN, INIT_PRODUCER_ID = 12, 5, 4
GROUP, TRANSACTION = 0, 1
MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS = 79, 27
LOADING = (14, 15, 16)  # the coordinator is not ready yet
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.enable": "false",  # the million records are to be there when the broker reads them
}
_HEARTBEAT_SECONDS = 0.02
_LONGEST_SECONDS = 30.0


def measure(report: Report, *, quick: bool) -> None:
    with broker(settings=SETTINGS) as process:
        wire.make_topic(process.port, "work", 8)
        ready(process.port, GROUP, "g")
        ready(process.port, TRANSACTION, "t")
        wall, cpu = _settle(process, members=50)
        report.add(
            Result("a group of 50 members settles: broker's time", cpu, "s", at_most=2),
            Result("a group of 50 members settles: by the clock", wall, "s"),
        )
        seconds = 1 if quick else 3
        report.add(Result("offset commits, 8 connections", _commits(process, seconds), "/s", at_least=10_000))
        one, many = _transactions(process, seconds, producers=1), _transactions(process, seconds, producers=8)
        report.add(
            Result("one-record transactions, one producer", one, "/s", at_least=1000),
            Result("one-record transactions, 8 producers", many, "/s"),
        )
    with broker(settings=SETTINGS) as process:
        wire.make_topic(process.port, "work", 3)
        ready(process.port, GROUP, "g")
        idle = process.resident_mib()
        _many_groups(process, 10_000)
        above = process.resident_mib() - idle
        report.add(Result("memory of 10,000 groups of one member", above, "MiB", at_most=150))
    records = 100_000 if quick else 1_000_000
    with scratch() as directory:
        loading, cpu = _loading(directory, records)
        name = f"start with {records:,} commits to read"
        report.add(Result(name, loading, "s", at_most=10, note=f"{cpu:.1f} s of CPU"))


def ready(port: int, kind: int, key: str) -> None:
    """Until the coordinator of `key` is found; the first who asks has its topic made."""
    request = Message(key=key, key_type=kind, coordinator_keys=[key])

    def ask(client: WireClient) -> int:
        code: int = client.request(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code
        return code

    _until_loaded(port, ask)


def _until_loaded(port: int, ask: Callable[[WireClient], int]) -> None:
    deadline = time.perf_counter() + 2 * _LONGEST_SECONDS
    with WireClient(port, timeout=_LONGEST_SECONDS) as client:
        while (code := ask(client)) != 0:
            if code not in LOADING or time.perf_counter() > deadline:
                raise RuntimeError(f"coordinator: error {code}")
            time.sleep(0.002)


# A group that settles


def _consumer_metadata(topic: str) -> bytes:
    subscription = encode_data("consumer_protocol_subscription", 1, Message(topics=[topic]))
    return struct.pack(">h", 1) + subscription


class _Member:
    """A member of a classic group: joins, takes its assignment, and joins again when told to."""

    def __init__(self, port: int, group: str) -> None:
        self.connection = wire.connect(port)
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.settled = False
        self.idle_since = 0.0
        self._buffer = bytearray()
        self._waiting_for: tuple[ApiKey, int] | None = None
        self.join()

    def _send(self, api: ApiKey, version: int, **fields: Any) -> None:
        message = Message(group_id=self.group, member_id=self.member_id, group_instance_id=None, **fields)
        self._waiting_for = (api, version)
        self.connection.sendall(wire.frame(api, version, message))

    def join(self) -> None:
        self.settled = False
        protocols = [Message(name="range", metadata=_consumer_metadata("work"))]
        self._send(
            ApiKey.JOIN_GROUP,
            JOIN,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=protocols,
        )

    def _sync(self, assignments: list[Message]) -> None:
        self._send(
            ApiKey.SYNC_GROUP,
            SYNC,
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )

    def heartbeat(self, now: float) -> None:
        """As often as a client with little patience would."""
        if self._waiting_for is None and now - self.idle_since >= _HEARTBEAT_SECONDS:
            self._send(ApiKey.HEARTBEAT, HEARTBEAT, generation_id=self.generation)

    def receive(self, now: float) -> None:
        data = self.connection.recv(1 << 20)
        if not data or self._waiting_for is None:
            raise ConnectionError("the broker closed the connection")
        self._buffer += data
        if len(self._buffer) < 4 or len(self._buffer) < 4 + int.from_bytes(self._buffer[:4], "big"):
            return
        api, version = self._waiting_for
        answer = decode_response(api, version, bytes(self._buffer), 9)
        self._buffer.clear()
        self._waiting_for, self.idle_since = None, now
        code = answer.error_code
        if api == ApiKey.JOIN_GROUP and code in (0, MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
            if code == MEMBER_ID_REQUIRED:
                self.join()
                return
            self.generation = answer.generation_id
            # What an assignment says is the members' own business: the broker hands it on.
            self._sync([Message(member_id=m.member_id, assignment=bytes(24)) for m in answer.members])
        elif code == REBALANCE_IN_PROGRESS:
            self.join()
        elif code:
            raise RuntimeError(f"{api.name}: error {code}")
        else:
            self.settled = True


def _settle(process: BrokerProcess, members: int) -> tuple[float, float]:
    """Seconds, and seconds of the broker's CPU, until all members are in one generation."""
    before = process.cpu_seconds()
    start = time.perf_counter()
    group = [_Member(process.port, "settling") for _ in range(members)]
    with selectors.DefaultSelector() as selector:
        for member in group:
            selector.register(member.connection, selectors.EVENT_READ, member)
        while not all(member.settled for member in group) or len({m.generation for m in group}) > 1:
            for key, _ in selector.select(_HEARTBEAT_SECONDS):
                key.data.receive(time.perf_counter())
            now = time.perf_counter()
            if now - start > _LONGEST_SECONDS:
                raise RuntimeError("the group did not settle")
            for member in group:
                if member.settled:
                    member.heartbeat(now)
    wall, cpu = time.perf_counter() - start, process.cpu_seconds() - before
    for member in group:
        member.connection.close()
    return wall, cpu


# Commits


def _commit(
    group: str, partitions: range, offset: int = 1, member: str = "", generation: int = -1
) -> Message:
    committed = [
        Message(
            partition_index=index, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        for index in partitions
    ]
    return Message(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=None,
        topics=[Message(name="work", partitions=committed)],
    )


def _commits(process: BrokerProcess, seconds: float, connections: int = 8, depth: int = 64) -> float:
    opened = [wire.connect(process.port) for _ in range(connections)]
    try:
        requests = [
            wire.frame(
                ApiKey.OFFSET_COMMIT, COMMIT, _commit(f"commits-{number}", range(number % 8, number % 8 + 1))
            )
            for number in range(connections)
        ]
        answers = [wire.round_trip(connection, request) for connection, request in zip(opened, requests)]
        for answer in answers:
            code = decode_response(ApiKey.OFFSET_COMMIT, COMMIT, answer, 5).topics[0].partitions[0].error_code
            if code:
                raise RuntimeError(f"OffsetCommit: error {code}")
        rounds, took = wire.pipelined(
            opened, [request * depth for request in requests], (4 + len(answers[0])) * depth, seconds
        )
    finally:
        for connection in opened:
            connection.close()
    return rounds * depth * connections / took


# Transactions


class _Producer:
    """A transactional producer (transaction version 2, KIP-890) that always has one request under way."""

    def __init__(self, port: int, name: str, partition: int) -> None:
        self.name = name
        self.partition = partition
        self.done = 0
        with WireClient(port) as client:
            request = Message(
                transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
            )
            answer = client.request(ApiKey.INIT_PRODUCER_ID, INIT_PRODUCER_ID, request)
        if answer.error_code:
            raise RuntimeError(f"InitProducerId: error {answer.error_code}")
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._record = [Record(0, int(time.time() * 1000), None, bytes(100))]

    def transact(self, connection: socket.socket) -> Iterator[None]:
        """Sends one request; to be resumed when its answer is there to be read."""
        while True:
            batch = build_batch(
                self._record,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=0,
                transactional=True,
            )
            topic = Message(name="work", partition_data=[Message(index=self.partition, records=batch)])
            produce = Message(transactional_id=self.name, acks=-1, timeout_ms=30_000, topic_data=[topic])
            while True:
                connection.sendall(wire.frame(ApiKey.PRODUCE, PRODUCE, produce))
                yield
                answer = decode_response(ApiKey.PRODUCE, PRODUCE, _read(connection), 5)
                if not _again(answer.responses[0].partition_responses[0].error_code):
                    break
            end = Message(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=True,
            )
            while True:
                connection.sendall(wire.frame(ApiKey.END_TXN, END_TXN, end))
                yield
                answer = decode_response(ApiKey.END_TXN, END_TXN, _read(connection), 5)
                if not _again(answer.error_code):
                    break
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.done += 1


def _again(code: int) -> bool:
    """Whether the transaction before is still being written to its partitions (CONCURRENT_TRANSACTIONS)."""
    if code not in (0, 51):
        raise RuntimeError(f"transaction: error {code}")
    return code == 51


def _read(connection: socket.socket) -> bytes:
    return wire.round_trip(connection, b"")


def _transactions(process: BrokerProcess, seconds: float, producers: int) -> float:
    """Transactions of one record, begun and committed, a second; one connection for each producer."""
    started = [_Producer(process.port, f"bench-{producers}-{n}", n % 8) for n in range(producers)]
    connections = [wire.connect(process.port) for _ in started]
    with selectors.DefaultSelector() as selector:
        for producer, connection in zip(started, connections):
            steps = producer.transact(connection)
            next(steps)
            selector.register(connection, selectors.EVENT_READ, steps)
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            for key, _ in selector.select(1):
                next(key.data)
        took = time.perf_counter() - start
    for connection in connections:
        connection.close()
    return sum(producer.done for producer in started) / took


# Many groups


def _many_groups(process: BrokerProcess, count: int, block: int = 500) -> None:
    """Each with a member that has joined, its assignment, and committed offsets of three partitions."""
    metadata = _consumer_metadata("work")
    assignment = bytes(40)
    with wire.connect(process.port) as connection:
        for first in range(0, count, block):
            names = [f"service-{number:05}-consumers" for number in range(first, first + block)]
            joins = [
                Message(
                    group_id=name,
                    session_timeout_ms=1_800_000,
                    rebalance_timeout_ms=60_000,
                    member_id="",
                    group_instance_id="pod-1",  # a static member gets its id at once
                    protocol_type="consumer",
                    protocols=[Message(name="range", metadata=metadata)],
                )
                for name in names
            ]
            joined = _exchange(connection, ApiKey.JOIN_GROUP, JOIN, joins)
            members = [answer.member_id for answer in joined]
            syncs = [
                Message(
                    group_id=name,
                    generation_id=1,
                    member_id=member,
                    group_instance_id="pod-1",
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=[Message(member_id=member, assignment=assignment)],
                )
                for name, member in zip(names, members)
            ]
            _exchange(connection, ApiKey.SYNC_GROUP, SYNC, syncs)
            commits = [_commit(name, range(3), first + 1, member, 1) for name, member in zip(names, members)]
            for message in commits:
                message.group_instance_id = "pod-1"
            _exchange(connection, ApiKey.OFFSET_COMMIT, COMMIT, commits)


def _exchange(connection: socket.socket, api: ApiKey, version: int, messages: list[Message]) -> list[Message]:
    connection.sendall(b"".join(wire.frame(api, version, message) for message in messages))
    answers = [decode_response(api, version, _read(connection), 5) for _ in messages]
    for answer in answers:
        code = answer.topics[0].partitions[0].error_code if api == ApiKey.OFFSET_COMMIT else answer.error_code
        if code:
            raise RuntimeError(f"{api.name}: error {code}")
    return answers


# A long log of commits


def _loading(directory: Path, records: int, groups: int = 500, partitions: int = 20) -> tuple[float, float]:
    """Seconds, and seconds of CPU, from the start of the process until a group's offsets can be fetched."""
    with broker(directory, SETTINGS) as process:
        wire.make_topic(process.port, "work", partitions)
        ready(process.port, GROUP, "g")
        requests = [
            wire.frame(ApiKey.OFFSET_COMMIT, COMMIT, _commit(f"loaded-{number:04}", range(partitions)))
            for number in range(groups)
        ]
        with wire.connect(process.port) as connection:
            answer = wire.round_trip(connection, requests[0])
            wire.push(connection, requests, max(1, records // (groups * partitions)), 4 + len(answer))
        if (there := wire.end_offset(process.port, "__consumer_offsets")) < records:
            raise RuntimeError(f"{there} records in the log, {records} were committed")
    with broker(directory, SETTINGS) as process:
        asked = [Message(group_id="loaded-0007", topics=None)]

        def fetch(client: WireClient) -> int:
            request = Message(groups=asked, require_stable=False)
            (group,) = client.request(ApiKey.OFFSET_FETCH, FETCH_OFFSETS, request).groups
            if not group.error_code and len(group.topics[0].partitions) != partitions:
                raise RuntimeError("not all committed offsets are there")
            code: int = group.error_code
            return code

        _until_loaded(process.port, fetch)
        return time.perf_counter() - process.started, process.cpu_seconds()
