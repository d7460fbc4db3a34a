"""docs/behaviour.md, written from the markers of the tests: `python -m tests.promises`.

A test names the promise that it proves: `@pytest.mark.promise("log", "A damaged index is rebuilt")`. Tests
with the same topic and the same sentence prove one promise. This module parses the files and does not
import them: it needs none of their dependencies.
"""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/behaviour.md"
LONGEST = 400

HEAD = """\
# Promises and their tests

What Penstock promises, by topic. The numbers link to the tests that prove a promise; point at one to see its
name. `make test` proves every promise but those that name `make test-ecosystem`. Where several tests prove
one, some run in `make test-long` only.
Speed is not on this page: it depends on the machine, and `make bench` measures it
([benchmarks.md](benchmarks.md)).

Generated from the tests' markers by `python -m tests.promises`. Do not edit this page:
[CONTRIBUTING.md](../CONTRIBUTING.md#promises) says how to add a promise.
"""


@dataclass(frozen=True, slots=True)
class Topic:
    title: str
    about: str = ""


# In the order of the page.
TOPICS = {
    "clients": Topic(
        "Clients",
        "With confluent-kafka (librdkafka), kafka-python and aiokafka against a broker process, unless "
        "the test says otherwise.",
    ),
    "protocol": Topic("Protocol"),
    "topics": Topic("Topics and settings"),
    "log": Topic("The log"),
    "crashes": Topic("Crashes and faults"),
    "cluster": Topic(
        "A cluster under faults",
        "Each under load, with a writer and a reader. Afterwards the test compares what was acknowledged"
        " and what was read with the log (`tests/cluster/history.py`). `make chaos` injects these faults"
        " and more (clock jumps, slow and full disks, pauses, overload) at random, while transactions "
        "from C and Java clients, DeleteRecords and compaction run. `make chaos CHAOS_MINUTES=60` takes "
        "a new seed each minute and keeps the files of the first failure.",
    ),
    "reassignment": Topic("Reassignments and leaders"),
    "groups": Topic(
        "Groups",
        "The classic protocol, with confluent-kafka, kafka-python and aiokafka where a test starts "
        "clients. `tests/sim` runs the same state machines under seeded schedules: joins, leaves, "
        "silence, late and repeated requests, failing writes, crashes. `make test` runs 64 schedules "
        "and `make test-long` 4,000; `.venv/bin/pytest tests/sim --seed 17` runs one again.",
    ),
    "consumer groups": Topic(
        "Consumer groups (KIP-848)",
        "With confluent-kafka and `group.protocol=consumer` where a test starts clients.",
    ),
    "transactions": Topic(
        "Transactions",
        "Of transaction versions 0 and 2 (KIP-890), with confluent-kafka, aiokafka, kafka-python, "
        "Kafka's Java producer and raw requests.",
    ),
    "share groups": Topic(
        "Queues (share groups)",
        "KIP-932, with confluent-kafka's ShareConsumer, Kafka's Java share consumer and raw requests.",
    ),
    "delivery": Topic(
        "Delivery guarantees",
        "Each example of [delivery.md](delivery.md) runs as a process. The test kills it and the broker "
        "with kill -9 at seeded moments.",
    ),
    "access": Topic("ACLs and quotas"),
    "hostile input": Topic("Hostile input"),
    "operations": Topic("Metrics and health"),
    "backups": Topic("Backups and upgrades", "See [operate.md](operate.md)."),
    "commands": Topic("The command line"),
    "group commands": Topic("Commands for groups and transactions"),
    "client library": Topic(
        "The client library",
        "`penstock.client` and `penstock.spark.source.reading`, which the Spark source and the registry use.",
    ),
    "fixture": Topic("The test fixture"),
    "spark source": Topic(
        "Spark: the source",
        "With a SparkSession on `local[2]` and a broker process. See [spark.md](spark.md).",
    ),
    "spark sinks": Topic(
        "Spark: the sinks",
        "See [spark-sink.md](spark-sink.md). `test_sink_pieces.py` runs the sink's tasks without Spark.",
    ),
    "streams": Topic("Streams", "See [streams.md](streams.md)."),
    "registry": Topic("The schema registry", "See [registry.md](registry.md)."),
    "connect": Topic("Connect", "See [connect.md](connect.md)."),
    "mirror": Topic("Replication between clusters", "See [mirror.md](mirror.md)."),
    "pipelines": Topic(
        "Pipelines", "See [pipelines.md](pipelines.md). `tests/unit/pipelines` needs no Spark."
    ),
    "sql": Topic("Continuous SQL", "See [sql.md](sql.md). `tests/unit/sql` needs no Spark."),
    "http": Topic("HTTP, for every endpoint"),
    "demo": Topic("The demo, and Spark on a cluster", "See [demo.md](demo.md)."),
    "lectures": Topic("Lectures", "See [examples/lectures](../examples/lectures/README.md)."),
    "docs": Topic("These pages"),
    "console": Topic("The web console"),
}


