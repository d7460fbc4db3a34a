"""What statements ask of the cluster. Starts no Spark."""

from __future__ import annotations

import logging

import pytest

from penstock.client import ClientSettings, Cluster
from penstock.sql.catalog.cluster_admin import ClusterAdmin
from penstock.sql.settings import EngineSettings
from penstock.testing import PenstockBroker


@pytest.mark.promise(
    "sql", "A push query has no consumer group; the group of a query that is terminated or dropped is deleted"
)
def test_the_group_of_a_query_that_is_dropped_is_deleted(
    penstock: PenstockBroker, caplog: pytest.LogCaptureFixture
) -> None:
    penstock.create_topic("t")
    admin = ClusterAdmin(EngineSettings(penstock.bootstrap, None, ""))
    with Cluster(ClientSettings.from_kafka({"bootstrap.servers": penstock.bootstrap})) as cluster:
        cluster.commit_offsets("penstock-csas_t_1", {("t", 0): 0})
        with caplog.at_level(logging.WARNING):
            assert admin.delete_group("penstock-csas_t_1")
            assert not admin.delete_group("penstock-csas_t_1")
        assert caplog.text == ""
        assert cluster.committed("penstock-csas_t_1", [("t", 0)]) == {("t", 0): None}
    admin.close()
