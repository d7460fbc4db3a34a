"""Without ZooKeeper nothing changes, and what is led is served on; when it returns all goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from tests.cluster.harness import Cluster, running, wait_until
from tests.cluster.history import Writer, check, read_all

pytestmark = pytest.mark.timeout(300)


def test_produce_and_fetch_go_on_while_the_quorum_is_lost_and_changes_wait_for_its_return(
    tmp_path: Path,
) -> None:
    with running(tmp_path, ensemble=3) as cluster:
        cluster.create_topic("t", min_insync_replicas="2")
        with Writer(cluster, "t") as writer:
            writer.wait_for_progress()
            for server in cluster.zookeepers[1:]:
                server.kill()
            # Longer than a session: brokers that cannot renew it serve on all the same.
            for _ in range(4):
                writer.wait_for_progress(200)
            assert _create_fails(cluster, "while-away")
            for server in cluster.zookeepers[1:]:
                server.start(wait=False)
            for server in cluster.zookeepers:
                server.wait_until_serving()
            wait_until("topics can be made again", lambda: not _create_fails(cluster, "afterwards"))
            # A leader that dies now is replaced again.
            leader = cluster.leader("t")
            leader.kill()
            wait_until("another leads", lambda: leader.id not in cluster.leaders("t").values())
            writer.wait_for_progress()
            leader.start()
            cluster.wait_in_sync("t")
            history = writer.stop()
        assert not history.failed
        check(history, read_all(cluster, "t"))


def _create_fails(cluster: Cluster, name: str) -> bool:
    futures = cluster.admin.create_topics([NewTopic(name, 1, 3)], request_timeout=5, operation_timeout=4)
    try:
        futures[name].result()
    except KafkaException as error:
        return "already exists" not in str(error)
    return False
