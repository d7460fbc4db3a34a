"""The checks of APIs whose requests need their own handling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from penstock.broker.audit.denials import FAILED
from penstock.broker.security.authorization.checks import Check, RequestAccess, Whole, replaced
from penstock.errors import (
    ApiError,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    OperationNotAttempted,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from penstock.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from penstock.metadata.image import INTERNAL_TOPICS
from penstock.wire.codec import Message
from penstock.wire.primitives import ZERO_UUID

_TOPIC_CONFIG, _BROKER_CONFIGS, _GROUP_CONFIG = 2, (4, 8, 16), 32


@dataclass(frozen=True)
class ConfigResources(Check):
    """Settings of topics, groups and, as the cluster's, brokers, loggers and client metrics."""

    results: str = "results"
    denied: str = "an error for each resource that is denied: 29 for topics, 30 for groups, 31 else"

    def before(self, access: RequestAccess, request: Message) -> Message:
        allowed: list[Message] = []
        denied: dict[int, list[Message]] = {}
        for item in request.resources:
            kind = self._kind(item)
            assert self.operation is not None
            if kind is None or (
                access.allows_on_cluster(self.operation)
                if kind == ResourceType.CLUSTER
                else access.allows(self.operation, kind, item.resource_name)
            ):
                allowed.append(item)
            else:
                denied.setdefault(kind, []).append(item)
                name = CLUSTER_NAME if kind == ResourceType.CLUSTER else item.resource_name
                access.refuse(self.operation, kind, name)
        for refused_kind, items in denied.items():
            refused = access.api.error_response(
                access.context, replaced(request, resources=items), FAILED[refused_kind].code
            )
            access.parts.append((self.results, getattr(refused, self.results)))
        access.is_answered = bool(denied) and not allowed
        return replaced(request, resources=allowed)

    @staticmethod
    def _kind(item: Message) -> ResourceType | None:
        if item.resource_type == _TOPIC_CONFIG:
            return ResourceType.TOPIC
        if item.resource_type == _GROUP_CONFIG:
            return ResourceType.GROUP
        return ResourceType.CLUSTER if item.resource_type in _BROKER_CONFIGS else None


@dataclass(frozen=True)
class CoordinatorKeys(Check):
    """FindCoordinator: a group, a transactional id, or (for brokers) a share partition."""

    key_type: int = 0
    since: int = 4
    denied: str = "an error for each key that is denied; the others are answered"

    def before(self, access: RequestAccess, request: Message) -> Message:
        if request.key_type != self.key_type:
            return request
        assert self.operation is not None and self.resource is not None
        code = FAILED[self.resource].code

        def allows(key: str) -> bool:
            assert self.operation is not None and self.resource is not None
            name = CLUSTER_NAME if self.resource == ResourceType.CLUSTER else key
            allowed = access.allows(self.operation, self.resource, name)
            if not allowed:
                access.refuse(self.operation, self.resource, name)
            return allowed

        if access.context.version < self.since:
            if not allows(request.key):
                raise FAILED[self.resource]()
            return request
        keys = request.coordinator_keys
        denied = [key for key in keys if not allows(key)]
        if denied:
            refused = access.api.error_response(
                access.context, replaced(request, coordinator_keys=denied), code
            )
            access.parts.append(("coordinators", refused.coordinators))
            access.is_answered = len(denied) == len(keys)
        return replaced(request, coordinator_keys=[key for key in keys if key not in denied])


@dataclass(frozen=True)
class InitProducerIdCheck(Check):
    """InitProducerId without a transactional id: IDEMPOTENT_WRITE on the cluster, or WRITE on any topic
    (KIP-679)."""

    resource: ResourceType = ResourceType.CLUSTER
    operation: Operation = Operation.IDEMPOTENT_WRITE
    denied: str = "the whole request fails, unless WRITE is allowed on some topic"

    def before(self, access: RequestAccess, request: Message) -> Message:
        if request.transactional_id is None and not (
            access.allows_on_cluster(Operation.IDEMPOTENT_WRITE)
            or access.allows_on_any_topic(Operation.WRITE)
        ):
            access.refuse(self.operation, self.resource, CLUSTER_NAME)
            raise ClusterAuthorizationFailed()
        return request


