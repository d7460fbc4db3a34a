"""A client that costs next to nothing: requests encoded before the clock starts, answers thrown away.

Real clients spend more than the broker on the same record, so that they would measure themselves.
Every answer is counted by its bytes: all answers to requests of one shape have one size.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from dataclasses import dataclass

from penstock.testing.client import create_topic, delete_topic
from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message, encode_request

PRODUCE_VERSION = 9
FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 7
RECEIVE_BYTES = 1 << 20
_HEADER = struct.Struct(">ihhih")
_LENGTH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_OFFSET_MARK = 0x0123456789ABCDEF


@dataclass(frozen=True)
class Batch:
    """An encoded record batch, and how much is in it."""

    data: bytes
    records: int
    value_bytes: int


def batch(records: int, value_bytes: int) -> Batch:
    now = int(time.time() * 1000)
    value = bytes(range(256)) * (value_bytes // 256 + 1)
    data = build_batch([Record(0, now, None, value[:value_bytes])] * records)
    return Batch(data, records, records * value_bytes)


def frame(
    api: ApiKey, version: int, message: Message, correlation_id: int = 0, client_id: bytes = b"bench"
) -> bytes:
    body = encode_request(api, version, message)
    size = _HEADER.size - 4 + len(client_id) + 1 + len(body)
    return _HEADER.pack(size, api, version, correlation_id, len(client_id)) + client_id + b"\0" + body


def produce_request(
    topic: str, partition: int, data: bytes, acks: int = 1, client_id: bytes = b"bench"
) -> bytes:
    topic_data = Message(name=topic, partition_data=[Message(index=partition, records=data)])
    message = Message(transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=[topic_data])
    return frame(ApiKey.PRODUCE, PRODUCE_VERSION, message, client_id=client_id)


def fetch_message(
    topic: str,
    partitions: dict[int, int],
    max_bytes: int,
    *,
    wait_ms: int,
    session: tuple[int, int] = (0, -1),
) -> Message:
    wanted = [
        Message(
            partition=index,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=max_bytes,
        )
        for index, offset in partitions.items()
    ]
    return Message(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=0x7FFFFFFF,
        isolation_level=0,
        session_id=session[0],
        session_epoch=session[1],
        topics=[Message(topic=topic, partitions=wanted)] if wanted else [],
        forgotten_topics_data=[],
        rack_id="",
    )


class FetchRequest:
    """A Fetch of one partition whose offset is written into the encoded bytes."""

    def __init__(self, topic: str, partition: int, max_bytes: int) -> None:
        message = fetch_message(topic, {partition: _OFFSET_MARK}, max_bytes, wait_ms=5000)
        self._data = bytearray(frame(ApiKey.FETCH, FETCH_VERSION, message))
        self._position = self._data.index(_OFFSET.pack(_OFFSET_MARK))

    def at(self, offset: int) -> bytes:
        _OFFSET.pack_into(self._data, self._position, offset)
        return bytes(self._data)


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def discard(connection: socket.socket, count: int, view: memoryview) -> None:
    """Receives and drops exactly `count` bytes."""
    while count:
        got = connection.recv_into(view, min(count, len(view)))
        if not got:
            raise ConnectionError("the broker closed the connection")
        count -= got


def round_trip(connection: socket.socket, request: bytes) -> bytes:
    connection.sendall(request)
    view = memoryview(bytearray(4))
    discard(connection, 4, view)
    answer = bytearray(_LENGTH.unpack(view)[0])
    position, view = 0, memoryview(answer)
    while position < len(answer):
        got = connection.recv_into(view[position:])
        if not got:
            raise ConnectionError("the broker closed the connection")
        position += got
    return bytes(answer)


def push(connection: socket.socket, requests: list[bytes], repeat: int, answer_bytes: int) -> float:
    """Sends all requests `repeat` times without waiting for answers; seconds until the last answer."""
    view = memoryview(bytearray(RECEIVE_BYTES))
    pending = answer_bytes * len(requests) * repeat
    sent = 0
    start = time.perf_counter()
    for _ in range(repeat):
        for request in requests:
            connection.sendall(request)
            sent += 1
            if sent % 16 == 0:
                try:
                    pending -= connection.recv_into(view, 0, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    pass
    discard(connection, pending, view)
    return time.perf_counter() - start


def pull(connection: socket.socket, requests: list[bytes], answer_bytes: int, depth: int = 4) -> float:
    """Sends the requests with `depth` of them under way; seconds until the last answer."""
    view = memoryview(bytearray(RECEIVE_BYTES))
    waiting = deque(requests)
    start = time.perf_counter()
    for _ in range(min(depth, len(waiting))):
        connection.sendall(waiting.popleft())
    for _ in requests:
        discard(connection, answer_bytes, view)
        if waiting:
            connection.sendall(waiting.popleft())
    return time.perf_counter() - start


def pipelined(
    connections: list[socket.socket], blocks: list[bytes], answer_bytes: int, seconds: float
) -> tuple[int, float]:
    """Each connection has its block of requests under way all the time; rounds done and seconds taken.

    `answer_bytes` is what one block is answered with.
    """
    view = memoryview(bytearray(RECEIVE_BYTES))
    pairs = list(zip(connections, blocks))
    rounds = 0
    start = time.perf_counter()
    for connection, block in pairs:
        connection.sendall(block)
    while time.perf_counter() - start < seconds:
        for connection, block in pairs:
            # The next block goes out before the answers to this one are read: the broker never waits for us.
            connection.sendall(block)
            discard(connection, answer_bytes, view)
        rounds += 1
    for connection, _ in pairs:
        discard(connection, answer_bytes, view)
    return rounds + 1, time.perf_counter() - start


def end_offsets(port: int, topic: str, partitions: int) -> dict[int, int]:
    wanted = [Message(partition_index=n, current_leader_epoch=-1, timestamp=-1) for n in range(partitions)]
    request = Message(replica_id=-1, isolation_level=0, topics=[Message(name=topic, partitions=wanted)])
    with WireClient(port) as client:
        answer = client.request(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request)
    return {partition.partition_index: partition.offset for partition in answer.topics[0].partitions}


def end_offset(port: int, topic: str, partitions: int = 1) -> int:
    """The sum of the partitions' end offsets: what was acknowledged must be there."""
    return sum(end_offsets(port, topic, partitions).values())


def make_topic(port: int, name: str, partitions: int = 1) -> None:
    with WireClient(port, timeout=60) as client:
        create_topic(client, name, partitions, {"file.delete.delay.ms": "0"})


def drop_topic(port: int, name: str) -> None:
    with WireClient(port, timeout=60) as client:
        delete_topic(client, name)
