"""One broker's disk is full, or a directory dead: others lead what it cannot write, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.harness import Cluster, Node, running, wait_until
from tests.cluster.history import Writer, check, read_all

pytestmark = pytest.mark.timeout(300)

_DISK = 24 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Where broker 1 will have its data: a file system of a few megabytes."""
    if os.geteuid() != 0:
        pytest.skip("a disk that can be filled is mounted, which takes root")
    directory = tmp_path / "broker-1"
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "none", str(directory)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.mark.promise(
    "cluster", "A full or failed disk of one broker affects only the partitions on it and loses nothing"
)
def test_a_full_disk_of_one_broker_stops_nobody_and_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    with running(tmp_path) as cluster:
        cluster.create_topic("t", min_insync_replicas="2")
        with Writer(cluster, "t") as writer:
            writer.wait_for_progress()
            ballast = small_disk / "ballast"
            _fill(ballast)
            node = cluster.nodes[1]
            wait_until("it leads nothing that it cannot write", lambda: not _leads(cluster, "t", node))
            wait_until(
                "it is not in sync", lambda: all(1 not in isr for isr in cluster.in_sync("t").values())
            )
            writer.wait_for_progress()
            ballast.unlink()
            cluster.wait_in_sync("t")
            writer.wait_for_progress()
            history = writer.stop()
        assert not history.failed
        check(history, read_all(cluster, "t"))


@pytest.mark.promise(
    "cluster", "A full or failed disk of one broker affects only the partitions on it and loses nothing"
)
def test_a_dead_directory_of_the_leader_moves_the_lead_and_is_made_anew_at_its_next_start(
    cluster: Cluster,
) -> None:
    cluster.create_topic("dead", partitions=1, min_insync_replicas="2", segment_bytes="65536")
    with Writer(cluster, "dead", partitions=1, **{"linger.ms": 0}) as writer:
        writer.wait_for_progress()
        node = cluster.leader("dead")
        shutil.rmtree(node.directory / "dead-0")
        # The next segment cannot be made there.
        wait_until("another leads", lambda: not _leads(cluster, "dead", node))
        writer.wait_for_progress(500)
        # It tries again and again, and says so once for each leader that it follows.
        assert node.log_file.read_text().count("dead-0 cannot follow") < 5
        node.kill()
        node.start()
        cluster.wait_in_sync("dead")
        history = writer.stop()
    assert not history.failed
    check(history, read_all(cluster, "dead"))
    assert list((node.directory / "dead-0").glob("*.log"))


def _leads(cluster: Cluster, topic: str, node: Node) -> bool:
    return node.id in cluster.leaders(topic).values()


def _fill(path: Path) -> None:
    """Up to the last byte."""
    with path.open("wb", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                if file.write(bytes(size)) < size:
                    size //= 2
            except OSError:
                size //= 2
