"""Runs TransactionLoad.java against a cluster and looks at the logs afterwards.

Standalone: `python -m tests.tools.transaction_load --brokers 3 back-to-back 4 380 --runs 5`. With
`--bootstrap` it uses brokers that run already, and reads no logs.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.log.tools.verify import verify
from penstock.testing import PenstockBroker
from tests.cluster.harness import running, wait_until
from tests.cluster.markers import Markers, scan
from tests.tools.kafka_jars import JVM_FLAGS, fetch

_NAMES = ("TransactionLoad.java", "SlowAccumulator.java", "TransactionCopier.java")
SOURCES = [Path(__file__).with_name(name) for name in _NAMES]
SCENARIOS = ("back-to-back", "abort-after-commit", "first-batches", "early-end")
PARTITIONS = 6


@dataclass(frozen=True)
class Outcome:
    """What the program printed, and what the client warned of, by error code."""

    said: Mapping[str, str]
    log: str

    def number(self, name: str) -> float:
        return float(self.said[name])

    @property
    def warnings(self) -> dict[str, int]:
        return {
            name.removeprefix("warned_"): int(value)
            for name, value in self.said.items()
            if name.startswith("warned_")
        }

    def problems(self) -> list[str]:
        """Everything that may not be: producers that died, records that are missing, doubled or moved."""
        names = ("failures", "missing", "unexpected", "reordered", "hanging")
        return [
            f"{name} {self.said.get(name, 'not said')}: {self.said.get(f'{name}_first', '')}"
            for name in names
            if self.said.get(name) != "0"
        ]


def compiled(libraries: Path) -> Path:
    """The directory of the program's classes, compiled when a source is newer."""
    classes = libraries.parent / "classes"
    classes.mkdir(exist_ok=True)
    with open(classes / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        target, newest = classes / "TransactionLoad.class", max(one.stat().st_mtime for one in SOURCES)
        if not target.exists() or target.stat().st_mtime < newest:
            words = ["javac", "-cp", f"{libraries}/*", "-d", str(classes), *map(str, SOURCES)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
    return classes


def java(libraries: Path, program: str, flags: Sequence[str] = JVM_FLAGS) -> list[str]:
    """The command that runs one of the programs here."""
    classpath = f"{compiled(libraries)}:{libraries}/*"
    return ["java", *flags, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath, program]


def load(
    libraries: Path,
    bootstrap: str,
    topic: str,
    scenario: str,
    producers: int,
    transactions: int,
    *,
    run: str,
    warm_up: int = 0,
    flags: Sequence[str] = JVM_FLAGS,
    timeout: float = 300,
) -> Outcome:
    command = java(libraries, "TransactionLoad", flags)
    words = [
        bootstrap,
        topic,
        str(PARTITIONS),
        scenario,
        str(producers),
        str(transactions),
        run,
        str(warm_up),
    ]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    said = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return Outcome(said, done.stderr)


@dataclass(frozen=True)
class Place:
    """One broker or three that run, with a topic of PARTITIONS partitions on each of them."""

    bootstrap: str
    directories: tuple[Path, ...]
    create_topic: Callable[[str], None]

    def logs(self, topic: str) -> list[Markers]:
        """What each broker has of a topic, once the followers have all of it; its files are sound, too."""
        wait_until(f"{topic} is replicated", lambda: all(map(self._same, topic_partitions(topic))))
        found = []
        for directory in self.directories:
            for name in topic_partitions(topic):
                assert not verify(str(directory / name)).all_problems
            found.append(scan(directory, (topic,)))
        return found

    def _same(self, partition: str) -> bool:
        sizes = {
            sum(path.stat().st_size for path in (directory / partition).glob("*.log"))
            for directory in self.directories
        }
        return len(sizes) == 1


def topic_partitions(topic: str) -> list[str]:
    return [f"{topic}-{index}" for index in range(PARTITIONS)]


@contextmanager
def place(directory: Path, brokers: int, settings: Mapping[str, str] | None = None) -> Iterator[Place]:
    if brokers == 1:
        with PenstockBroker(settings, data_dir=directory, event_loop="uvloop") as broker:
            yield Place(
                broker.bootstrap,
                (directory,),
                lambda topic: broker.create_topic(topic, partitions=PARTITIONS),
            )
        return
    with running(directory, brokers=brokers, settings=settings) as cluster:
        directories = tuple(node.directory for node in cluster.nodes.values())
        yield Place(
            cluster.bootstrap, directories, lambda topic: cluster.create_topic(topic, PARTITIONS, brokers)
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("producers", type=int)
    parser.add_argument("transactions", type=int, help="of each producer")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--bootstrap")
    parser.add_argument("--libraries", type=Path, help="the directory of Kafka's jars; else they are fetched")
    parser.add_argument("--keep", type=Path, help="a directory for the brokers' data, which stays")
    parser.add_argument("--show", action="store_true", help="what the client logs")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of the brokers")
    words = parser.parse_args()
    libraries = words.libraries or fetch()
    bad = 0

    def one(bootstrap: str, run: str) -> Outcome:
        outcome = load(
            libraries, bootstrap, "load", words.scenario, words.producers, words.transactions, run=run
        )
        print(json.dumps(outcome.said), flush=True)
        if words.show:
            print(outcome.log, file=sys.stderr, flush=True)
        return outcome

    if words.bootstrap:
        for number in range(words.runs):
            bad += bool(one(words.bootstrap, f"run{number}").problems())
        return bad
    with tempfile.TemporaryDirectory() as made:
        directory = words.keep or Path(made)
        directory.mkdir(exist_ok=True)
        settings = dict(pair.split("=", 1) for pair in words.set)
        with place(directory, words.brokers, settings) as started:
            started.create_topic("load")
            for number in range(words.runs):
                bad += bool(one(started.bootstrap, f"run{number}").problems())
            for number, markers in enumerate(started.logs("load"), 1):
                print(f"broker {number}: {markers.transactions} transactions, {len(markers.faults)} faults")
                for text in markers.faults[:20]:
                    print(f"  {text}")
                bad += bool(markers.faults)
    print(f"{bad} bad")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