@dataclass(frozen=True)
class AddedPartitions(Check):
    """AddPartitionsToTxn of clients: a transaction gets all of its partitions or none."""

    resource: ResourceType = ResourceType.TOPIC
    operation: Operation = Operation.WRITE
    denied: str = (
        "an error for each topic that is denied, OPERATION_NOT_ATTEMPTED for the others (versions 0-3)"
    )

    def before(self, access: RequestAccess, request: Message) -> Message:
        if access.context.version > 3:
            return request
        if not access.allows(
            Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id
        ):
            raise TransactionalIdAuthorizationFailed()
        topics = request.v3_and_below_topics
        denied = [topic for topic in topics if not self._allows(access, topic.name)]
        for topic in denied:
            access.refuse(self.operation, self.resource, topic.name)
        if denied:
            others = [topic for topic in topics if topic not in denied]
            for items, error in ((denied, TopicAuthorizationFailed), (others, OperationNotAttempted)):
                refused = access.api.error_response(
                    access.context, replaced(request, v3_and_below_topics=items), error.code
                )
                field = "results_by_topic_v3_and_below"
                access.parts.append((field, getattr(refused, field)))
            access.is_answered = True
        return request

    def _allows(self, access: RequestAccess, name: str) -> bool:
        return name not in INTERNAL_TOPICS and access.allows(self.operation, self.resource, name)


@dataclass(frozen=True)
class DeleteTopicsCheck(Check):
    """DeleteTopics: DELETE on the cluster is enough; else DESCRIBE and DELETE on each topic. The name of a
    topic that was asked for by id is only in the answer to those who may describe it."""

    resource: ResourceType = ResourceType.TOPIC
    operation: Operation = Operation.DELETE
    denied: str = "an error for each that is denied; a missing topic that may be described is unknown"

    def before(self, access: RequestAccess, request: Message) -> Message:
        if access.allows_on_cluster(Operation.DELETE):
            return request
        by_ref = access.context.version >= 6
        allowed: list[Any] = []
        denied: list[Message] = []
        for item in request.topics if by_ref else request.topic_names:
            name, topic_id = (item.name, item.topic_id) if by_ref else (item, ZERO_UUID)
            if name is None:
                name = access.topic_name(topic_id)
            if name is None or access.allows(Operation.DELETE, self.resource, name):
                allowed.append(item)
                continue
            describable = access.allows(Operation.DESCRIBE, self.resource, name)
            if describable and topic_id == ZERO_UUID and name not in access.broker.image.topics:
                allowed.append(item)
                continue
            access.refuse(Operation.DELETE, self.resource, name)
            denied.append(
                Message(
                    name=name if describable or topic_id == ZERO_UUID else None,
                    topic_id=topic_id,
                    error_code=TopicAuthorizationFailed.code,
                    error_message=None,
                )
            )
        access.parts.append(("responses", denied))
        return replaced(request, **{"topics" if by_ref else "topic_names": allowed})


@dataclass(frozen=True)
class CreatedConfigs(Check):
    """CreateTopics: whether the settings of a new topic are in the answer."""

    resource: ResourceType = ResourceType.TOPIC
    operation: Operation = Operation.DESCRIBE_CONFIGS
    denied: str = "the topic is created, and its settings are left out of the answer"

    def after(self, access: RequestAccess, answer: Message) -> None:
        for topic in answer.topics:
            if topic.error_code == 0 and not access.allows(self.operation, self.resource, topic.name):
                topic.topic_config_error_code = TopicAuthorizationFailed.code
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []


@dataclass(frozen=True)
class ListedTopics(Check):
    """DescribeTopicPartitions without names: all topics that may be described, also for the cursor."""

    resource: ResourceType = ResourceType.TOPIC
    operation: Operation = Operation.DESCRIBE
    denied: str = "left out of the answer where all topics are asked for"

    def before(self, access: RequestAccess, request: Message) -> Message:
        if request.topics:
            return request
        names = [
            name for name in access.broker.image.topics
            if access.allows(self.operation, self.resource, name)
        ]  # fmt: skip
        if not names:
            access.parts.append(("topics", []))
            access.is_answered = True
        return replaced(request, topics=[Message(name=name) for name in names])


@dataclass(frozen=True)
class TransactionTopics(Check):
    """DescribeTransactions: the topics of a transaction."""

    resource: ResourceType = ResourceType.TOPIC
    operation: Operation = Operation.DESCRIBE
    denied: str = "left out of the answer"

    def after(self, access: RequestAccess, answer: Message) -> None:
        for state in answer.transaction_states:
            state.topics = [
                one for one in state.topics if access.allows(self.operation, self.resource, one.topic)
            ]


