"""What TLS costs: produce and fetch through librdkafka over TLS and without, of Penstock and of Kafka.

Each broker has both listeners, which take turns, and the machine to itself: the other kind is not running
meanwhile. Without Maven there is no Kafka to compare with: it is skipped by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import librdkafka, wire
from bench.null_broker import null_broker
from bench.process import broker, cpu_seconds, scratch
from bench.report import Report, Result
from penstock.cli.access.authority import Authority
from penstock.testing.ports import free_port
from tests.tools.kafka_broker import kafka_nodes
from tests.tools.kafka_jars import KAFKA_VERSION, NotFetched, fetch

TOPIC, PARTITIONS, SIZE = "load", 4, 1024
_WAYS = {"produce": "produce", "consume": "fetch"}
_KAFKA_FLAGS = ["-Xmx1g", "-Xms1g"]


@dataclass(frozen=True)
class Side:
    """A broker that runs, and what librdkafka needs for its listener with TLS."""

    name: str
    pid: int
    port: int
    tls_port: int
    tls: dict[str, str]
    await_deletion: Callable[[str], None] = lambda topic: None


def measure(report: Report, *, records: int, rounds: int) -> None:
    with _penstock() as side:
        _report(report, side, _measured(side, records, rounds), at_least=0.5)
    _report_nothing_behind(report, _measured_nothing(records, rounds))
    try:
        libraries = fetch()
    except NotFetched as error:
        print(f"  Kafka is skipped: {error}")
        return
    with _kafka(libraries) as side:
        _report(report, side, _measured(side, records, rounds), at_least=None)


def _certificates(directory: Path) -> tuple[Path, dict[str, str]]:
    """The keystore of a broker, and the settings of its clients."""
    authority = Authority.open(directory / "certs", "bench", 30)
    keystore = directory / "server.pem"
    authority.issue(keystore, "127.0.0.1", ["127.0.0.1"], 30)
    return keystore, {"security.protocol": "ssl", "ssl.ca.location": str(authority.certificate_file)}


@contextmanager
def _penstock() -> Iterator[Side]:
    with scratch() as directory:
        keystore, tls = _certificates(directory)
        port = free_port()
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:{port}",
            "ssl.keystore.location": str(keystore),
        }
        with broker(directory, settings) as process:
            yield Side("", process.pid, process.port, port, tls, process.wait_until_deleted)


@contextmanager
def _kafka(libraries: Path) -> Iterator[Side]:
    with scratch() as directory:
        keystore, tls = _certificates(directory)
        port = free_port()
        more = {
            "listeners": f"SSL://127.0.0.1:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
        }
        with kafka_nodes(libraries, directory, 1, _KAFKA_FLAGS, more) as nodes:
            nodes.wait_until_ready()
            plain = int(nodes.bootstrap.rpartition(":")[2])
            yield Side(f"Kafka {KAFKA_VERSION}: ", nodes.pids[0], plain, port, tls)


def _measured(side: Side, records: int, rounds: int) -> dict[str, list[float]]:
    """GB/s and processor seconds for each GB, by name."""
    found: dict[str, list[float]] = {}
    gigabytes = records * SIZE / 1e9
    for number in range(rounds + 1):  # the first warms up
        for name, port, settings in (("plain", side.port, {}), ("tls", side.tls_port, side.tls)):
            topic = f"{TOPIC}-{name}-{number}"
            wire.make_topic(side.port, topic, PARTITIONS)
            for way in _WAYS:
                before = cpu_seconds(side.pid)
                run = librdkafka.run(way, port, topic, PARTITIONS, records, SIZE, settings)
                if number:
                    spent = cpu_seconds(side.pid) - before
                    found.setdefault(f"{way} {name}", []).append(gigabytes / run.seconds)
                    found.setdefault(f"{way} {name} cpu", []).append(spent / gigabytes)
                    found.setdefault(f"{way} {name} client", []).append(run.cpu_seconds / gigabytes)
            wire.drop_topic(side.port, topic)
            side.await_deletion(topic)
    return found


def _measured_nothing(records: int, rounds: int) -> dict[str, list[float]]:
    """Produce to a server that decrypts, drops and acknowledges: what the client and TLS alone allow."""
    found: dict[str, list[float]] = {}
    gigabytes = records * SIZE / 1e9
    with scratch() as directory, ExitStack() as servers:
        keystore, tls = _certificates(directory)
        partitions = [directory / f"{TOPIC}-{number}" for number in range(PARTITIONS)]
        for partition in partitions:
            partition.mkdir()
            (partition / f"{0:020}.log").touch()
        ways: list[tuple[str, Path | None, dict[str, str]]] = [("plain", None, {}), ("tls", keystore, tls)]
        running = {name: servers.enter_context(null_broker(TOPIC, partitions, pem)) for name, pem, _ in ways}
        for number in range(rounds + 1):
            for name, _, settings in ways:
                port, pid = running[name]
                before = cpu_seconds(pid)
                run = librdkafka.run("produce", port, TOPIC, PARTITIONS, records, SIZE, settings)
                if number:
                    found.setdefault(name, []).append(gigabytes / run.seconds)
                    found.setdefault(f"{name} cpu", []).append((cpu_seconds(pid) - before) / gigabytes)
    return found


def _report_nothing_behind(report: Report, found: dict[str, list[float]]) -> None:
    ratios = [one / other for one, other in zip(found["tls"], found["plain"], strict=True)]
    what = "produce with nothing behind it"
    report.add(
        Result(f"{what}, without TLS", median(found["plain"]), "GB/s"),
        Result(f"{what}, over TLS", median(found["tls"]), "GB/s"),
        Result(f"{what}: TLS / without", median(ratios), "", note=f"{min(ratios):.2f} to {max(ratios):.2f}"),
        Result(
            f"{what}: server CPU over TLS",
            median(found["tls cpu"]),
            "s/GB",
            note=f"{median(found['plain cpu']):.2f} without",
        ),
    )


def _report(report: Report, side: Side, found: dict[str, list[float]], at_least: float | None) -> None:
    for way, word in _WAYS.items():
        what = f"{side.name}{word}"
        plain, tls = found[f"{way} plain"], found[f"{way} tls"]
        ratios = [one / other for one, other in zip(tls, plain, strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        cpu, client = (
            {name: median(found[f"{way} {name} {whose}"]) for name in ("plain", "tls")}
            for whose in ("cpu", "client")
        )
        report.add(
            Result(f"{what} without TLS", median(plain), "GB/s"),
            Result(f"{what} over TLS", median(tls), "GB/s"),
            Result(f"{what}: TLS / without", median(ratios), "", at_least=at_least, note=spread),
            Result(f"{what}: broker CPU over TLS", cpu["tls"], "s/GB", note=f"{cpu['plain']:.2f} without"),
            Result(
                f"{what}: client CPU over TLS", client["tls"], "s/GB", note=f"{client['plain']:.2f} without"
            ),
        )
