"""Administration with aiokafka, which speaks the oldest versions of these APIs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from penstock.testing import PenstockBroker


def run(bootstrap: str, work: Callable[[Any], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            return await asyncio.wait_for(work(admin), 20)
        finally:
            await admin.close()

    return asyncio.run(main())


def test_topics_are_created_described_altered_and_deleted(
    broker: PenstockBroker, topic_name: Callable[[], str]
) -> None:
    name = topic_name()

    async def work(admin: Any) -> None:
        created = await admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "7000"})])
        assert [(each[0], each[1]) for each in created.topic_errors] == [(name, 0)]
        assert name in await admin.list_topics()
        await admin.create_partitions({name: NewPartitions(3)})
        (described,) = await admin.describe_topics([name])
        assert sorted(p["partition"] for p in described["partitions"]) == [0, 1, 2]

        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        (answer,) = await admin.describe_configs([resource])
        values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert values["retention.ms"] == "7000"
        await admin.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "8000"})]
        )
        (answer,) = await admin.describe_configs([resource])
        assert {entry[0]: entry[1] for entry in answer.resources[0][4]}["retention.ms"] == "8000"

        deleted = await admin.delete_topics([name])
        assert [code for _, code, *_ in deleted.topic_error_codes] == [0]
        assert name not in await admin.list_topics()

    run(broker.bootstrap, work)


def test_records_are_deleted_up_to_an_offset(broker: PenstockBroker, topic: str) -> None:
    broker.produce(topic, [f"{i}" for i in range(5)])
    partition = TopicPartition(topic, 0)

    async def work(admin: Any) -> Any:
        return await admin.delete_records({partition: RecordsToDelete(before_offset=3)})

    assert run(broker.bootstrap, work) == {partition: 3}
    assert [record.value for record in broker.consume(topic)] == [b"3", b"4"]


def test_the_cluster_is_described(broker: PenstockBroker) -> None:
    async def work(admin: Any) -> Any:
        return await admin.describe_cluster()

    cluster = run(broker.bootstrap, work)
    assert [(node["host"], node["port"]) for node in cluster["brokers"]] == [("127.0.0.1", broker.port)]
