"""The metrics of groups on one broker of several."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from penstock.broker.broker import Broker
from penstock.broker.metrics.collector import BrokerCollector
from penstock.broker.metrics.loop_lag import LoopLag
from penstock.broker.net.dispatch import Dispatcher
from tests.unit.test_shard_host import commit
from tests.unit.test_transactions_broker import running


def exported(broker: Broker, name: str) -> dict[str, float]:
    """The samples of a metric, by group."""
    collector = BrokerCollector(broker, cast(Dispatcher, None), cast(LoopLag, None))  # of groups only
    metrics = {metric.name: metric for metric in collector._groups()}
    return {sample.labels["consumergroup"]: sample.value for sample in metrics[name].samples}


@pytest.mark.promise(
    "operations", "Lag is exported only by the broker that leads a partition, not by other replicas"
)
def test_lag_is_exported_where_the_partition_is_led(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, offsets_topic_num_partitions="1") as broker:
            await broker.groups.ensure_topic()
            commit(broker, 0)
            assert exported(broker, "kafka_consumergroup_lag") == {"g": 0}
            partition = broker.partitions["t", 0]
            partition.update(replace(partition.image, leader=2, replicas=(1, 2), isr=(1, 2)))
            assert exported(broker, "kafka_consumergroup_current_offset") == {"g": 0}
            assert exported(broker, "kafka_consumergroup_lag") == {}

    asyncio.run(main())


@pytest.mark.promise(
    "operations", "While one coordinator partition is loaded, the groups of the others have their metrics"
)
def test_a_shard_that_is_being_read_hides_no_other_group(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, offsets_topic_num_partitions="2") as broker:
            await broker.groups.ensure_topic()
            for group in ("a", "b", "c", "d"):
                commit(broker, 0, group)
            everyone = exported(broker, "kafka_consumergroup_current_offset").keys()
            assert everyone == {"a", "b", "c", "d"}
            hosted = broker.groups._hosted[broker.groups.partition_of("a")]
            shard, hosted.shard = hosted.shard, None
            others = exported(broker, "kafka_consumergroup_current_offset").keys()
            hosted.shard = shard
            part = broker.groups.partition_of
            read = {group for group in everyone if part(group) != part("a")}
            assert others == read and read

    asyncio.run(main())
