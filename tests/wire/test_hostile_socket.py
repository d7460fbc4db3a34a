"""Hostile bytes against a real broker process: they cost that client its connection, others nothing.

One broker for the whole file, so that what one test does to it would show in the next.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message, decode_response, encode_request

TOPIC = "hostile"
# An idle broker has about 40 MiB; whatever a test does may cost this much on top, and no more.
MAX_GROWTH = 48 << 20


class BrokerProcess:
    def __init__(self, directory: Path, *more: str) -> None:
        ready = directory / "ready.json"
        settings = [
            "listeners=PLAINTEXT://127.0.0.1:0",
            f"log.dirs={directory / 'data'}",
            "queued.max.request.bytes=33554432",
            "socket.request.max.bytes=16777216",
            *more,
        ]
        arguments = [part for setting in settings for part in ("--set", setting)]
        self._errors = (directory / "stderr").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock.broker", *arguments, "--ready-file", str(ready)],
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            # Large buffers return to the system when they are freed: what is resident is what the broker
            # holds, and not what glibc keeps for later, which is anything up to all that was ever held.
            env={**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)},
        )
        while not ready.exists():
            assert self.process.poll() is None, self.log()
            time.sleep(0.01)
        self.port: int = json.loads(ready.read_text())["brokers"][0]["port"]

    def log(self) -> str:
        self._errors.flush()
        return Path(self._errors.name).read_text()

    def resident(self) -> int:
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def client(self) -> WireClient:
        return WireClient(self.port, timeout=20)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=20)
        self._errors.close()
        return code


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    started = BrokerProcess(tmp_path_factory.mktemp("hostile"))
    try:
        yield started
    finally:
        assert started.stop() == 0


@pytest.fixture(autouse=True)
def others_do_not_notice(broker: BrokerProcess) -> Iterator[None]:
    """A bystander with a connection of its own is served before, during and after."""
    with broker.client() as bystander:
        served(bystander)
        yield
        served(bystander)
    assert broker.process.poll() is None
    assert "Traceback" not in broker.log()


def served(client: WireClient) -> None:
    request = Message(topics=[Message(name=TOPIC)], allow_auto_topic_creation=True)
    answer = client.request(ApiKey.METADATA, 8, request)
    assert [topic.error_code for topic in answer.topics] == [0]


def closed(connection: socket.socket) -> bool:
    """Whether the broker ends the connection, whatever it still had to say."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def batch(value: bytes = b"v", count: int = 1, codec: int = 0) -> bytearray:
    now = time.time_ns() // 1_000_000
    return bytearray(build_batch([Record(i, now, None, value, (), i, 0) for i in range(count)], codec=codec))


def recomputed(data: bytearray) -> bytearray:
    from crc32c import crc32c

    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return data


def produce_frame(records: bytes, acks: int = 1, correlation_id: int = 7) -> bytes:
    topic = TOPIC.encode()
    body = struct.pack(">hhih", 0, 7, correlation_id, -1) + struct.pack(">hhii", -1, acks, 1000, 1)
    body += struct.pack(">h", len(topic)) + topic + struct.pack(">iii", 1, 0, len(records)) + records
    return struct.pack(">i", len(body)) + body


def receive(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    return connection.recv(size, socket.MSG_WAITALL)


def produce(connection: socket.socket, records: bytes) -> int:
    """The error code of the one partition."""
    connection.sendall(produce_frame(records))
    return int(struct.unpack_from(">h", receive(connection), 4 + 4 + 2 + len(TOPIC) + 4 + 4)[0])


KNOWN = [(0, 7), (0, 12), (1, 12), (2, 7), (3, 12), (19, 7), (20, 6), (32, 4), (35, 4), (44, 1), (75, 0)]
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 16 * 2**20 + 1, 2**31 - 1])
def test_a_length_that_cannot_be_costs_the_connection(broker: BrokerProcess, length: int) -> None:
    with broker.connect() as connection:
        connection.sendall(struct.pack(">i", length) + b"x" * 100)
        assert closed(connection)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0",
        struct.pack(">hhi", 0, 7, 1),
        struct.pack(">hhih", 3, 8, 1, 32767),
        struct.pack(">hhih", 3, 8, 1, -1) + struct.pack(">i", 2**31 - 1),
        struct.pack(">hhih", 3, 12, 1, -1) + b"\0\xff\xff\xff\xff\x7f",
        struct.pack(">hhih", 0, 7, 1, -1) + struct.pack(">hhii", -1, 1, 1000, 2**31 - 1),
        struct.pack(">hhih", 1, 12, 1, -1) + b"\0" + b"\xff" * 64,
    ],
    ids=["empty", "byte", "no header", "client id", "array", "compact array", "produce", "fetch"],
)
def test_a_truncated_request_costs_the_connection(broker: BrokerProcess, payload: bytes) -> None:
    with broker.connect() as connection:
        connection.sendall(struct.pack(">i", len(payload)) + payload)
        assert closed(connection)