@dataclass(frozen=True)
class GroupOffsets(Check):
    """Offsets of groups: a group that is denied has an error, and so have its denied topics; where all topics
    are asked for, those are left out."""

    resource: ResourceType = ResourceType.GROUP
    operation: Operation = Operation.DESCRIBE
    topic: str = "name"
    groups_since: int = 0
    refuse_topic: Callable[[Message, int], Message] | None = None
    denied: str = "an error for each group that is denied; for its topics see the next row"

    def before(self, access: RequestAccess, request: Message) -> Message:
        if access.context.version < self.groups_since:
            if not access.allows(self.operation, self.resource, request.group_id):
                access.refuse(self.operation, self.resource, request.group_id)
                raise GroupAuthorizationFailed()
            topics, denied = self._split(access, request)
            if denied:
                access.parts.append(("topics", denied))
            return replaced(request, topics=topics)
        groups, refused = [], []
        for group in request.groups:
            if access.allows(self.operation, self.resource, group.group_id):
                topics, denied = self._split(access, group)
                if denied:
                    access.parts.append((f"groups/{group.group_id}", denied))
                groups.append(replaced(group, topics=topics))
            else:
                refused.append(group)
                access.refuse(self.operation, self.resource, group.group_id)
        if refused:
            answer = access.api.error_response(
                access.context, replaced(request, groups=refused), GroupAuthorizationFailed.code
            )
            access.parts.append(("groups", answer.groups))
            access.is_answered = not groups
        return replaced(request, groups=groups)

    def _split(self, access: RequestAccess, group: Message) -> tuple[list[Message] | None, list[Message]]:
        assert self.refuse_topic is not None
        if group.topics is None:
            return None, []
        allowed, denied = [], []
        for topic in group.topics:
            if self._allows(access, topic):
                allowed.append(topic)
            else:
                denied.append(self.refuse_topic(topic, TopicAuthorizationFailed.code))
                access.refuse(Operation.DESCRIBE, ResourceType.TOPIC, self._name(access, topic) or "")
        return allowed, denied

    def _allows(self, access: RequestAccess, topic: Message) -> bool:
        name = self._name(access, topic)
        return name is None or access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)

    def _name(self, access: RequestAccess, topic: Message) -> str | None:
        """None for a topic id that is not known."""
        name: str | None = getattr(topic, self.topic, None)
        topic_id = getattr(topic, "topic_id", ZERO_UUID)
        if not name and topic_id != ZERO_UUID:
            return access.topic_name(topic_id)
        return name or ""

    def after(self, access: RequestAccess, answer: Message) -> None:
        of_groups = [part for part in access.parts if part[0].startswith("groups/")]
        access.parts = [part for part in access.parts if part not in of_groups]
        denied = {name.removeprefix("groups/"): topics for name, topics in of_groups}
        if access.context.version < self.groups_since:
            visible = [one for one in answer.topics if self._allows(access, one)]
            answer.__dict__["topics"] = visible
            return
        for group in answer.groups:
            if group.error_code == 0:
                visible = [one for one in group.topics if self._allows(access, one)]
                group.__dict__["topics"] = visible + denied.get(group.group_id, [])


@dataclass(frozen=True)
class SharedTopics(Check):
    """ShareFetch: the partitions of a share session. A topic that is denied now leaves the session."""

    resource: ResourceType = ResourceType.TOPIC
    operation: Operation = Operation.READ
    refuse: Callable[[Message, int], Message] | None = None
    denied: str = "an error for each topic of the session that is denied by now"

    def before(self, access: RequestAccess, request: Message) -> Message:
        assert self.refuse is not None
        try:
            session = access.broker.share.sessions.find(request.group_id, request.member_id)
        except ApiError:
            return request
        named = {topic.topic_id for topic in request.topics}
        denied: dict[UUID, list[int]] = {}
        for topic_id, index in session.partitions:
            name = access.topic_name(topic_id)
            if name is not None and not access.allows(self.operation, self.resource, name):
                if topic_id not in denied:
                    access.refuse(self.operation, self.resource, name)
                denied.setdefault(topic_id, []).append(index)
        if denied:
            session.update([], [(topic_id, index) for topic_id, found in denied.items() for index in found])
            refused = [
                self.refuse(
                    Message(topic_id=topic_id, partitions=[Message(partition_index=one) for one in found]),
                    TopicAuthorizationFailed.code,
                )
                for topic_id, found in denied.items()
                if topic_id not in named  # those are refused as named
            ]
            access.parts.append(("responses", refused))
        return request


def cluster(operation: Operation, **narrowed: Any) -> Whole:
    return Whole(ResourceType.CLUSTER, operation, **narrowed)
