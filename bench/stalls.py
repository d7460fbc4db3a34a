"""How long others wait while a broker works in the background.

Measured: the latency of one connection's produce, and the longest callback of the loop, under compaction,
retention, truncation, failover, offsets by time, a reader far behind and a flood of client ids. The prober
is a process of its own: `python -m bench.stalls PORT PID`. Beside the time by the clock it measures the
processor time of all threads of the broker from request to answer, which other programs on the machine change
little.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import wire
from bench.process import BrokerProcess, broker
from bench.report import Report, Result
from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message

P999_MS = 20.0
_TOPIC = "probe"
_PAUSE_S = 0.001
_SETTINGS = {
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "200",
    "offsets.topic.num.partitions": "50",
}


def measure(report: Report, *, megabytes: int, seconds: float) -> None:
    rows: list[dict[str, Any]] = []
    with broker(settings=_SETTINGS, module="bench.stall_broker") as process:
        wire.make_topic(process.port, _TOPIC)
        for name, prepare in _SCENARIOS.items():
            rows.append({"while": name, **_one(process, name, prepare, megabytes, seconds)})
    report.table("What others wait for", rows)
    for row in rows:
        report.add(Result(f"produce p99.9 during {row['while']}", row["p99.9 ms"], "ms", at_most=P999_MS))


def _one(
    process: BrokerProcess,
    name: str,
    prepare: Callable[..., Callable[[], object]],
    megabytes: int,
    seconds: float,
) -> dict[str, Any]:
    work = prepare(process, megabytes)
    _stalls(process)
    with _probe(process) as (latencies, cpu):
        began = time.perf_counter()
        while True:
            work()
            if time.perf_counter() - began >= seconds:
                break
    found = _stalls(process)
    times, cpu_times = sorted(latencies), sorted(cpu)
    print(f"  {name}: the longest callback was {found['longest'][:1]}", file=sys.stderr)
    print(f"  {name}: most CPU took {found['most_cpu']}", file=sys.stderr)
    print(f"  {name}: the longest garbage collection took {found['collection']}", file=sys.stderr)
    return {
        "produces": len(times),
        "p50 ms": times[len(times) // 2] * 1000,
        "p99.9 ms": _p999(times) * 1000,
        "max ms": times[-1] * 1000,
        "p99.9 CPU ms": _p999(cpu_times) * 1000,
        "longest callback ms": found["ms"],
        "its most CPU ms": found["cpu_ms"],
    }


def _p999(times: list[float]) -> float:
    return times[min(len(times) * 999 // 1000, len(times) - 1)]


def _stalls(process: BrokerProcess) -> dict[str, Any]:
    path = process.directory / "stalls.json"
    path.unlink(missing_ok=True)
    process.signal(signal.SIGUSR1)
    _wait_for(path)
    return dict(json.loads(path.read_text()))


def _wait_for(path: Path) -> None:
    deadline = time.perf_counter() + 120
    while not path.exists():
        if time.perf_counter() > deadline:
            raise RuntimeError(f"{path} did not come")
        time.sleep(0.002)


@contextmanager
def _probe(process: BrokerProcess) -> Iterator[tuple[list[float], list[float]]]:
    """The lists, latencies and processor times, are filled when the block ends."""
    latencies: list[float] = []
    cpu: list[float] = []
    command = [sys.executable, "-m", "bench.stalls", str(process.port), str(process.pid)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()  # it has begun
    try:
        yield latencies, cpu
    finally:
        out, _ = child.communicate()
    for target, found in zip((latencies, cpu), json.loads(out), strict=True):
        target += found


def _prober(port: int, pid: int) -> None:
    request = wire.produce_request(_TOPIC, 0, wire.batch(1, 100).data)
    cpu_clock = (~pid << 3) | 2  # what clock_getcpuclockid(3) returns on Linux
    latencies, cpu = [], []
    with wire.connect(port) as connection:
        wire.round_trip(connection, request)
        print("begun", flush=True)
        while not select.select([sys.stdin], [], [], _PAUSE_S)[0]:
            began, used = time.perf_counter(), time.clock_gettime(cpu_clock)
            wire.round_trip(connection, request)
            latencies.append(time.perf_counter() - began)
            cpu.append(time.clock_gettime(cpu_clock) - used)
    print(json.dumps([latencies, cpu]))


# -- what the broker does meanwhile


def _make(process: BrokerProcess, name: str, partitions: int = 1, **configs: str) -> None:
    topic = Message(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[Message(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    with WireClient(process.port) as client:
        request = Message(topics=[topic], timeout_ms=60_000, validate_only=False)
        answer = client.request(ApiKey.CREATE_TOPICS, 5, request).topics[0]
    if answer.error_code:
        raise RuntimeError(f"{name}: {answer.error_code} {answer.error_message}")


def _fill(
    process: BrokerProcess, topic: str, megabytes: float, *, records: int = 100, partition: int = 0
) -> None:
    """Batches of records of 1,000 bytes with some thousand keys."""
    with wire.connect(process.port) as connection:
        for number in range(max(1, round(megabytes * 1000 / records))):
            now = time.time_ns() // 1_000_000
            data = build_batch(
                [Record(0, now, b"%d" % ((number * records + i) % 5000), bytes(1000)) for i in range(records)]
            )
            wire.round_trip(connection, wire.produce_request(topic, partition, data))


def _nothing(process: BrokerProcess, megabytes: int) -> Callable[[], object]:
    return lambda: time.sleep(0.1)


def _compaction(process: BrokerProcess, megabytes: int) -> Callable[[], object]:
    _make(
        process, "compacted", cleanup_policy="compact", segment_bytes="1048576",
        min_cleanable_dirty_ratio="0.01",
    )  # fmt: skip
    _fill(process, "compacted", megabytes)
    return lambda: _fill(process, "compacted", 2)


def _retention(process: BrokerProcess, megabytes: int) -> Callable[[], object]:
    _make(process, "short", segment_bytes="102400", retention_ms="500")
    return lambda: (_fill(process, "short", 8), time.sleep(0.5))


def _behind(process: BrokerProcess, megabytes: int) -> Callable[[], object]:
    _make(process, "cold")
    _fill(process, "cold", megabytes * 2)
    end = wire.end_offset(process.port, "cold")
    (path,) = (process.directory / "data" / "cold-0").glob("*.log")

    def read() -> None:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        offset = 0
        with wire.connect(process.port) as connection:
            request = wire.FetchRequest("cold", 0, 8 << 20)
            while offset < end:
                answer = wire.round_trip(connection, request.at(offset))
                offset += max(1, len(answer) // 1020 // 100 * 100)

    return read


def _by_time(process: BrokerProcess, megabytes: int) -> Callable[[], object]:
    _make(process, "wide", partitions=200)
    for partition in range(200):
        _fill(process, "wide", 0.5, partition=partition)
    asked = [
        Message(partition_index=partition, current_leader_epoch=-1, timestamp=1_000_000)
        for partition in range(200)
    ]
    request = Message(replica_id=-1, isolation_level=0, topics=[Message(name="wide", partitions=asked)])

    def look() -> None:
        with WireClient(process.port) as client:
            client.request(ApiKey.LIST_OFFSETS, 7, request)

    return look


def _command(process: BrokerProcess, *command: str) -> None:
    done = process.directory / "done"
    done.unlink(missing_ok=True)
    (process.directory / "command").write_text(json.dumps(command))
    process.signal(signal.SIGUSR2)
    _wait_for(done)


def _truncation(process: BrokerProcess, megabytes: int) -> Callable[[], object]:
    _make(process, "cut")
    _fill(process, "cut", megabytes, records=1)  # one header for each record
    return lambda: _command(process, "truncate", "cut")


def _failover(process: BrokerProcess, megabytes: int) -> Callable[[], object]:
    with WireClient(process.port) as client:
        for number in range(2000):
            group = f"group-{number % 200}"
            if number < 200:
                client.request(ApiKey.FIND_COORDINATOR, 3, Message(key=group, key_type=0))
            partitions = [
                Message(
                    partition_index=i,
                    committed_offset=number,
                    committed_leader_epoch=-1,
                    committed_metadata="x" * 50,
                )
                for i in range(20)
            ]
            request = Message(
                group_id=group, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
                topics=[Message(name="wide", partitions=partitions)],
            )  # fmt: skip
            client.request(ApiKey.OFFSET_COMMIT, 8, request)
    return lambda: _command(process, "failover")


def _client_ids(process: BrokerProcess, megabytes: int) -> Callable[[], object]:
    """Each request under a client id of its own, with a quota that no client reaches."""
    ops = [Message(key="producer_byte_rate", value=1e12, remove=False)]
    entry = Message(entity=[Message(entity_type="client-id", entity_name=None)], ops=ops)
    with WireClient(process.port) as client:
        request = Message(entries=[entry], validate_only=False)
        client.request(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)
    data, numbers = wire.batch(1, 100).data, itertools.count()

    def flood() -> None:
        with wire.connect(process.port) as connection:
            for number in itertools.islice(numbers, 2000):
                request = wire.produce_request(_TOPIC, 0, data, client_id=b"client-%d" % number)
                wire.round_trip(connection, request)

    for _ in range(6):  # more than a broker remembers
        flood()
    return flood


_SCENARIOS = {
    "nothing else": _nothing,
    "compaction": _compaction,
    "retention": _retention,
    "offsets by time": _by_time,
    "truncation": _truncation,
    "failover": _failover,
    "a reader far behind": _behind,
    "a flood of client ids under a quota": _client_ids,
}


if __name__ == "__main__":
    _prober(int(sys.argv[1]), int(sys.argv[2]))
