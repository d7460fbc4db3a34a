"""MirrorCheckpointConnector: finds the groups of the source with offsets in replicated topics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import ClassVar

from penstock.client import Cluster
from penstock.client.groups import all_committed, describe_groups
from penstock.connect.api import SourceConnector
from penstock.connect.connectors.mirror.checkpoint_task import GROUPS, MirrorCheckpointTask
from penstock.connect.connectors.mirror.policy import NameFilter, policy_of
from penstock.connect.connectors.mirror.schedule import Schedule
from penstock.connect.connectors.mirror.settings import (
    BYTES_ONLY,
    CHECKPOINT_FIELDS,
    PACKAGE,
    SOURCE,
    TARGET,
    connect,
    problems,
)
from penstock.connect.connectors.mirror.topics import COMPACTED, create_internal_topic

_CONSUMERS = ("consumer", "")  # "" is a group that only commits offsets


class MirrorCheckpointConnector(SourceConnector):
    """Replicates the committed offsets of groups, translated to offsets in the target."""

    aliases = (PACKAGE + "MirrorCheckpointConnector",)
    defaults: ClassVar[Mapping[str, str]] = BYTES_ONLY
    fields = CHECKPOINT_FIELDS
    task_class = MirrorCheckpointTask
    exactly_once = True
    poll_changes_seconds = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._known: list[str] = []
        self._new = False
        self._clusters: list[Cluster] = []
        self._schedule = Schedule(time.monotonic)

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        return problems(config, cls.fields)

    def start(self, config: Mapping[str, str]) -> None:
        super().start(config)
        settings = self.settings
        if not settings["enabled"] or not settings["emit.checkpoints.enabled"]:
            return
        self._policy = policy_of(settings)
        self._groups = NameFilter(settings["groups"], settings["groups.exclude"])
        self._topics = NameFilter(settings["topics"], settings["topics.exclude"])
        self._clusters = [connect(config, cluster, "admin") for cluster in (SOURCE, TARGET)]
        refresh = settings["refresh.groups.interval.seconds"]
        self._schedule.every(float("inf"), "creating the checkpoints topic", self._create)
        self._schedule.every(
            refresh if settings["refresh.groups.enabled"] else float("inf"),
            "looking for groups to replicate",
            self._refresh,
        )
        self._schedule.run()

    def _create(self) -> None:
        replicas = self.settings["checkpoints.topic.replication.factor"]
        create_internal_topic(self._clusters[1], self._policy.checkpoints_topic(), replicas, COMPACTED)

    def _refresh(self) -> None:
        source = self._clusters[0]
        found = [
            group
            for group, listing in sorted(describe_groups(source).items())
            if listing.protocol_type in _CONSUMERS
            and self._groups.matches(group)
            and any(self._topics.matches(topic) for topic, _ in all_committed(source, group))
        ]
        self._new = self._new or found != self._known
        self._known = found

    def changed(self) -> bool:
        self._schedule.run()
        return self._new

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        self._new = False
        count = min(max_tasks, len(self._known))
        return [
            {**self.config, GROUPS: ",".join(self._known[task::count]), "task.index": str(task)}
            for task in range(count)
        ]

    def stop(self) -> None:
        for cluster in self._clusters:
            cluster.close()
