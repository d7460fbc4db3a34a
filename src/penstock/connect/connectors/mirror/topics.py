"""Keeps topics of the target in line with those of the source: partitions, settings and ACLs.

Nothing is deleted: neither a topic nor an ACL that the source no longer has, as in MirrorMaker 2.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.client import Cluster, TopicPartition
from penstock.client.admin import (
    LITERAL,
    TopicAcl,
    TopicConfig,
    alter_topic_configs,
    create_partitions,
    create_topic_acls,
    topic_acls,
    topic_configs,
)
from penstock.connect.connectors.mirror.policy import NameFilter, ReplicationPolicy, TopicFilter
from penstock.errors import ApiError, SecurityDisabled

log = logging.getLogger(__name__)

COMPACTED = {"cleanup.policy": "compact"}
_ALLOW = 3
_ALL, _READ, _WRITE = 2, 3, 4


class TopicSync:
    """The replicated topics of the source, and their remote topics. Uses connections to both clusters."""

    def __init__(
        self, source: Cluster, target: Cluster, settings: Mapping[str, Any], policy: ReplicationPolicy
    ) -> None:
        self._source = source
        self._target = target
        self._settings = settings
        self._policy = policy
        self._filter = TopicFilter(settings, policy)
        self._configs = NameFilter((".*",), settings["config.properties.exclude"])
        self._no_acls = False
        self._refused: set[str] = set()

    def partitions(self) -> list[TopicPartition]:
        """The partitions to replicate; when this returns, the target has them, too."""
        wanted = {name for name in self._source.topics() if self._filter.matches(name)}
        known = self._source.partitions(wanted)
        there = self._target.partitions(self._policy.remote_topic(name) for name in wanted)
        found: list[TopicPartition] = []
        for name, info in sorted(known.items()):
            remote = self._policy.remote_topic(name)
            try:
                if remote not in there:
                    self._create(name, remote, info.partition_count)
                elif there[remote].partition_count < info.partition_count:
                    log.info("adding partitions to %s: now %d", remote, info.partition_count)
                    create_partitions(self._target, remote, info.partition_count)
            except ApiError as error:
                if error.retriable:
                    raise
                self._refuse(remote, error)
                continue
            self._refused.discard(remote)
            found += [(name, partition) for partition in range(info.partition_count)]
        return found

    def _refuse(self, remote: str, error: ApiError) -> None:
        """A topic that the target rejects must not stop the others."""
        if remote not in self._refused:
            self._refused.add(remote)
            log.error("Could not replicate topic %s; will retry: %s", remote, error)

    def _create(self, name: str, remote: str, partitions: int) -> None:
        own = topic_configs(self._source, [name])[name]
        config = {each.name: each.value for each in own if self._wanted(each) and each.value is not None}
        factor = replication_factor(self._target, self._settings["replication.factor"])
        log.info("creating topic %s with %d partitions", remote, partitions)
        self._target.create_topic(remote, partitions, config, True, replication_factor=factor)

    def _wanted(self, config: TopicConfig) -> bool:
        """Whether a remote topic gets this setting of its topic."""
        if config.fixed or not self._configs.matches(config.name):
            return False
        return config.own or self._settings["use.defaults.from"] == "source"

    def sync_configs(self, topics: Iterable[str]) -> None:
        """Copy the settings of topics to their remote topics, and remove those that a topic no longer has."""
        remotes = {name: self._policy.remote_topic(name) for name in topics}
        configs = topic_configs(self._source, remotes)
        current = topic_configs(self._target, remotes.values())
        for name, remote in remotes.items():
            changes = self._changes(configs.get(name, []), current.get(remote, []))
            if not changes:
                continue
            try:
                alter_topic_configs(self._target, remote, changes)
                log.info(
                    "topic %s follows the settings of its source: %s", remote, ", ".join(sorted(changes))
                )
            except ApiError as error:
                if error.retriable:
                    raise
                log.warning("topic %s does not follow the settings of its source: %s", remote, error)

    def _changes(self, source: Iterable[TopicConfig], target: Iterable[TopicConfig]) -> dict[str, str | None]:
        wanted = {each.name: each.value for each in source if self._wanted(each)}
        there = {each.name: each for each in target}
        changes: dict[str, str | None] = {
            name: value
            for name, value in wanted.items()
            if value is not None and (name not in there or there[name].value != value)
        }
        for each in there.values():
            if each.own and each.name not in wanted and not each.fixed and self._configs.matches(each.name):
                changes[each.name] = None
        return changes

    def sync_acls(self) -> None:
        """Copy the ACLs of topics to their remote topics: whoever may read the topic may read the remote
        topic, nobody may write.
        """
        try:
            acls = topic_acls(self._source)
            wanted = {self._remote_acl(each) for each in acls if self._replicates(each)}
            new = wanted - set(topic_acls(self._target)) if wanted else set()
            create_topic_acls(self._target, sorted(new))
        except SecurityDisabled:
            if not self._no_acls:
                self._no_acls = True
                log.info("ACLs are not replicated: a cluster has no authorizer")

    def _replicates(self, acl: TopicAcl) -> bool:
        writes = acl.permission == _ALLOW and acl.operation == _WRITE
        return acl.pattern_type == LITERAL and not writes and self._filter.matches(acl.topic)

    def _remote_acl(self, acl: TopicAcl) -> TopicAcl:
        operation = _READ if acl.permission == _ALLOW and acl.operation == _ALL else acl.operation
        return acl._replace(topic=self._policy.remote_topic(acl.topic), operation=operation)


def replication_factor(cluster: Cluster, wanted: int) -> int:
    """At most the number of brokers, so that it works in a small cluster."""
    return min(wanted, max(1, cluster.broker_count()))


def create_internal_topic(cluster: Cluster, name: str, replicas: int, config: Mapping[str, str]) -> None:
    """Create one of MirrorMaker's own topics, with one partition, unless it exists."""
    if name not in cluster.partitions([name]):
        factor = replication_factor(cluster, replicas)
        cluster.create_topic(name, 1, config, True, replication_factor=factor)
