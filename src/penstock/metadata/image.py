"""The image: an immutable snapshot of the cluster's metadata, shared by all readers and replaced as a whole.

A change creates a new image that shares its unchanged parts with the old one; `version` increases with each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from penstock.credentials.scram import ScramCredential
from penstock.metadata.acls import Acl
from penstock.metadata.tokens import DelegationToken

AUDIT_TOPIC = "__penstock_audit"
CLIENT_METRICS_TOPIC = "__penstock_client_metrics"
INTERNAL_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", AUDIT_TOPIC, CLIENT_METRICS_TOPIC}
)

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    id: int
    host: str
    port: int
    rack: str | None = None
    epoch: int = 0
    listeners: tuple[tuple[str, str, int], ...] = ()
    """Name, host and port of each listener."""

    def address(self, listener: str) -> tuple[str, int] | None:
        """Host and port of this listener; None if the broker does not have it."""
        for name, host, port in self.listeners:
            if name == listener:
                return host, port
        return None if self.listeners else (self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionImage:
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = 0
    offline: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    """During a reassignment: the replicas to add, and those to remove."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: UUID
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def last_leader_epoch(self) -> int:
        return max((partition.leader_epoch for partition in self.partitions), default=-1)


QuotaEntity = tuple[tuple[str, str | None], ...]
"""The entity of a quota: sorted pairs of "user", "client-id" or "ip", and a name (None for the default)."""
Quotas = Mapping[QuotaEntity, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """`broker_configs` has the altered settings: under "" those for all brokers, under "1" those of broker 1.
    `group_configs` has the settings of groups, which need not exist yet, and `client_metrics` those of client
    metrics subscriptions. `acls` are keyed by the name of their node; `acls`, `quotas` and `client_metrics`
    stay the same objects until one of their entries changes.

    `deleted_epochs` has the last leader epochs of deleted topics: clients remember epochs by topic name, so a
    new topic of that name must start above them. `leaving` are brokers that are shutting down and should not
    be elected. `broken` has, for each broker, the partitions whose logs it cannot write. `credentials` are
    SCRAM credentials, by mechanism and user; `tokens` are delegation tokens, by id.
    """

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[UUID, TopicImage] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    client_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    deleted_epochs: Mapping[str, int] = field(default_factory=dict)
    leaving: frozenset[int] = frozenset()
    broken: Mapping[int, frozenset[tuple[str, int]]] = field(default_factory=dict)
    acls: Mapping[str, Acl] = field(default_factory=dict)
    quotas: Quotas = field(default_factory=dict)
    credentials: Mapping[tuple[str, str], ScramCredential] = field(default_factory=dict)
    tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    version: int = 0

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def unfit(self, topic: str, index: int) -> frozenset[int]:
        """The brokers that should not lead this partition if another in-sync replica can."""
        if not self.broken:
            return self.leaving
        return self.leaving.union(broker for broker, keys in self.broken.items() if (topic, index) in keys)

    def with_topics(self, topics: Iterable[TopicImage]) -> ClusterImage:
        """A new image with these topics added, or replaced if the name exists."""
        by_name, by_id, deleted = dict(self.topics), dict(self.topics_by_id), dict(self.deleted_epochs)
        for topic in topics:
            by_name[topic.name] = topic
            by_id[topic.id] = topic
            deleted.pop(topic.name, None)
        return replace(
            self, topics=by_name, topics_by_id=by_id, deleted_epochs=deleted, version=self.version + 1
        )

    def without_topics(self, topics: Iterable[TopicImage]) -> ClusterImage:
        by_name, by_id, deleted = dict(self.topics), dict(self.topics_by_id), dict(self.deleted_epochs)
        for topic in topics:
            del by_name[topic.name]
            del by_id[topic.id]
            deleted[topic.name] = topic.last_leader_epoch
        return replace(
            self, topics=by_name, topics_by_id=by_id, deleted_epochs=deleted, version=self.version + 1
        )

    def with_broker(self, broker: BrokerInfo) -> ClusterImage:
        return replace(self, brokers={**self.brokers, broker.id: broker}, version=self.version + 1)

    def with_credentials(self, changed: Mapping[tuple[str, str], ScramCredential | None]) -> ClusterImage:
        """A new image with changed credentials; None deletes one."""
        merged = {**self.credentials, **changed}
        credentials = {key: one for key, one in merged.items() if one is not None}
        return replace(self, credentials=credentials, version=self.version + 1)

    def with_token(self, token_id: str, token: DelegationToken | None) -> ClusterImage:
        """A new image with a changed token; None deletes it."""
        tokens = {key: one for key, one in self.tokens.items() if key != token_id}
        if token is not None:
            tokens[token_id] = token
        return replace(self, tokens=tokens, version=self.version + 1)

    def with_broker_configs(self, changed: Mapping[str, Mapping[str, str]]) -> ClusterImage:
        return replace(self, broker_configs={**self.broker_configs, **changed}, version=self.version + 1)

    def with_group_configs(self, changed: Mapping[str, Mapping[str, str]]) -> ClusterImage:
        configs = {**self.group_configs, **changed}
        return replace(
            self, group_configs={name: one for name, one in configs.items() if one}, version=self.version + 1
        )

    def with_client_metrics(self, changed: Mapping[str, Mapping[str, str]]) -> ClusterImage:
        merged = {**self.client_metrics, **changed}
        subscriptions = {name: one for name, one in merged.items() if one}
        return replace(self, client_metrics=subscriptions, version=self.version + 1)

    def with_acls(self, created: Mapping[str, Acl], deleted: Iterable[str] = ()) -> ClusterImage:
        acls = {**self.acls, **created}
        for name in deleted:
            acls.pop(name, None)
        return replace(self, acls=acls, version=self.version + 1)

    def with_quotas(self, changed: Quotas) -> ClusterImage:
        """A new image with changed quotas; an entity without quotas is removed."""
        quotas = {**self.quotas, **changed}
        return replace(
            self, quotas={entity: one for entity, one in quotas.items() if one}, version=self.version + 1
        )