@dataclass(slots=True)
class Promise:
    topic: str
    text: str
    tests: list[tuple[str, str]] = field(default_factory=list)
    """The file, relative to the repository, and the name of each test."""
    in_make_test: bool = False
    """Whether `make test` runs one of them; those with the mark `long` run in `make test-long` only."""


class BadMarkerError(Exception):
    """A promise marker that the page cannot show. The message says where and why."""


def test_files() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


def read_promises(files: list[Path] | None = None) -> list[Promise]:
    """The promises of the test files, in the order of files and lines."""
    found: dict[tuple[str, str], Promise] = {}
    for file in test_files() if files is None else files:
        source = file.read_text(encoding="utf-8")
        if "mark.promise" not in source:
            continue
        path = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file.name
        tree = ast.parse(source, path)
        markers = {id(node): node for node in ast.walk(tree) if _is_marker(node)}
        all_long = any(map(_marks_the_module_long, tree.body))
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for decorator in function.decorator_list:
                if not isinstance(decorator, ast.Call) or not _is_marker(decorator.func):
                    continue
                del markers[id(decorator.func)]
                topic, text = _arguments(decorator, f"{path}:{decorator.lineno}")
                if not function.name.startswith("test_"):
                    raise BadMarkerError(f"{path}:{decorator.lineno}: {function.name} is not a test")
                promise = found.setdefault((topic, text), Promise(topic, text))
                promise.tests.append((path, function.name))
                promise.in_make_test |= not (all_long or any(map(_is_long, function.decorator_list)))
        for left in markers.values():
            raise BadMarkerError(
                f"{path}:{left.lineno}: write @pytest.mark.promise(topic, sentence) above a test function"
            )
    return list(found.values())


def _is_marker(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.promise"


def _is_long(decorator: ast.expr) -> bool:
    """The mark `long` itself, or parameters that all have it."""
    match decorator:
        case ast.Call(func=ast.Attribute(attr="parametrize"), args=[_, ast.List(elts=values), *_]):
            return bool(values) and all(isinstance(value, ast.Call) and _has_long(value) for value in values)
    return ast.unparse(decorator) == "pytest.mark.long"


def _marks_the_module_long(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
            return _has_long(value)
    return False


def _has_long(node: ast.expr) -> bool:
    return any(isinstance(each, ast.Attribute) and _is_long(each) for each in ast.walk(node))


def _arguments(marker: ast.Call, where: str) -> tuple[str, str]:
    values = [each.value if isinstance(each, ast.Constant) else None for each in marker.args]
    match values:
        case [str(topic), str(text)] if not marker.keywords:
            pass
        case _:
            raise BadMarkerError(f"{where}: a promise takes a topic and a sentence, as two literal strings")
    if topic not in TOPICS:
        raise BadMarkerError(
            f"{where}: no topic {topic!r}; topics are in tests/promises.py: {', '.join(TOPICS)}"
        )
    if not text or text != text.strip() or "\n" in text or text.endswith(".") or len(text) > LONGEST:
        raise BadMarkerError(
            f"{where}: a promise is one sentence of at most {LONGEST} characters, without a full stop"
        )
    return topic, text


def page_of(promises: list[Promise]) -> str:
    lines = [HEAD]
    for key, topic in TOPICS.items():
        of_topic = [each for each in promises if each.topic == key]
        if not of_topic:
            raise BadMarkerError(
                f"no test has a promise of the topic {key!r}: remove it from tests/promises.py"
            )
        lines.append(f"## {topic.title}\n")
        if topic.about:
            lines.append(
                textwrap.fill(topic.about, 110, break_long_words=False, break_on_hyphens=False) + "\n"
            )
        for promise in of_topic:
            lines.append(f"- {promise.text}")
            lines += [
                f'  [{number}](../{path} "{name}")'
                for number, (path, name) in enumerate(promise.tests, start=1)
            ]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page_of(read_promises()), encoding="utf-8")
