"""The schema registry: lookups by id over kept-alive connections, and a start on 10,000 schemas."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.process import broker, scratch
from bench.report import Report, Result

SCHEMAS = 10_000
CONNECTIONS = 8
_TICKS = os.sysconf("SC_CLK_TCK")


def measure(report: Report, *, seconds: float) -> None:
    with scratch() as directory, broker() as process:
        _fill(process.bootstrap)
        with registry(process.bootstrap, directory) as (port, pid, ready, load):
            before = _cpu_seconds(pid)
            count, elapsed = asyncio.run(_look_up(port, seconds))
            cpu = _cpu_seconds(pid) - before
    report.add(
        Result("registry: cached lookups by id", count / elapsed, "/s", at_least=2000),
        Result("registry: cached lookups by id, per second of its CPU", count / cpu, "/s", at_least=2000),
        Result("registry: 10,000 schemas read at start", load, "s", at_most=5),
        Result("registry: start with 10,000 schemas, until it answers", ready, "s"),
    )


def _fill(bootstrap: str) -> None:
    """10,000 schemas as a registry would have written them, in 1,000 subjects."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("_schemas", 1, 1, config={"cleanup.policy": "compact"})])[
        "_schemas"
    ].result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(SCHEMAS):
        subject, version = f"subject-{number % 1000}", number // 1000 + 1
        fields = [{"name": f"field_{index}", "type": "string"} for index in range(10)]
        schema = json.dumps({"type": "record", "name": f"Record{number}", "fields": fields})
        key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
        value = {"subject": subject, "version": version, "id": number + 1, "schema": schema, "deleted": False}
        producer.produce("_schemas", json.dumps(value), json.dumps(key, separators=(",", ":")))
        producer.poll(0)
    producer.flush()


@contextmanager
def registry(bootstrap: str, directory: Path) -> Iterator[tuple[int, int, float, float]]:
    """A registry process: its port, its pid, seconds until it answered, seconds to read the topic."""
    ready_file = directory / "registry.json"
    words = ["registry", "-b", bootstrap, "--port", "0", "--ready-file", str(ready_file)]
    started = time.perf_counter()
    with (directory / "registry.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "penstock", *words], stdout=log, stderr=log)
    try:
        while not ready_file.exists():
            if process.poll() is not None or time.perf_counter() - started > 60:
                raise RuntimeError("the registry did not start:\n" + (directory / "registry.log").read_text())
            time.sleep(0.005)
        elapsed = time.perf_counter() - started
        ready = json.loads(ready_file.read_text())
        yield int(ready["registry"].rpartition(":")[2]), process.pid, elapsed, ready["load_seconds"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def _look_up(port: int, seconds: float) -> tuple[int, float]:
    """Requests of a few clients, one at a time each, for all ids in turn."""
    deadline = time.perf_counter() + seconds
    counts = await asyncio.gather(*(_client(port, number, deadline) for number in range(CONNECTIONS)))
    return sum(counts), seconds


async def _client(port: int, number: int, deadline: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = 0
    while time.perf_counter() < deadline:
        schema_id = (number * 1249 + count * 7) % SCHEMAS + 1
        writer.write(f"GET /schemas/ids/{schema_id} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        count += 1
    writer.close()
    return count


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