@pytest.mark.parametrize(("key", "version"), [(9999, 0), (-1, 0), (0, 99), (3, -1), (1, 3), (7, 0)])
def test_an_api_or_version_that_is_not_served_costs_the_connection(
    broker: BrokerProcess, key: int, version: int
) -> None:
    with broker.connect() as connection:
        connection.sendall(struct.pack(">ihhih", 10, key, version, 1, -1))
        assert closed(connection)


def test_an_unknown_version_of_api_versions_is_answered_in_the_shape_of_version_zero(
    broker: BrokerProcess,
) -> None:
    with broker.connect() as connection:
        connection.sendall(struct.pack(">ihhih", 30, 18, 999, 55, -1) + b"\x7f" * 20)
        answer = receive(connection)
        assert struct.unpack_from(">i", answer)[0] == 55
        message = decode_response(ApiKey.API_VERSIONS, 0, answer, 4)
        assert message.error_code == 35
        assert [(row.api_key, row.min_version) for row in message.api_keys] == [(18, 0)]
        connection.sendall(API_VERSIONS)
        assert receive(connection)[:6] == struct.pack(">ih", 1, 0)


def test_random_bytes_never_reach_others(broker: BrokerProcess) -> None:
    source = random.Random(20)
    for _ in range(200):
        with broker.connect() as connection:
            payload = source.randbytes(source.randrange(1, 400))
            if source.random() < 0.5:
                # A frame that is whole, and a header that is known.
                key, version = source.choice(KNOWN)
                payload = struct.pack(">hhih", key, version, 1, -1) + payload
                payload = struct.pack(">i", len(payload)) + payload
            connection.sendall(payload)
            connection.shutdown(socket.SHUT_WR)
            assert closed(connection)


def test_wrong_records_get_a_wire_error_and_the_connection_lives(broker: BrokerProcess) -> None:
    with broker.connect() as connection:
        wrong_crc = batch()
        wrong_crc[-1] ^= 1
        assert produce(connection, wrong_crc) == 2
        wrong_count = batch(count=3)
        struct.pack_into(">i", wrong_count, 57, 2)
        assert produce(connection, recomputed(wrong_count)) == 87
        old = batch()
        old[16] = 1
        assert produce(connection, old) == 43
        assert produce(connection, batch() + batch()) == 87
        assert produce(connection, b"") == 87
        assert produce(connection, batch()[:-5]) in (2, 87)
        assert produce(connection, batch(b"x" * (2 << 20))) == 10
        assert produce(connection, batch()) == 0


def test_a_compression_bomb_is_refused_in_bounded_memory(broker: BrokerProcess) -> None:
    before = broker.resident()
    # 200 KiB that unfold to 200 MiB.
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(1 << 20)
    bomb = b"".join([*(packer.compress(block) for _ in range(200)), packer.flush()])
    data = batch(codec=1)[:61] + bomb
    struct.pack_into(">i", data, 8, len(data) - 12)
    with broker.connect() as connection:
        assert produce(connection, recomputed(bytearray(data))) in (2, 87)
    assert broker.resident() - before < MAX_GROWTH


def test_acks_zero_is_not_answered_and_its_errors_close_the_connection(broker: BrokerProcess) -> None:
    with broker.connect() as connection:
        connection.sendall(produce_frame(batch(), acks=0) + API_VERSIONS)
        assert receive(connection)[:4] == struct.pack(">i", 1)
        wrong = batch()
        wrong[-1] ^= 1
        connection.sendall(produce_frame(wrong, acks=0))
        assert closed(connection)


def test_acks_that_do_not_exist_are_refused(broker: BrokerProcess) -> None:
    with broker.connect() as connection:
        connection.sendall(produce_frame(batch(), acks=2))
        assert struct.unpack_from(">h", receive(connection), 4 + 4 + 2 + len(TOPIC) + 4 + 4)[0] == 21


def test_answers_come_in_the_order_of_the_requests_also_behind_a_long_poll(broker: BrokerProcess) -> None:
    name = TOPIC.encode()
    with broker.connect() as connection, broker.connect() as producer:
        assert produce(producer, batch()) == 0
        end = struct.unpack_from(">q", _latest(broker))[0]
        fetch = struct.pack(">hhih", 1, 4, 100, -1) + struct.pack(">iiiibi", -1, 20_000, 1, 1 << 20, 0, 1)
        fetch += struct.pack(">h", len(name)) + name + struct.pack(">iiqi", 1, 0, end, 1 << 20)
        others = [struct.pack(">ihhih", 10, 18, 0, 101 + i, -1) for i in range(20)]
        connection.sendall(struct.pack(">i", len(fetch)) + fetch + b"".join(others))
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(20)
        assert produce(producer, batch()) == 0
        order = [struct.unpack_from(">i", receive(connection))[0] for _ in range(21)]
        assert order == list(range(100, 121))


