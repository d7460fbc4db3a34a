"""docs/mirror.md, and operate.md on replication: their commands copy topics between two brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import PenstockBroker
from tests.connect.mirror.conftest import BROKER, Pair, connect
from tests.doc_blocks import blocks, commands
from tests.doc_shell import Shell

pytestmark = pytest.mark.timeout(400)
# By default each is done every minute or every 10 minutes.
SOON = [
    f"{what}.interval.seconds=1"
    for what in ("refresh.topics", "refresh.groups", "emit.checkpoints", "sync.group.offsets")
]
SET = " ".join(f"--set {each}" for each in SOON)


@pytest.fixture(scope="module")
def clusters() -> Iterator[Pair]:
    """Without records of other tests, which the page's command would copy."""
    with PenstockBroker(BROKER) as source, PenstockBroker(BROKER) as target:
        source.create_topic("orders")
        source.produce("orders", [f"order {number}" for number in range(10)])
        with connect(source.bootstrap) as cluster:
            cluster.commit_offsets("my-group", {("orders", 0): 5})
        yield Pair(source, target)


def shell_for(clusters: Pair, home: Path) -> Shell:
    hosts = {"east-1:9092": clusters.source, "kafka1:9092": clusters.source}
    hosts |= {"west-1:9092": clusters.target, "host1:9092": clusters.target}
    return Shell(home, instead={theirs: broker.bootstrap for theirs, broker in hosts.items()})


def shows(shell: Shell, line: str, text: str) -> bool:
    return text in shell.run(f"{line} 2>&1 || true")


@pytest.mark.promise(
    "docs", "The commands of mirror.md, its file, and the mirror of operate.md run as printed"
)
def test_the_commands_of_the_pages_run(clusters: Pair, tmp_path: Path) -> None:
    mirror, consume, offsets = commands("docs/mirror.md")
    shell = shell_for(clusters, tmp_path)
    with shell.running(f"{mirror} {SET} --ready-file {tmp_path}/ready.json") as running:
        running.wait_for("records are copied", lambda: shows(shell, consume, "order 9"))
        running.wait_for("there is a checkpoint", lambda: shows(shell, offsets, "east.orders"))
        assert len(shell.run(consume).splitlines()) >= 10

    (file,) = (block.text for block in blocks("docs/mirror.md", "properties"))
    text = "\n".join([shell.command(file), *SOON])
    (tmp_path / "mm2.properties").write_text(f"{text}\n")
    clusters.source.produce("orders", ["by the file"])
    with shell.running("penstock mirror --config mm2.properties") as running:
        running.wait_for("records are copied", lambda: shows(shell, consume, "by the file"))

    keep_names, lag = commands("docs/operate.md", "By replication: any cluster, no stop")
    kept = "penstock consume orders -b west-1:9092"
    with shell.running(f"{keep_names} {SET}") as running:
        running.wait_for("records are copied", lambda: shows(shell, kept, "by the file"))
        running.wait_for("offsets are copied", lambda: shows(shell, lag, "my-group"))
