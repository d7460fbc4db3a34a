"""Which topics of a cluster do not answer. Several brokers, no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.sql.server.cluster_health import ClusterHealth
from penstock.sql.settings import EngineSettings
from tests.cluster.harness import running, wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.mark.promise(
    "sql",
    "If the cluster does not respond, SHOW QUERIES shows the reason, pull queries fail immediately, the "
    "log gets one line a minute, and the server can still be stopped",
)
def test_a_broker_that_is_gone_is_seen_where_it_leads_and_nowhere_else(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        topics = [f"t{at}" for at in range(6)]
        for topic in topics:
            cluster.create_topic(topic, partitions=1, replicas=1)
        gone = cluster.leader(topics[0])
        led = {topic for topic in topics if cluster.leader(topic) is gone}
        others = set(topics) - led
        assert others
        health = ClusterHealth(EngineSettings(cluster.bootstrap, None, ""), lambda: topics)
        health.start()
        try:
            gone.kill()
            wait_until("it is seen", lambda: all(health.away([topic]) for topic in led))
            assert f"topic {topics[0]} has not answered since" in (health.away([topics[0]]) or "")
            assert health.away() is None
            assert health.away(others) is None
            gone.start()
            wait_until("it is back", lambda: health.away(topics) is None)
        finally:
            health.stop()
