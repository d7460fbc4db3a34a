"""Settings, partitions and ACLs of topics: what is needed to copy topics from one cluster to another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.client.brokers import check
from penstock.client.cluster import Cluster
from penstock.errors import InvalidPartitions
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

_TOPIC = 2  # resource type, of configurations and of ACLs alike
_SET, _DELETE = 0, 1
_OF_TOPIC, _OF_BROKER_FILE = 1, 4  # sources of a configuration value
_ANY = 1
LITERAL = 3


class TopicConfig(NamedTuple):
    """One configuration of a topic. `own` if it is set on the topic itself, not inherited from its broker."""

    name: str
    value: str | None
    own: bool
    fixed: bool
    """Read-only, secret, or from a broker's file: not to be copied to another topic."""


class TopicAcl(NamedTuple):
    """An ACL of a topic, with the numbers of the protocol."""

    topic: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


def topic_configs(cluster: Cluster, topics: Iterable[str]) -> dict[str, list[TopicConfig]]:
    """The configurations of each topic."""
    names = list(topics)
    resources = [Message(resource_type=_TOPIC, resource_name=name, configuration_keys=None) for name in names]
    request = Message(resources=resources, include_synonyms=False, include_documentation=False)

    def ask() -> dict[str, list[TopicConfig]]:
        answer = cluster._brokers.any().request(ApiKey.DESCRIBE_CONFIGS, request)
        found = {}
        for each in answer.results:
            check(each.error_code, each.error_message or f"topic {each.resource_name}")
            found[each.resource_name] = [
                TopicConfig(
                    one.name,
                    one.value,
                    one.config_source == _OF_TOPIC,
                    one.read_only or one.is_sensitive or one.config_source == _OF_BROKER_FILE,
                )
                for one in each.configs
            ]
        return found

    return cluster._brokers.retry("reading the settings of topics", ask) if names else {}


def alter_topic_configs(cluster: Cluster, topic: str, changes: Mapping[str, str | None]) -> None:
    """Set configurations of a topic; None deletes one, so that the broker's default applies."""
    configs = [
        Message(name=name, config_operation=_DELETE if value is None else _SET, value=value)
        for name, value in changes.items()
    ]
    resource = Message(resource_type=_TOPIC, resource_name=topic, configs=configs)
    request = Message(resources=[resource], validate_only=False)

    def ask() -> None:
        answer = cluster._brokers.controller().request(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
        for each in answer.responses:
            check(each.error_code, each.error_message or f"topic {topic}")

    cluster._brokers.retry(f"changing the settings of topic {topic}", ask)


def create_partitions(cluster: Cluster, topic: str, count: int) -> None:
    """Add partitions to a topic until it has `count`. Does nothing if it already has them."""
    new = Message(name=topic, count=count, assignments=None)
    request = Message(topics=[new], timeout_ms=cluster.settings.request_timeout_ms, validate_only=False)

    def ask() -> None:
        answer = cluster._brokers.controller().request(ApiKey.CREATE_PARTITIONS, request).results[0]
        if answer.error_code == InvalidPartitions.code:
            known = cluster._brokers.metadata([topic])
            if topic in known and known[topic].partition_count >= count:
                return  # after a lost response: our own request has created them
        check(answer.error_code, answer.error_message or f"topic {topic}")

    cluster._brokers.retry(f"adding partitions to topic {topic}", ask)
    cluster._brokers.forget()


def topic_acls(cluster: Cluster) -> list[TopicAcl]:
    """The ACLs of all topics. Raises SecurityDisabled if the cluster has no authorizer."""
    request = Message(
        resource_type_filter=_TOPIC,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )

    def ask() -> list[TopicAcl]:
        answer = cluster._brokers.any().request(ApiKey.DESCRIBE_ACLS, request)
        check(answer.error_code, answer.error_message or "the ACLs of topics")
        return [
            TopicAcl(
                each.resource_name,
                each.pattern_type,
                one.principal,
                one.host,
                one.operation,
                one.permission_type,
            )
            for each in answer.resources
            for one in each.acls
        ]

    return cluster._brokers.retry("reading the ACLs of topics", ask)


def create_topic_acls(cluster: Cluster, acls: Sequence[TopicAcl]) -> None:
    """Create ACLs. Existing ones stay unchanged."""
    if not acls:
        return
    creations = [
        Message(
            resource_type=_TOPIC,
            resource_name=each.topic,
            resource_pattern_type=each.pattern_type,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        for each in acls
    ]

    def ask() -> None:
        answer = cluster._brokers.controller().request(ApiKey.CREATE_ACLS, Message(creations=creations))
        for each, acl in zip(answer.results, acls, strict=True):
            check(each.error_code, each.error_message or f"the ACL of {acl.principal} for topic {acl.topic}")

    cluster._brokers.retry("creating ACLs of topics", ask)
