"""librdkafka without Python in its way: the library that confluent-kafka brings, many records a call.

Produce: `rd_kafka_produce_batch` with an array that was filled before the clock starts, 100,000 records a
call, no reports of single deliveries. Consume: `rd_kafka_consume_callback` with a C function that does
nothing, so that librdkafka hands over, counts and frees the records by itself. A process of its own:

python -m bench.librdkafka produce|consume PORT TOPIC PARTITIONS RECORDS SIZE

prints, as JSON, the seconds from the first call to the last acknowledgement or record, and the processor
time of all its threads meanwhile. Connections are made, and the first record passes, before the clock starts.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from confluent_kafka import cimpl

_PRODUCER, _CONSUMER = 0, 1
_MORE = "PENSTOCK_BENCH_LIBRDKAFKA"
"""More settings, as JSON: TLS and the like."""
_CALL_RECORDS = 100_000
_LONGEST_MS = 60_000
_COMMON = {"log_level": "2", "enable.metrics.push": "false"}
_PRODUCE = {
    "acks": "1",
    "linger.ms": "20",
    # as large as the default max.message.bytes of a topic allows
    "message.max.bytes": "1048000",
    "batch.size": "1048000",
    "batch.num.messages": "1000",
    "queue.buffering.max.messages": "2000000",
    "queue.buffering.max.kbytes": "2000000",
}
_CONSUME = {
    "check.crcs": "false",
    "fetch.wait.max.ms": "10",
    "fetch.message.max.bytes": "8000000",
    "queued.min.messages": "1000000",
    "queued.max.messages.kbytes": "1000000",
}
# glibc's numbers for mallopt: librdkafka takes a buffer for each answer, and by default glibc gives each
# of them back to the kernel, which then clears the same pages again.
_MALLOC = {-1: 2_000_000_000, -2: 64 << 20, -3: 32 << 20}


@dataclass(frozen=True)
class Run:
    seconds: float
    cpu_seconds: float


def run(
    way: str,
    port: int,
    topic: str,
    partitions: int,
    records: int,
    size: int,
    settings: dict[str, str] | None = None,
) -> Run:
    """What one client process does; `records` and `size` are of all partitions, and of one record."""
    command = [sys.executable, "-m", "bench.librdkafka", way, str(port), topic]
    command += [str(partitions), str(records), str(size)]
    environment = {**os.environ, _MORE: json.dumps(settings or {})}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, timeout=120, env=environment
    )
    return Run(**json.loads(done.stdout))


class _Message(ctypes.Structure):
    """rd_kafka_message_t"""

    _fields_ = [
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    ]


class _Library:
    """The functions in use; found through the extension module, which is linked to librdkafka."""

    def __init__(self) -> None:
        found = ctypes.CDLL(cimpl.__file__)
        number, text, pointer = ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p
        size, partition, offset = ctypes.c_size_t, ctypes.c_int32, ctypes.c_int64

        def function(name: str, result: type | None, *arguments: type) -> ctypes._FuncPointer:
            made = found[f"rd_kafka_{name}"]
            made.restype, made.argtypes = result, arguments
            return made

        self.conf_new = function("conf_new", pointer)
        self.conf_set = function("conf_set", number, pointer, text, text, text, size)
        self.new = function("new", pointer, number, pointer, text, size)
        self.topic_new = function("topic_new", pointer, pointer, text, pointer)
        self.topic_destroy = function("topic_destroy", None, pointer)
        self.destroy = function("destroy", None, pointer)
        self.produce_batch = function("produce_batch", number, pointer, partition, number, pointer, number)
        self.flush = function("flush", number, pointer, number)
        self.consume_start = function("consume_start", number, pointer, partition, offset)
        self.consume_stop = function("consume_stop", number, pointer, partition)
        self.consume_callback = function(
            "consume_callback", number, pointer, partition, number, pointer, pointer
        )
        # Called with a record, it looks at nothing and returns.
        self.nothing = ctypes.cast(found.rd_kafka_version, pointer)


class _Client:
    def __init__(self, library: _Library, kind: int, port: int, topic: str) -> None:
        self.library = library
        reason = ctypes.create_string_buffer(512)
        settings = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            **_COMMON,
            **(_PRODUCE if kind == _PRODUCER else _CONSUME),
            **json.loads(os.environ.get(_MORE, "{}")),
        }
        configuration = library.conf_new()
        for name, value in settings.items():
            if library.conf_set(configuration, name.encode(), value.encode(), reason, 512):
                raise RuntimeError(reason.value.decode())
        self.handle = library.new(kind, configuration, reason, 512)
        if not self.handle:
            raise RuntimeError(reason.value.decode())
        self.topic = library.topic_new(self.handle, topic.encode(), None)

    def close(self) -> None:
        self.library.topic_destroy(self.topic)
        self.library.destroy(self.handle)


def _cpu_seconds() -> float:
    used = os.times()
    return used.user + used.system


def _produce(library: _Library, port: int, topic: str, partitions: int, records: int, size: int) -> Run:
    """One client for all partitions, which take turns."""
    client = _Client(library, _PRODUCER, port, topic)
    payload = (ctypes.c_char * size).from_buffer_copy((bytes(range(256)) * (size // 256 + 1))[:size])
    messages = (_Message * min(records, _CALL_RECORDS))()
    for message in messages:
        message.payload, message.len = ctypes.addressof(payload), size

    def send(partition: int, count: int) -> None:
        if library.produce_batch(client.topic, partition, 0, messages, count) != count:
            raise RuntimeError("librdkafka's queue is full")

    def flush() -> None:
        if library.flush(client.handle, _LONGEST_MS):
            raise RuntimeError("librdkafka could not deliver everything")

    for partition in range(partitions):
        send(partition, 1)
    flush()
    each = records // partitions
    calls = [
        (partition, min(_CALL_RECORDS, each - 1 - first))
        for first in range(0, each - 1, _CALL_RECORDS)
        for partition in range(partitions)
    ]
    cpu, start = _cpu_seconds(), time.perf_counter()
    for partition, count in calls:
        send(partition, count)
    flush()
    done = Run(time.perf_counter() - start, _cpu_seconds() - cpu)
    client.close()
    return done


def _consume(library: _Library, port: int, topic: str, partitions: int, records: int, _size: int) -> Run:
    """A client for each partition, as the consumers of a group are; a librdkafka client has one Fetch of a
    broker under way at a time, and unpacks its answer before it asks for more."""
    ready = threading.Barrier(partitions + 1)
    failed: list[str] = []

    def read(partition: int) -> None:
        client = _Client(library, _CONSUMER, port, topic)

        def take(timeout_ms: int) -> int:
            count: int = library.consume_callback(client.topic, partition, timeout_ms, library.nothing, None)
            return count

        left = records // partitions
        # The last record first, for the connection to be there, and nothing read ahead when the clock starts.
        library.consume_start(client.topic, partition, left - 1)
        if take(_LONGEST_MS) != 1:
            failed.append(f"partition {partition} does not end where it should")
        library.consume_stop(client.topic, partition)
        ready.wait()
        library.consume_start(client.topic, partition, 0)
        while left > 0:
            count = take(10_000)
            if count <= 0:
                failed.append(f"librdkafka stopped {left} records before the end of partition {partition}")
                break
            left -= count
        ready.wait()
        library.consume_stop(client.topic, partition)
        client.close()

    readers = [threading.Thread(target=read, args=(partition,)) for partition in range(partitions)]
    for reader in readers:
        reader.start()
    ready.wait()
    cpu, start = _cpu_seconds(), time.perf_counter()
    ready.wait()
    done = Run(time.perf_counter() - start, _cpu_seconds() - cpu)
    for reader in readers:
        reader.join()
    if failed:
        raise RuntimeError("; ".join(failed))
    return done


def main(way: str, port: str, topic: str, *numbers: str) -> None:
    malloc = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it
    for parameter, value in _MALLOC.items() if malloc is not None else ():
        malloc(parameter, value)
    done = (_produce if way == "produce" else _consume)(_Library(), int(port), topic, *map(int, numbers))
    print(json.dumps(done.__dict__))


if __name__ == "__main__":
    main(*sys.argv[1:])