def _latest(broker: BrokerProcess) -> bytes:
    with broker.client() as client:
        partition = Message(partition_index=0, timestamp=-1, current_leader_epoch=-1)
        topics = [Message(name=TOPIC, partitions=[partition])]
        request = Message(replica_id=-1, isolation_level=0, topics=topics)
        answer = client.request(ApiKey.LIST_OFFSETS, 5, request)
        return struct.pack(">q", answer.topics[0].partitions[0].offset)


def test_a_request_byte_by_byte_is_a_request(broker: BrokerProcess) -> None:
    with broker.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for frame in (API_VERSIONS, API_VERSIONS + API_VERSIONS[:2]):
            for byte in frame:
                connection.sendall(bytes([byte]))
            assert receive(connection)[:4] == struct.pack(">i", 1)
        connection.sendall(API_VERSIONS[2:])
        assert receive(connection)[:4] == struct.pack(">i", 1)


def test_a_large_request_in_pieces_is_a_request(broker: BrokerProcess) -> None:
    with broker.connect() as connection:
        frame = produce_frame(batch(b"x" * 900_000))
        for start in range(0, len(frame), 50_000):
            connection.sendall(frame[start : start + 50_000])
        assert struct.unpack_from(">h", receive(connection), 4 + 4 + 2 + len(TOPIC) + 4 + 4)[0] == 0


def test_frames_that_are_announced_and_not_sent_take_no_memory(broker: BrokerProcess) -> None:
    before = broker.resident()
    connections = [broker.connect() for _ in range(300)]
    try:
        for connection in connections:
            connection.sendall(struct.pack(">i", 16 << 20) + b"\0" * 1000)
        with broker.client() as client:
            served(client)
        assert broker.resident() - before < MAX_GROWTH
    finally:
        for connection in connections:
            connection.close()


def test_frames_that_arrive_together_and_exceed_the_budget_are_all_handled(broker: BrokerProcess) -> None:
    """Twelve requests of 8 MiB under a budget of 32 MiB: each waits for its turn, none forever."""
    before = broker.resident()
    frame = produce_frame(batch(b"x" * (8 << 20)))
    connections = [broker.connect() for _ in range(12)]
    try:
        # In small pieces in turn, so that no frame is complete before all of them are begun.
        unsent = dict.fromkeys(connections, memoryview(frame))
        for connection in connections:
            connection.setblocking(False)
        deadline = time.monotonic() + 20
        while any(unsent.values()) and time.monotonic() < deadline:
            for connection, rest in unsent.items():
                try:
                    unsent[connection] = rest[connection.send(rest[: 64 << 10]) :] if rest else rest
                except BlockingIOError:
                    continue
        for connection in connections:
            connection.settimeout(20)
            # MESSAGE_TOO_LARGE: read and looked at, which is all that matters here.
            assert struct.unpack_from(">h", receive(connection), 4 + 4 + 2 + len(TOPIC) + 4 + 4)[0] == 10
        assert broker.resident() - before < MAX_GROWTH
    finally:
        for connection in connections:
            connection.close()


def test_a_client_that_never_reads_is_not_read_from(broker: BrokerProcess) -> None:
    before = broker.resident()
    body = encode_request(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        Message(
            resources=[Message(resource_type=4, resource_name="1", configuration_keys=None)],
            include_synonyms=True,
            include_documentation=True,
        ),
    )
    request = struct.pack(">hhih", 32, 4, 1, -1) + b"\0" + body
    frames = (struct.pack(">i", len(request)) + request) * 1000
    connections = [broker.connect() for _ in range(5)]
    try:
        for connection in connections:
            connection.settimeout(0.5)
            with pytest.raises(TimeoutError):
                while True:
                    connection.sendall(frames)
        with broker.client() as client:
            served(client)
        assert broker.resident() - before < MAX_GROWTH
    finally:
        for connection in connections:
            connection.close()


def test_ten_thousand_idle_connections_cost_little_and_others_are_served(broker: BrokerProcess) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(10_000, hard // 2 - 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    before = broker.resident()
    connections: list[socket.socket] = []
    try:
        for _ in range(count):
            connections.append(broker.connect())
        with broker.client() as client:
            served(client)
        connections[-1].sendall(API_VERSIONS)
        assert receive(connections[-1])[:4] == struct.pack(">i", 1)
        assert broker.resident() - before < 128 << 20
    finally:
        for connection in connections:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
