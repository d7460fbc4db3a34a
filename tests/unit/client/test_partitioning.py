"""Every producer of librdkafka's in the source hashes keys as Kafka's Java clients do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

SOURCE = Path(penstock.__file__).parent


def makers() -> Iterator[Path]:
    """The modules that call, or hand on, what they import from confluent_kafka as a Producer."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        if "confluent_kafka" not in text:
            continue
        tree = ast.parse(text)
        names = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("confluent_kafka")
            for alias in node.names
            if alias.name.endswith("Producer")
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                used = [node.func, *node.args]
                if any(isinstance(one, ast.Name) and one.id in names for one in used):
                    yield path


@pytest.mark.promise(
    "demo",
    "Records with the same key go to the same partition: `penstock produce`, the demo, Spark's sink, SQL "
    "and Kafka's own clients hash keys with murmur2",
)
def test_every_module_that_makes_a_producer_names_the_partitioner_of_java() -> None:
    found = set(makers())
    assert len(found) > 5
    lacking = [path for path in found if '"partitioner": KEY_PARTITIONER' not in path.read_text()]
    assert not lacking
