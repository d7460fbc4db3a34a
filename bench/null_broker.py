"""The least that a client takes for a broker: what the client alone allows on this machine.

Produce is read and dropped, and answered with success; Fetch is answered from the segment files of a broker
by sendfile. Nothing is parsed that need not be, nothing is checked, nothing is kept. What a real client
reaches here, no broker in its place can exceed by much. A process of its own, a thread for each connection:

python -m bench.null_broker KEYSTORE TOPIC PARTITION_DIRECTORY...

prints its port, and serves until its standard input ends. With a keystore, a PEM file, it speaks TLS, and
decrypts in memory as the broker does; records are not fetched from such a one. "" is none.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.wire import RECEIVE_BYTES
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message, decode_request, encode_response

# The last versions without tagged fields, and the first that librdkafka looks for.
_VERSIONS = {
    ApiKey.PRODUCE: (0, 8),
    ApiKey.FETCH: (0, 11),
    ApiKey.LIST_OFFSETS: (0, 5),
    ApiKey.METADATA: (0, 8),
    ApiKey.API_VERSIONS: (0, 0),
}
_UNSUPPORTED_VERSION = 35
CIPHERTEXT_BYTES = 256 * 1024
_HEADER = struct.Struct(">ihhih")  # length, API, version, correlation id, length of the client id
_BATCH = struct.Struct(">qi")


@contextmanager
def null_broker(
    topic: str, directories: list[Path], keystore: Path | None = None
) -> Iterator[tuple[int, int]]:
    """Its port, and its process."""
    command = [sys.executable, "-m", "bench.null_broker", str(keystore or ""), topic, *map(str, directories)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.stdin.close()


class _Segment:
    """The first file of a partition, and where its batches begin."""

    def __init__(self, directory: Path) -> None:
        self.file = os.open(directory / f"{0:020}.log", os.O_RDONLY)
        self.size = os.fstat(self.file).st_size
        self.offsets: list[int] = []
        self.positions: list[int] = []
        position = 0
        while position < self.size:
            base, length = _BATCH.unpack(os.pread(self.file, _BATCH.size, position))
            self.offsets.append(base)
            self.positions.append(position)
            position += _BATCH.size + length
        self.positions.append(position)

    def batches(self, offset: int, max_bytes: int) -> tuple[int, int]:
        """Position and bytes of the whole batches from the one with `offset` on."""
        first = bisect_right(self.offsets, offset) - 1
        start = self.positions[first]
        last = max(bisect_right(self.positions, start + max_bytes) - 1, first + 1)
        return start, self.positions[last] - start


class _Encrypted:
    """A connection with TLS."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = connection
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._view = memoryview(bytearray(CIPHERTEXT_BYTES))
        self._wait_for(self._tls.do_handshake)

    def recv_into(self, view: memoryview) -> int:
        got: int = self._wait_for(lambda: self._tls.read(len(view), view))  # type: ignore[arg-type]
        return got

    def sendall(self, data: bytes, flags: int = 0) -> None:
        self._tls.write(data)
        self._flush()

    def fileno(self) -> int:
        raise RuntimeError("records are not sent over TLS here")

    def _wait_for(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                found = step()
            except ssl.SSLWantReadError:
                self._flush()
                got = self._socket.recv_into(self._view)
                if not got:
                    return 0
                self._in.write(self._view[:got])
            else:
                self._flush()
                return found

    def _flush(self) -> None:
        if self._out.pending:
            self._socket.sendall(self._out.read())


class _NullBroker:
    def __init__(self, keystore: str, topic: str, directories: list[Path]) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if keystore else None
        if self._context is not None:
            self._context.load_cert_chain(keystore)
        self._topic = topic
        self._segments = [_Segment(directory) for directory in directories]
        # What is fetched past this is not there yet: known from the batch that ends the file.
        self._ends = [self._end(segment) for segment in self._segments]
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]

    @staticmethod
    def _end(segment: _Segment) -> int:
        if not segment.offsets:
            return 0
        delta = os.pread(segment.file, 4, segment.positions[-2] + 23)
        return segment.offsets[-1] + int.from_bytes(delta, "big") + 1

    def serve(self) -> None:
        while True:
            connection, _ = self._server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, raw: socket.socket) -> None:
        connection = raw if self._context is None else _Encrypted(raw, self._context)
        view = memoryview(bytearray(RECEIVE_BYTES))
        filled = 0
        while True:
            while filled < _HEADER.size or (
                # The whole of a small request, the beginning of a large one.
                filled < min(256, 4 + int.from_bytes(view[:4], "big"))
            ):
                got = connection.recv_into(view[filled:])
                if not got:
                    return
                filled += got
            length, api, version, correlation, client = _HEADER.unpack_from(view)
            end = 4 + length
            body = _HEADER.size + client
            if api == ApiKey.PRODUCE:
                answer = self._produced(view, body, correlation, version)
            else:
                answer = self._answer(ApiKey(api), version, correlation, bytes(view[body:end]), connection)
            while filled < end:
                got = connection.recv_into(view[: min(end - filled, RECEIVE_BYTES)])
                if not got:
                    return
                filled += got
                if filled >= end:
                    filled = end
            rest = filled - end
            if rest:
                view[:rest] = view[end:filled]
            filled = rest
            if answer:
                connection.sendall(answer)

    def _produced(self, view: memoryview, body: int, correlation: int, version: int) -> bytes:
        (transactional,) = struct.unpack_from(">h", view, body)
        name_at = body + 2 + max(transactional, 0) + 2 + 4 + 4
        (name,) = struct.unpack_from(">h", view, name_at)
        (index,) = struct.unpack_from(">i", view, name_at + 2 + name + 4)
        partition = Message(
            index=index,
            error_code=0,
            base_offset=0,
            log_append_time_ms=-1,
            log_start_offset=0,
            record_errors=[],
            error_message=None,
        )
        topics = [Message(name=self._topic, partition_responses=[partition])]
        return _framed(correlation, ApiKey.PRODUCE, version, Message(responses=topics, throttle_time_ms=0))

    def _answer(
        self, api: ApiKey, version: int, correlation: int, body: bytes, connection: _Connection
    ) -> bytes:
        if api == ApiKey.API_VERSIONS:
            keys = [
                Message(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in _VERSIONS.items()
            ]
            error = _UNSUPPORTED_VERSION if version else 0
            return _framed(correlation, api, 0, Message(error_code=error, api_keys=keys))
        if api == ApiKey.METADATA:
            return _framed(correlation, api, version, self._metadata())
        request = decode_request(api, version, body)
        if api == ApiKey.FETCH:
            self._fetch(correlation, request, connection)
            return b""
        raise RuntimeError(f"{api.name} is not answered here")

    def _metadata(self) -> Message:
        partitions = [
            Message(
                error_code=0,
                partition_index=index,
                leader_id=1,
                leader_epoch=0,
                replica_nodes=[1],
                isr_nodes=[1],
                offline_replicas=[],
            )
            for index in range(len(self._segments))
        ]
        topic = Message(
            error_code=0,
            name=self._topic,
            is_internal=False,
            partitions=partitions,
            topic_authorized_operations=0,
        )
        return Message(
            throttle_time_ms=0,
            brokers=[Message(node_id=1, host="127.0.0.1", port=self.port, rack=None)],
            cluster_id="null",
            controller_id=1,
            topics=[topic],
            cluster_authorized_operations=0,
        )

    def _fetch(self, correlation: int, request: Message, connection: _Connection) -> None:
        """One partition, as the clients here ask; written out, because the records follow by sendfile."""
        if not request.topics:
            time.sleep(request.max_wait_ms / 1000)
            connection.sendall(struct.pack(">iiihii", 18, correlation, 0, 0, 0, 0))
            return
        wanted = request.topics[0].partitions[0]
        index, offset = wanted.partition, wanted.fetch_offset
        end = self._ends[index]
        start = size = 0
        if offset < end:
            start, size = self._segments[index].batches(offset, wanted.partition_max_bytes)
        else:
            time.sleep(request.max_wait_ms / 1000)
        name = self._topic.encode()
        head = struct.pack(">iihiih", correlation, 0, 0, 0, 1, len(name)) + name
        head += struct.pack(">iihqqqiii", 1, index, 0, end, end, 0, 0, -1, size)
        connection.sendall(struct.pack(">i", len(head) + size) + head, socket.MSG_MORE if size else 0)
        stop = start + size
        while start < stop:
            start += os.sendfile(connection.fileno(), self._segments[index].file, start, stop - start)


_Connection = socket.socket | _Encrypted


def _framed(correlation: int, api: ApiKey, version: int, message: Message) -> bytes:
    body = encode_response(api, version, message)
    return struct.pack(">ii", 4 + len(body), correlation) + body


def main(keystore: str, topic: str, *directories: str) -> None:
    broker = _NullBroker(keystore, topic, [Path(directory) for directory in directories])
    threading.Thread(target=broker.serve, daemon=True).start()
    print(broker.port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
