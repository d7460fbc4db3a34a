"""Leaders and controllers die, and nothing that was acknowledged is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.harness import running
from tests.cluster.history import Writer, check, read_all

pytestmark = pytest.mark.timeout(300)


def test_killing_the_leader_again_and_again_loses_nothing_acknowledged(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        cluster.create_topic("t", min_insync_replicas="2")
        with Writer(cluster, "t") as writer:
            for _ in range(5):
                writer.wait_for_progress()
                leader = cluster.leader("t")
                leader.kill()
                writer.wait_for_progress()
                leader.start()
                cluster.wait_in_sync("t")
            history = writer.stop()
        assert not history.failed
        check(history, read_all(cluster, "t"))
