"""The table of authorization rules of all APIs, as in Kafka 4.1; docs/security-acls.md is generated from it.

An API without a row here cannot be served with an authorizer, and fails a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.broker.audit.event import title
from penstock.broker.security.authorization.checks import (
    Check,
    Each,
    Free,
    Hidden,
    InHandler,
    MembersTopics,
    Operations,
    Subscribed,
    Whole,
)
from penstock.broker.security.authorization.special_checks import (
    AddedPartitions,
    ConfigResources,
    CoordinatorKeys,
    CreatedConfigs,
    DeleteTopicsCheck,
    GroupOffsets,
    InitProducerIdCheck,
    ListedTopics,
    SharedTopics,
    TransactionTopics,
    cluster,
)
from penstock.metadata.acls import Operation, ResourceType
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.primitives import ZERO_UUID

TOPIC: Final = ResourceType.TOPIC
GROUP: Final = ResourceType.GROUP
CLUSTER: Final = ResourceType.CLUSTER
TRANSACTION: Final = ResourceType.TRANSACTIONAL_ID
_IDS: Final = "an error for each topic that is denied, by name or by id; unknown ids stay unknown"


def _partitions(topic: Message, code: int) -> list[Message]:
    return [
        Message(partition_index=one.partition_index, error_code=code, error_message=None)
        for one in topic.partitions
    ]


def _deleted_offsets(topic: Message, code: int) -> Message:
    partitions = [Message(partition_index=one.partition_index, error_code=code) for one in topic.partitions]
    return Message(name=topic.name, partitions=partitions)


def _share_acknowledged(topic: Message, code: int) -> Message:
    nobody = Message(leader_id=-1, leader_epoch=-1)
    partitions = [Message(**one.__dict__, current_leader=nobody) for one in _partitions(topic, code)]
    return Message(topic_id=topic.topic_id, partitions=partitions)


def _share_fetched(topic: Message, code: int) -> Message:
    answer = _share_acknowledged(topic, code)
    for one in answer.partitions:
        one.__dict__.update(
            acknowledge_error_code=0, acknowledge_error_message=None, records=b"", acquired_records=[]
        )
    return answer


def _share_altered(topic: Message, code: int) -> Message:
    return Message(topic_name=topic.topic_name, topic_id=ZERO_UUID, partitions=_partitions(topic, code))


def _share_deleted(topic: Message, code: int) -> Message:
    return Message(topic_name=topic.topic_name, topic_id=ZERO_UUID, error_code=code, error_message=None)


def _fetched_offsets(topic: Message, code: int) -> Message:
    partitions = [
        Message(
            partition_index=index,
            committed_offset=-1,
            committed_leader_epoch=-1,
            metadata="",
            error_code=code,
        )
        for index in topic.partition_indexes
    ]
    by_name, by_id = getattr(topic, "name", ""), getattr(topic, "topic_id", ZERO_UUID)
    return Message(name=by_name, topic_id=by_id, partitions=partitions)


def _share_offsets(topic: Message, code: int) -> Message:
    partitions = [
        Message(
            partition_index=index,
            start_offset=-1,
            leader_epoch=0,
            lag=-1,
            error_code=code,
            error_message=None,
        )
        for index in topic.partitions
    ]
    return Message(topic_name=topic.topic_name, topic_id=ZERO_UUID, partitions=partitions)


def _group(operation: Operation) -> Whole:
    return Whole(GROUP, operation, name="group_id")


def _transaction() -> Whole:
    return Whole(TRANSACTION, Operation.WRITE, name="transactional_id")


def _groups(items: str, results: str = "groups") -> tuple[Check, ...]:
    return (
        Each(GROUP, Operation.DESCRIBE, items=items, results=results),
        Operations(GROUP, results=results, name="group_id"),
    )


_TO_BROKERS: Final = cluster(Operation.CLUSTER_ACTION)
_AUTHENTICATION: Final = Free(denied="the client is not known yet")
_OWN_METRICS: Final = Free(denied="every client may push metrics about itself, as in Kafka")
_OWN_TOKENS: Final = "tokens of others are left out, and not renewed or expired"

RULES: Final[dict[ApiKey, tuple[Check, ...]]] = {
    ApiKey.PRODUCE: (
        InHandler(TRANSACTION, Operation.WRITE, "the whole request fails, where it has a transactional id"),
        InHandler(TOPIC, Operation.WRITE, _IDS),
    ),
    ApiKey.FETCH: (
        InHandler(TOPIC, Operation.READ, _IDS),
        InHandler(CLUSTER, Operation.CLUSTER_ACTION, "TOPIC_AUTHORIZATION_FAILED for each (followers)"),
    ),
    ApiKey.LIST_OFFSETS: (Each(TOPIC, Operation.DESCRIBE),),
    ApiKey.METADATA: (
        Each(TOPIC, Operation.DESCRIBE, goes_on=True, denied=_IDS),
        InHandler(TOPIC, Operation.CREATE, "an error for a topic that would be created, unless CREATE is "
                  "allowed on the cluster"),
        Hidden(TOPIC, Operation.DESCRIBE, denied="left out where all topics are asked for"),
        Operations(TOPIC, results="topics", name="name", bits="topic_authorized_operations"),
        Operations(CLUSTER, bits="cluster_authorized_operations"),
    ),
    ApiKey.OFFSET_COMMIT: (_group(Operation.READ), Each(TOPIC, Operation.READ, denied=_IDS)),
    ApiKey.OFFSET_FETCH: (
        GroupOffsets(groups_since=8, refuse_topic=_fetched_offsets),
        InHandler(TOPIC, Operation.DESCRIBE, "an error for each topic; left out where all are asked for"),
    ),
    ApiKey.FIND_COORDINATOR: (
        CoordinatorKeys(GROUP, Operation.DESCRIBE, key_type=0),
        CoordinatorKeys(TRANSACTION, Operation.DESCRIBE, key_type=1),
        CoordinatorKeys(CLUSTER, Operation.CLUSTER_ACTION, key_type=2),
    ),
    ApiKey.JOIN_GROUP: (_group(Operation.READ),),
    ApiKey.HEARTBEAT: (_group(Operation.READ),),
    ApiKey.LEAVE_GROUP: (_group(Operation.READ),),
    ApiKey.SYNC_GROUP: (_group(Operation.READ),),
    ApiKey.DESCRIBE_GROUPS: _groups("groups"),
    ApiKey.LIST_GROUPS: (
        Hidden(GROUP, Operation.DESCRIBE, results="groups", name="group_id", unless=Operation.DESCRIBE,
               denied="left out of the answer, unless DESCRIBE is allowed on the cluster"),
    ),
    ApiKey.SASL_HANDSHAKE: (_AUTHENTICATION,),
    ApiKey.SASL_AUTHENTICATE: (_AUTHENTICATION,),
    ApiKey.API_VERSIONS: (_AUTHENTICATION,),
    ApiKey.CREATE_TOPICS: (
        Each(TOPIC, Operation.CREATE, unless=Operation.CREATE,
             denied="an error for each that is denied, unless CREATE is allowed on the cluster"),
        CreatedConfigs(),
    ),
    ApiKey.DELETE_TOPICS: (DeleteTopicsCheck(),),
    ApiKey.DELETE_RECORDS: (Each(TOPIC, Operation.DELETE),),
    ApiKey.INIT_PRODUCER_ID: (_transaction(), InitProducerIdCheck()),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Each(TOPIC, Operation.DESCRIBE, name="topic", unless=Operation.CLUSTER_ACTION,
             denied="an error for each that is denied, unless CLUSTER_ACTION is allowed"),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        Whole(TRANSACTION, Operation.WRITE, name="v3_and_below_transactional_id", versions=range(4),
              denied="the whole request fails (versions 0-3)"),
        AddedPartitions(),
        cluster(Operation.CLUSTER_ACTION, versions=range(4, 100),
                denied="the whole request fails (versions 4 and later, of brokers)"),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (_transaction(), _group(Operation.READ)),
    ApiKey.END_TXN: (_transaction(),),
    ApiKey.WRITE_TXN_MARKERS: (
        cluster(Operation.CLUSTER_ACTION, unless=Operation.ALTER,
                denied="the whole request fails, unless ALTER is allowed on the cluster"),
    ),
    ApiKey.TXN_OFFSET_COMMIT: (_transaction(), _group(Operation.READ), Each(TOPIC, Operation.READ)),
    ApiKey.DESCRIBE_ACLS: (cluster(Operation.DESCRIBE),),
    ApiKey.CREATE_ACLS: (cluster(Operation.ALTER),),
    ApiKey.DELETE_ACLS: (cluster(Operation.ALTER),),
    ApiKey.DESCRIBE_CONFIGS: (ConfigResources(TOPIC, Operation.DESCRIBE_CONFIGS),),
    ApiKey.ALTER_CONFIGS: (ConfigResources(TOPIC, Operation.ALTER_CONFIGS, results="responses"),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        ConfigResources(TOPIC, Operation.ALTER_CONFIGS, results="responses"),
    ),
    ApiKey.DESCRIBE_LOG_DIRS: (cluster(Operation.DESCRIBE),),
    ApiKey.CREATE_PARTITIONS: (Each(TOPIC, Operation.ALTER, results="results"),),
    ApiKey.CREATE_DELEGATION_TOKEN: (
        InHandler(ResourceType.USER, Operation.CREATE_TOKENS, "the whole request fails, where the owner is "
                  "another user"),
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: (Free(denied=_OWN_TOKENS),),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (Free(denied=_OWN_TOKENS),),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (
        InHandler(ResourceType.DELEGATION_TOKEN, Operation.DESCRIBE, _OWN_TOKENS),
        InHandler(ResourceType.USER, Operation.DESCRIBE_TOKENS, _OWN_TOKENS),
    ),
    ApiKey.DELETE_GROUPS: (
        Each(GROUP, Operation.DELETE, items="groups_names", results="results"),
    ),
    ApiKey.ELECT_LEADERS: (cluster(Operation.ALTER),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (cluster(Operation.ALTER),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (cluster(Operation.DESCRIBE),),
    ApiKey.OFFSET_DELETE: (
        _group(Operation.DELETE), Each(TOPIC, Operation.READ, refuse=_deleted_offsets),
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (cluster(Operation.DESCRIBE_CONFIGS),),
    ApiKey.ALTER_CLIENT_QUOTAS: (cluster(Operation.ALTER_CONFIGS),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (cluster(Operation.DESCRIBE),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (cluster(Operation.ALTER),),
    ApiKey.ALTER_PARTITION: (_TO_BROKERS,),
    ApiKey.DESCRIBE_CLUSTER: (Operations(CLUSTER, Operation.DESCRIBE, bits="cluster_authorized_operations",
                                         denied="0 as the authorized operations"),),
    ApiKey.DESCRIBE_PRODUCERS: (Each(TOPIC, Operation.READ),),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        Each(TRANSACTION, Operation.DESCRIBE, items="transactional_ids",
             results="transaction_states"),
        TransactionTopics(),
    ),
    ApiKey.LIST_TRANSACTIONS: (
        Hidden(TRANSACTION, Operation.DESCRIBE, results="transaction_states", name="transactional_id"),
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (_group(Operation.READ), Subscribed()),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (*_groups("group_ids"), MembersTopics()),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        ListedTopics(),
        Each(TOPIC, Operation.DESCRIBE),
        Operations(TOPIC, results="topics", name="name", bits="topic_authorized_operations"),
    ),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (_OWN_METRICS,),
    ApiKey.PUSH_TELEMETRY: (_OWN_METRICS,),
    ApiKey.LIST_CONFIG_RESOURCES: (cluster(Operation.DESCRIBE_CONFIGS),),
    ApiKey.SHARE_GROUP_HEARTBEAT: (_group(Operation.READ), Subscribed()),
    ApiKey.SHARE_GROUP_DESCRIBE: (*_groups("group_ids"), MembersTopics()),
    ApiKey.SHARE_FETCH: (
        _group(Operation.READ),
        SharedTopics(refuse=_share_fetched),
        Each(TOPIC, Operation.READ, results="responses", refuse=_share_fetched, denied=_IDS),
    ),
    ApiKey.SHARE_ACKNOWLEDGE: (
        _group(Operation.READ),
        Each(TOPIC, Operation.READ, results="responses", refuse=_share_acknowledged, denied=_IDS),
    ),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (_TO_BROKERS,),
    ApiKey.READ_SHARE_GROUP_STATE: (_TO_BROKERS,),
    ApiKey.WRITE_SHARE_GROUP_STATE: (_TO_BROKERS,),
    ApiKey.DELETE_SHARE_GROUP_STATE: (_TO_BROKERS,),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (_TO_BROKERS,),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        GroupOffsets(topic="topic_name", refuse_topic=_share_offsets),
        InHandler(TOPIC, Operation.DESCRIBE, "an error for each topic; left out where all are asked for"),
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (
        _group(Operation.READ),
        Each(TOPIC, Operation.READ, name="topic_name", results="responses", refuse=_share_altered),
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (
        _group(Operation.DELETE),
        Each(TOPIC, Operation.READ, name="topic_name", results="responses", refuse=_share_deleted),
    ),
}  # fmt: skip


def rows() -> Iterator[tuple[str, str, str, str]]:
    """API, resource, operation and what happens when it is denied, as the documentation has them."""
    for key, checks in RULES.items():
        for check in checks:
            if isinstance(check, ConfigResources):
                resource = "Topic, Group or Cluster"
            else:
                resource = "" if check.resource is None else title(check.resource.name)
            operation = "" if check.operation is None else title(check.operation.name)
            yield title(key.name), resource, operation, check.denied
