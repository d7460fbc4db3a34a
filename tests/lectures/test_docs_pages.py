"""The commands of the pages for newcomers run as they stand there, one after the other, on one broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing import PenstockBroker
from tests.doc_blocks import ROOT, commands
from tests.doc_shell import Shell


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker(
        {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    ) as process:
        yield process


@pytest.mark.promise(
    "docs",
    "The commands of concepts.md, from-kafka.md, troubleshooting.md and of the lectures run as printed",
)
@pytest.mark.parametrize(
    ("page", "shows"),
    [
        ("docs/concepts.md", ["starts", "teachers", "lessons"]),
        ("docs/from-kafka.md", ["payments", "accounts", "cleanup.policy", "compact"]),
        ("docs/troubleshooting.md", ["127.0.0.1"]),
        ("examples/lectures/README.md", ["customers"]),
    ],
)
def test_the_commands_of_a_page_run(page: str, shows: list[str], broker: PenstockBroker) -> None:
    address = {"create_topic.py": f"create_topic.py --bootstrap {broker.bootstrap}"}
    shell = Shell(ROOT, {"PENSTOCK_BOOTSTRAP": broker.bootstrap}, address)
    printed = "".join(shell.run(line) for line in commands(page))
    assert [text for text in shows if text not in printed] == []
