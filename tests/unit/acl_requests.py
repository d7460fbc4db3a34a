"""For each row of the table of ACL checks a request, and what it must be granted to be answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from penstock.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message

TOPIC, GROUP, SHARE_GROUP, TRANSACTION = "t", "g", "g-share", "x"
CONSUMER_GROUP, SHARE_CONSUMERS = "g-with-member", "g-share-with-member"
NEW = "t-new"
DENIED = {29, 30, 31, 53, 65}
CODES = {
    ResourceType.TOPIC: 29,
    ResourceType.GROUP: 30,
    ResourceType.CLUSTER: 31,
    ResourceType.TRANSACTIONAL_ID: 53,
}
NAMES = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.CLUSTER: CLUSTER_NAME,
    ResourceType.TRANSACTIONAL_ID: TRANSACTION,
}

Build = Callable[[UUID, int], Message]


@dataclass(frozen=True)
class Grant:
    """`hides` is what the answer shows only with it; where it is None, its error code is what is answered
    without it (`code`, or the one of the resource). `bits` are authorized operations that it shows."""

    resource: ResourceType
    operation: Operation
    hides: Callable[[Message], bool] | None = None
    code: int | None = None
    bits: str = ""


@dataclass(frozen=True)
class Case:
    key: ApiKey
    build: Build
    grants: tuple[Grant, ...]
    versions: range = range(100)

    def __str__(self) -> str:
        return f"{self.key.name.lower()}-{self.versions.start}"


def topic(operation: Operation, **more: Any) -> Grant:
    return Grant(ResourceType.TOPIC, operation, **more)


def group(operation: Operation, **more: Any) -> Grant:
    return Grant(ResourceType.GROUP, operation, **more)


def transaction(operation: Operation, **more: Any) -> Grant:
    return Grant(ResourceType.TRANSACTIONAL_ID, operation, **more)


def cluster(operation: Operation, **more: Any) -> Grant:
    return Grant(ResourceType.CLUSTER, operation, **more)


def _operations(grant: Grant, results: str = "", bits: str = "authorized_operations") -> Grant:
    """The grant by which the answer has authorized operations, of its items or as a whole."""

    def shown(answer: Message) -> bool:
        return any(getattr(one, bits) > 0 for one in (getattr(answer, results) if results else [answer]))

    return replace(grant, hides=shown, bits=bits)


def _indexes(**more: Any) -> list[Message]:
    return [Message(partition_index=0, **more)]


def _named(**more: Any) -> list[Message]:
    return [Message(name=TOPIC, **more)]


def _produce(topic_id: UUID, version: int, *, transactional: bool = False) -> Message:
    producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
    records = build_batch([Record(0, 0, None, b"v")], transactional=transactional, **producer)
    data = Message(name=TOPIC, topic_id=topic_id, partition_data=[Message(index=0, records=records)])
    return Message(transactional_id=None, acks=1, timeout_ms=1000, topic_data=[data])


def _transactional(topic_id: UUID, version: int) -> Message:
    built = _produce(topic_id, version, transactional=True)
    return Message(**{**built.__dict__, "transactional_id": TRANSACTION})


def _fetch(topic_id: UUID, version: int, replica: int = -1) -> Message:
    partition = Message(partition=0, fetch_offset=0, partition_max_bytes=1000)
    asked = Message(topic=TOPIC, topic_id=topic_id, partitions=[partition])
    state = Message(replica_id=replica, replica_epoch=-1)
    return Message(
        replica_id=replica, replica_state=state, max_wait_ms=0, min_bytes=0, max_bytes=1000, session_id=0,
        session_epoch=-1, topics=[asked], forgotten_topics_data=[],
    )  # fmt: skip


def _heartbeat(topic_id: UUID, version: int) -> Message:
    return Message(
        group_id="g-consumer", member_id="m", member_epoch=0, rebalance_timeout_ms=1000, topic_partitions=[],
        subscribed_topic_names=[TOPIC],
    )  # fmt: skip


# A group of each kind with a member, which descriptions show: a request, its version and API.
JOINING = (
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, Message(
        group_id=CONSUMER_GROUP, member_id="m", member_epoch=0, rebalance_timeout_ms=1000,
        topic_partitions=[], subscribed_topic_names=[TOPIC],
    )),
    (ApiKey.SHARE_GROUP_HEARTBEAT, 1, Message(
        group_id=SHARE_CONSUMERS, member_id="m", member_epoch=0, subscribed_topic_names=[TOPIC],
    )),
)  # fmt: skip


def _share_heartbeat(topic_id: UUID, version: int) -> Message:
    return Message(group_id="g-members", member_id="m", member_epoch=0, subscribed_topic_names=[TOPIC])


def _share(topic_id: UUID, version: int) -> Message:
    partitions = _indexes(acknowledgement_batches=[])
    return Message(
        group_id=GROUP, member_id="AAAAAAAAAAAAAAAAAAAAAA", share_session_epoch=0, max_wait_ms=0, min_bytes=0,
        max_bytes=1000, topics=[Message(topic_id=topic_id, partitions=partitions)],
    )  # fmt: skip


def _acknowledge(topic_id: UUID, version: int) -> Message:
    fields = ("group_id", "member_id", "share_session_epoch", "topics")
    built = _share(topic_id, version)
    return Message(**{name: getattr(built, name) for name in fields})


def _share_state(**partition: int) -> Build:
    return lambda topic_id, version: Message(
        group_id=GROUP, topics=[Message(topic_id=topic_id, partitions=[Message(partition=0, **partition)])]
    )


def _resources(kind: int, name: str, **more: Any) -> Build:
    resource = Message(resource_type=kind, resource_name=name, **more)
    return lambda topic_id, version: Message(resources=[resource])


def _coordinator(kind: int, key: str) -> Build:
    return lambda topic_id, version: (
        Message(key=key, key_type=kind) if version < 4 else Message(key_type=kind, coordinator_keys=[key])
    )


def _txn_commit(topic_id: UUID, version: int) -> Message:
    return Message(
        transactional_id=TRANSACTION, group_id=GROUP, producer_id=1, producer_epoch=0,
        topics=_named(partitions=_indexes(committed_offset=0, committed_metadata="")),
    )  # fmt: skip


def _added(topic_id: UUID, version: int) -> Message:
    if version >= 4:
        one = Message(transactional_id=TRANSACTION, producer_id=1, producer_epoch=0, verify_only=False,
                      topics=_named(partitions=[0]))  # fmt: skip
        return Message(transactions=[one])
    return Message(
        v3_and_below_transactional_id=TRANSACTION, v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0, v3_and_below_topics=_named(partitions=[0]),
    )  # fmt: skip


def _offset_fetch(topic_id: UUID, version: int) -> Message:
    one = Message(name=TOPIC, topic_id=topic_id, partition_indexes=[0])
    if version < 8:
        return Message(group_id=GROUP, topics=[one])
    return Message(groups=[Message(group_id=GROUP, member_id=None, member_epoch=-1, topics=[one])])


def _create(topic_id: UUID, version: int) -> Message:
    new = Message(name=NEW, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return Message(topics=[new], timeout_ms=1000, validate_only=True)


def _delete(topic_id: UUID, version: int) -> Message:
    return Message(topic_names=[TOPIC], topics=[Message(name=TOPIC)], timeout_ms=1000)


def _elect(topic_id: UUID, version: int) -> Message:
    return Message(election_type=0, topic_partitions=[Message(topic=TOPIC, partitions=[0])], timeout_ms=1000)


def _join(topic_id: UUID, version: int) -> Message:
    return Message(
        group_id=GROUP, session_timeout_ms=6000, rebalance_timeout_ms=6000, member_id="",
        protocol_type="consumer", protocols=[],
    )  # fmt: skip


_ACL = Message(resource_type=2, resource_name="some", resource_pattern_type=3, principal="User:some",
               host="*", operation=3, permission_type=3)  # fmt: skip
_NO_ACL = Message(resource_type_filter=2, resource_name_filter="none", pattern_type_filter=3, operation=1,
                  permission_type=1)  # fmt: skip


def _always(**fields: Any) -> Build:
    return lambda topic_id, version: Message(**fields)


def _shows(results: str, name: str) -> Callable[[Message], bool]:
    return lambda answer: bool([one for one in getattr(answer, results) if getattr(one, name)])


_OFFSET = _indexes(committed_offset=0, committed_metadata="")
_WRITTEN = (topic(Operation.WRITE),)
_SETTING = {"configs": [Message(name="retention.ms", value="1000", config_operation=0)]}
_MARKER = Message(producer_id=1, producer_epoch=0, transaction_result=True, coordinator_epoch=0,
                  topics=_named(partition_indexes=[0]))  # fmt: skip

CASES: tuple[Case, ...] = (
    Case(ApiKey.PRODUCE, _produce, _WRITTEN, range(3, 100)),
    Case(ApiKey.PRODUCE, _transactional, (transaction(Operation.WRITE), *_WRITTEN), range(11, 100)),
    Case(ApiKey.FETCH, _fetch, (topic(Operation.READ),)),
    Case(ApiKey.FETCH, lambda topic_id, version: _fetch(topic_id, version, 2),
         (cluster(Operation.CLUSTER_ACTION, code=29),), range(5, 100)),
    Case(ApiKey.LIST_OFFSETS,
         _always(replica_id=-1, topics=_named(partitions=_indexes(timestamp=-1))),
         (topic(Operation.DESCRIBE),)),
    Case(ApiKey.METADATA, _always(topics=_named()), (topic(Operation.DESCRIBE),)),
    Case(ApiKey.METADATA, lambda topic_id, version: Message(topics=[Message(name=None, topic_id=topic_id)]),
         (topic(Operation.DESCRIBE),), range(12, 100)),
    Case(ApiKey.METADATA, _always(topics=None),
         (topic(Operation.DESCRIBE, hides=_shows("topics", "name")),), range(1, 100)),
    Case(ApiKey.METADATA, lambda topic_id, version: Message(
        topics=[Message(name=f"{NEW}-{version}")], allow_auto_topic_creation=True),
         (Grant(ResourceType.CLUSTER, Operation.CREATE, code=29),), range(4, 100)),
    Case(ApiKey.METADATA, lambda topic_id, version: Message(
        topics=[Message(name=f"{NEW}-own-{version}")], allow_auto_topic_creation=True),
         (topic(Operation.DESCRIBE), topic(Operation.CREATE)), range(4, 100)),
    Case(ApiKey.METADATA, _always(topics=_named(), include_topic_authorized_operations=True),
         (_operations(topic(Operation.DESCRIBE), "topics", "topic_authorized_operations"),), range(8, 100)),
    Case(ApiKey.METADATA, _always(topics=[], include_cluster_authorized_operations=True),
         (_operations(cluster(Operation.DESCRIBE), bits="cluster_authorized_operations"),), range(8, 11)),
    Case(ApiKey.OFFSET_COMMIT,
         lambda topic_id, version: Message(group_id=GROUP, topics=[
             Message(name=TOPIC, topic_id=topic_id, partitions=_OFFSET)]),
         (group(Operation.READ), topic(Operation.READ))),
    Case(ApiKey.OFFSET_FETCH, _offset_fetch, (group(Operation.DESCRIBE), topic(Operation.DESCRIBE))),
    Case(ApiKey.FIND_COORDINATOR, _coordinator(0, GROUP), (group(Operation.DESCRIBE),)),
    Case(ApiKey.FIND_COORDINATOR, _coordinator(1, TRANSACTION), (transaction(Operation.DESCRIBE),),
         range(1, 100)),
    Case(ApiKey.FIND_COORDINATOR, _coordinator(2, "g:AAAAAAAAAAAAAAAAAAAAAA:0"),
         (cluster(Operation.CLUSTER_ACTION),), range(6, 100)),
    Case(ApiKey.JOIN_GROUP, _join, (group(Operation.READ),)),
    Case(ApiKey.HEARTBEAT, _always(group_id=GROUP, generation_id=1, member_id="m"), (group(Operation.READ),)),
    Case(ApiKey.LEAVE_GROUP, _always(group_id=GROUP, member_id="m", members=[]), (group(Operation.READ),)),
    Case(ApiKey.SYNC_GROUP, _always(group_id=GROUP, generation_id=1, member_id="m", assignments=[],
                                    protocol_type="consumer", protocol_name="range"),
         (group(Operation.READ),)),
    Case(ApiKey.DESCRIBE_GROUPS, _always(groups=[GROUP]), (group(Operation.DESCRIBE),)),
    Case(ApiKey.DESCRIBE_GROUPS, _always(groups=[GROUP], include_authorized_operations=True),
         (_operations(group(Operation.DESCRIBE), "groups"),), range(3, 100)),
    Case(ApiKey.LIST_GROUPS, _always(),
         (group(Operation.DESCRIBE, hides=_shows("groups", "group_id")),)),
    Case(ApiKey.CREATE_TOPICS, _create, (topic(Operation.CREATE), topic(Operation.DESCRIBE_CONFIGS, hides=(
        lambda answer: answer.topics[0].error_code or not answer.topics[0].topic_config_error_code)),),
        range(5, 100)),
    Case(ApiKey.CREATE_TOPICS, _create, (topic(Operation.CREATE),)),
    Case(ApiKey.DELETE_TOPICS, _delete, (topic(Operation.DELETE),)),
    Case(ApiKey.DELETE_TOPICS,
         lambda topic_id, version: Message(topics=[Message(topic_id=topic_id)], timeout_ms=1000),
         (topic(Operation.DELETE),), range(6, 100)),
    Case(ApiKey.DELETE_RECORDS, _always(topics=_named(partitions=_indexes(offset=0)), timeout_ms=1000),
         (topic(Operation.DELETE),)),
    Case(ApiKey.INIT_PRODUCER_ID, _always(transactional_id=TRANSACTION, transaction_timeout_ms=1000,
                                          producer_id=-1, producer_epoch=-1),
         (transaction(Operation.WRITE),)),
    Case(ApiKey.INIT_PRODUCER_ID, _always(transactional_id=None, transaction_timeout_ms=1000,
                                          producer_id=-1, producer_epoch=-1),
         (cluster(Operation.IDEMPOTENT_WRITE),)),
    Case(ApiKey.OFFSET_FOR_LEADER_EPOCH,
         _always(replica_id=-1, topics=[Message(topic=TOPIC, partitions=[Message(partition=0)])]),
         (topic(Operation.DESCRIBE),)),
    Case(ApiKey.ADD_PARTITIONS_TO_TXN, _added, (transaction(Operation.WRITE), topic(Operation.WRITE)),
         range(4)),
    Case(ApiKey.ADD_PARTITIONS_TO_TXN, _added, (cluster(Operation.CLUSTER_ACTION),), range(4, 100)),
    Case(ApiKey.ADD_OFFSETS_TO_TXN, _always(transactional_id=TRANSACTION, producer_id=1, producer_epoch=0,
                                            group_id=GROUP),
         (transaction(Operation.WRITE), group(Operation.READ))),
    Case(ApiKey.END_TXN, _always(transactional_id=TRANSACTION, producer_id=1, producer_epoch=0,
                                 committed=True), (transaction(Operation.WRITE),)),
    Case(ApiKey.WRITE_TXN_MARKERS, _always(markers=[_MARKER]), (cluster(Operation.CLUSTER_ACTION),)),
    Case(ApiKey.WRITE_TXN_MARKERS, _always(markers=[_MARKER]), (cluster(Operation.ALTER),)),
    Case(ApiKey.TXN_OFFSET_COMMIT, _txn_commit,
         (transaction(Operation.WRITE), group(Operation.READ), topic(Operation.READ))),
    Case(ApiKey.DESCRIBE_ACLS, lambda topic_id, version: _NO_ACL, (cluster(Operation.DESCRIBE),)),
    Case(ApiKey.CREATE_ACLS, _always(creations=[_ACL]), (cluster(Operation.ALTER),)),
    Case(ApiKey.DELETE_ACLS, _always(filters=[_NO_ACL]), (cluster(Operation.ALTER),)),
    Case(ApiKey.DESCRIBE_CONFIGS, _resources(2, TOPIC), (topic(Operation.DESCRIBE_CONFIGS),)),
    Case(ApiKey.DESCRIBE_CONFIGS, _resources(4, "1"), (cluster(Operation.DESCRIBE_CONFIGS),)),
    Case(ApiKey.DESCRIBE_CONFIGS, _resources(32, GROUP), (group(Operation.DESCRIBE_CONFIGS),)),
    *(
        Case(key, _resources(kind, name, **_SETTING), (Grant(resource, Operation.ALTER_CONFIGS),))
        for key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
        for kind, name, resource in (
            (2, TOPIC, ResourceType.TOPIC), (4, "1", ResourceType.CLUSTER), (32, GROUP, ResourceType.GROUP)
        )
    ),
    Case(ApiKey.DESCRIBE_LOG_DIRS, _always(topics=None),
         (cluster(Operation.DESCRIBE, hides=_shows("results", "log_dir")),)),
    Case(ApiKey.CREATE_PARTITIONS,
         _always(topics=_named(count=2, assignments=None), timeout_ms=1000, validate_only=True),
         (topic(Operation.ALTER),)),
    Case(ApiKey.DELETE_GROUPS, _always(groups_names=[GROUP]), (group(Operation.DELETE),)),
    Case(ApiKey.ELECT_LEADERS, _elect, (cluster(Operation.ALTER),)),
    Case(ApiKey.ALTER_PARTITION_REASSIGNMENTS,
         _always(topics=_named(partitions=_indexes(replicas=[1])), timeout_ms=1000),
         (cluster(Operation.ALTER),)),
    Case(ApiKey.LIST_PARTITION_REASSIGNMENTS, _always(topics=None, timeout_ms=1000),
         (cluster(Operation.DESCRIBE),)),
    Case(ApiKey.OFFSET_DELETE, _always(group_id=GROUP, topics=_named(partitions=_indexes())),
         (group(Operation.DELETE), topic(Operation.READ))),
    Case(ApiKey.DESCRIBE_CLIENT_QUOTAS, _always(components=[], strict=False),
         (cluster(Operation.DESCRIBE_CONFIGS),)),
    Case(ApiKey.ALTER_CLIENT_QUOTAS,
         _always(entries=[Message(entity=[Message(entity_type="user", entity_name="u")], ops=[])],
                 validate_only=False),
         (cluster(Operation.ALTER_CONFIGS),)),
    Case(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, _always(users=[]), (cluster(Operation.DESCRIBE),)),
    Case(ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
         _always(deletions=[Message(name="nobody", mechanism=1)], upsertions=[]),
         (cluster(Operation.ALTER),)),
    Case(ApiKey.ALTER_PARTITION, _always(broker_id=1, broker_epoch=0, topics=[]),
         (cluster(Operation.CLUSTER_ACTION),)),
    Case(ApiKey.DESCRIBE_CLUSTER, _always(include_cluster_authorized_operations=True, endpoint_type=1),
         (_operations(cluster(Operation.DESCRIBE), bits="cluster_authorized_operations"),)),
    Case(ApiKey.DESCRIBE_PRODUCERS, _always(topics=_named(partition_indexes=[0])), (topic(Operation.READ),)),
    Case(ApiKey.DESCRIBE_TRANSACTIONS, _always(transactional_ids=[TRANSACTION]),
         (transaction(Operation.DESCRIBE),)),
    Case(ApiKey.LIST_TRANSACTIONS, _always(state_filters=[], producer_id_filters=[]),
         (transaction(Operation.DESCRIBE, hides=_shows("transaction_states", "transactional_id")),)),
    Case(ApiKey.CONSUMER_GROUP_HEARTBEAT, _heartbeat, (group(Operation.READ), topic(Operation.DESCRIBE))),
    Case(ApiKey.CONSUMER_GROUP_DESCRIBE, _always(group_ids=[GROUP]), (group(Operation.DESCRIBE),)),
    Case(ApiKey.CONSUMER_GROUP_DESCRIBE,
         _always(group_ids=[CONSUMER_GROUP], include_authorized_operations=True),
         (_operations(group(Operation.DESCRIBE), "groups"), topic(Operation.DESCRIBE))),
    Case(ApiKey.DESCRIBE_TOPIC_PARTITIONS,
         _always(topics=_named(), response_partition_limit=10, cursor=None), (topic(Operation.DESCRIBE),)),
    Case(ApiKey.DESCRIBE_TOPIC_PARTITIONS, _always(topics=_named(), response_partition_limit=10, cursor=None),
         (_operations(topic(Operation.DESCRIBE), "topics", "topic_authorized_operations"),)),
    Case(ApiKey.DESCRIBE_TOPIC_PARTITIONS, _always(topics=[], response_partition_limit=10, cursor=None),
         (topic(Operation.DESCRIBE, hides=_shows("topics", "name")),)),
    Case(ApiKey.LIST_CONFIG_RESOURCES, _always(), (cluster(Operation.DESCRIBE_CONFIGS),)),
    Case(ApiKey.SHARE_GROUP_HEARTBEAT, _share_heartbeat, (group(Operation.READ), topic(Operation.DESCRIBE))),
    Case(ApiKey.SHARE_GROUP_DESCRIBE, _always(group_ids=[GROUP]), (group(Operation.DESCRIBE),)),
    Case(ApiKey.SHARE_GROUP_DESCRIBE,
         _always(group_ids=[SHARE_CONSUMERS], include_authorized_operations=True),
         (_operations(group(Operation.DESCRIBE), "groups"), topic(Operation.DESCRIBE))),
    Case(ApiKey.SHARE_FETCH, _share, (group(Operation.READ), topic(Operation.READ))),
    Case(ApiKey.SHARE_ACKNOWLEDGE, _acknowledge, (group(Operation.READ),)),
    Case(ApiKey.INITIALIZE_SHARE_GROUP_STATE, _share_state(state_epoch=0, start_offset=0),
         (cluster(Operation.CLUSTER_ACTION),)),
    Case(ApiKey.READ_SHARE_GROUP_STATE, _share_state(leader_epoch=0), (cluster(Operation.CLUSTER_ACTION),)),
    Case(ApiKey.WRITE_SHARE_GROUP_STATE, _share_state(state_epoch=0, leader_epoch=0, start_offset=0),
         (cluster(Operation.CLUSTER_ACTION),)),
    Case(ApiKey.DELETE_SHARE_GROUP_STATE, _share_state(), (cluster(Operation.CLUSTER_ACTION),)),
    Case(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, _share_state(leader_epoch=0),
         (cluster(Operation.CLUSTER_ACTION),)),
    Case(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
         _always(groups=[Message(group_id=SHARE_GROUP, topics=[Message(topic_name=TOPIC, partitions=[0])])]),
         (group(Operation.DESCRIBE), topic(Operation.DESCRIBE))),
    Case(ApiKey.ALTER_SHARE_GROUP_OFFSETS,
         _always(group_id=SHARE_GROUP,
                 topics=[Message(topic_name=TOPIC, partitions=_indexes(start_offset=0))]),
         (group(Operation.READ), topic(Operation.READ))),
    Case(ApiKey.DELETE_SHARE_GROUP_OFFSETS,
         _always(group_id=SHARE_GROUP, topics=[Message(topic_name=TOPIC)]),
         (group(Operation.DELETE), topic(Operation.READ))),
)  # fmt: skip


def codes_in(message: Any) -> Iterator[int]:
    """Every error code in an answer, however deep."""
    if isinstance(message, list):
        for item in message:
            yield from codes_in(item)
    elif isinstance(message, Message):
        for name, value in vars(message).items():
            if name.endswith("error_code") and name != "topic_config_error_code":
                yield value
            else:
                yield from codes_in(value)
