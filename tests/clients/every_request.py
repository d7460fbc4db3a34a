"""A request that succeeds, for each API that is served and in whatever version is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.testing import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.clients.raw import topic_id


def advertised(wire: WireClient) -> dict[int, tuple[int, int]]:
    answer = wire.request(ApiKey.API_VERSIONS, 0, Message())
    assert answer.error_code == 0
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}


def software() -> Message:
    return Message(client_software_name="test", client_software_version="1")


def fetch(wire: WireClient, topic: str, version: int) -> Message:
    asked = Message(
        topic=topic,
        topic_id=topic_id(wire, topic),
        partitions=[
            Message(
                partition=0,
                current_leader_epoch=-1,
                fetch_offset=0,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=1 << 20,
            )
        ],
    )
    return Message(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[asked],
        forgotten_topics_data=[],
        rack_id="",
    )


def list_offsets(wire: WireClient, topic: str, version: int) -> Message:
    partition = Message(partition_index=0, current_leader_epoch=-1, timestamp=-1)
    return Message(
        replica_id=-1,
        isolation_level=0,
        timeout_ms=1000,
        topics=[Message(name=topic, partitions=[partition])],
    )


def create_topics(wire: WireClient, topic: str, version: int) -> Message:
    new = Message(
        name=f"{topic}-created-{version}",
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[Message(name="retention.ms", value="1000")],
    )
    return Message(topics=[new], timeout_ms=1000, validate_only=False)


def delete_topics(wire: WireClient, topic: str, version: int) -> Message:
    create = create_topics(wire, f"{topic}-deleted", version)
    assert wire.request(ApiKey.CREATE_TOPICS, 7, create).topics[0].error_code == 0
    name = create.topics[0].name
    return Message(topic_names=[name], topics=[Message(name=name)], timeout_ms=1000)


def create_partitions(wire: WireClient, topic: str, version: int) -> Message:
    added = Message(name=topic, count=version + 2, assignments=None)
    return Message(topics=[added], timeout_ms=1000, validate_only=True)


def delete_records(wire: WireClient, topic: str, version: int) -> Message:
    partition = Message(partition_index=0, offset=0)
    return Message(topics=[Message(name=topic, partitions=[partition])], timeout_ms=1000)


def init_producer_id(wire: WireClient, topic: str, version: int) -> Message:
    return Message(transactional_id=None, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1)


def offset_for_leader_epoch(wire: WireClient, topic: str, version: int) -> Message:
    partition = Message(partition=0, current_leader_epoch=-1, leader_epoch=0)
    return Message(replica_id=-2, topics=[Message(topic=topic, partitions=[partition])])


def describe_configs(wire: WireClient, topic: str, version: int) -> Message:
    resource = Message(resource_type=2, resource_name=topic, configuration_keys=None)
    return Message(resources=[resource], include_synonyms=True, include_documentation=True)


def alter_configs(wire: WireClient, topic: str, version: int) -> Message:
    change = Message(name="retention.ms", value="1000", config_operation=0)
    return Message(
        resources=[Message(resource_type=2, resource_name=topic, configs=[change])], validate_only=False
    )


REQUESTS: dict[ApiKey, Callable[[WireClient, str, int], Message]] = {
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.METADATA: lambda wire, topic, version: Message(topics=[Message(name=topic)]),
    ApiKey.API_VERSIONS: lambda wire, topic, version: software(),
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.DELETE_RECORDS: delete_records,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.ALTER_CONFIGS: alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_configs,
    ApiKey.DESCRIBE_LOG_DIRS: lambda wire, topic, version: Message(
        topics=[Message(topic=topic, partitions=[0])]
    ),
    ApiKey.ELECT_LEADERS: lambda wire, topic, version: Message(election_type=0, topic_partitions=[]),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda wire, topic, version: Message(
        topics=[Message(name=topic, partitions=[Message(partition_index=0, replicas=[1])])]
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda wire, topic, version: Message(topics=None),
    ApiKey.DESCRIBE_CLUSTER: lambda wire, topic, version: Message(
        include_cluster_authorized_operations=True, endpoint_type=1
    ),
    ApiKey.DESCRIBE_PRODUCERS: lambda wire, topic, version: Message(
        topics=[Message(name=topic, partition_indexes=[0])]
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda wire, topic, version: Message(
        topics=[Message(name=topic)], response_partition_limit=10, cursor=None
    ),
}


def errors_in(message: Any) -> Iterator[int]:
    """Every error code in an answer, however deep."""
    if isinstance(message, list):
        for item in message:
            yield from errors_in(item)
    elif isinstance(message, Message):
        for name, value in vars(message).items():
            if name == "error_code":
                yield value
            else:
                yield from errors_in(value)
