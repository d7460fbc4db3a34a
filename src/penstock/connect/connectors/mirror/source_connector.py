"""MirrorSourceConnector: replicates topics of the source cluster, with settings and ACLs, to the worker's
cluster.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from penstock.client import READ_COMMITTED, Cluster, TopicPartition
from penstock.connect.api import ConnectError, SourceConnector
from penstock.connect.connectors.mirror.policy import policy_of
from penstock.connect.connectors.mirror.schedule import Schedule
from penstock.connect.connectors.mirror.settings import (
    BYTES_ONLY,
    PACKAGE,
    SOURCE,
    SOURCE_FIELDS,
    TARGET,
    client,
    connect,
    problems,
)
from penstock.connect.connectors.mirror.source_task import PARTITIONS, MirrorSourceTask
from penstock.connect.connectors.mirror.topics import COMPACTED, TopicSync, create_internal_topic


class MirrorSourceConnector(SourceConnector):
    """Replicates topics from another cluster, exactly once if the worker's sources are."""

    aliases = (PACKAGE + "MirrorSourceConnector",)
    defaults: ClassVar[Mapping[str, str]] = {
        **BYTES_ONLY,
        # A transaction for each fetch would fill an idle target with markers.
        "transaction.boundary": "interval",
        "transaction.boundary.interval.ms": "100",
    }
    fields = SOURCE_FIELDS
    task_class = MirrorSourceTask
    exactly_once = True
    poll_changes_seconds = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._known: list[TopicPartition] = []
        self._new = False
        self._clusters: list[Cluster] = []
        self._schedule = Schedule(time.monotonic)

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        found = problems(config, cls.fields)
        if config.get("exactly.once.support", "").lower() == "required" and not any(found.values()):
            if client(config, SOURCE, "consumer").isolation != READ_COMMITTED:
                found["exactly.once.support"] = [
                    "Exactly once needs source.consumer.isolation.level=read_committed, the default: "
                    "otherwise records of aborted transactions are replicated"
                ]
        return found

    def start(self, config: Mapping[str, str]) -> None:
        super().start(config)
        settings = self.settings
        if not settings["enabled"]:
            return
        policy = policy_of(settings)
        self._clusters = [connect(config, cluster, "admin") for cluster in (SOURCE, TARGET)]
        source, target = self._clusters
        self._topics = TopicSync(source, target, settings, policy)
        self._create_syncs_topic(policy.offset_syncs_topic)
        jobs = self._schedule
        refresh = settings["refresh.topics.interval.seconds"]
        jobs.every(
            refresh if settings["refresh.topics.enabled"] else float("inf"),
            "looking for topics to replicate",
            self._refresh,
        )
        if settings["sync.topic.configs.enabled"]:
            jobs.every(
                settings["sync.topic.configs.interval.seconds"],
                "replicating the settings of topics",
                lambda: self._topics.sync_configs({name for name, _ in self._known}),
            )
        if settings["sync.topic.acls.enabled"]:
            jobs.every(
                settings["sync.topic.acls.interval.seconds"],
                "replicating the ACLs of topics",
                self._topics.sync_acls,
            )
        jobs.run()

    def _create_syncs_topic(self, name_for: Any) -> None:
        settings = self.settings
        if not settings["emit.offset-syncs.enabled"]:
            return
        at_source = settings["offset-syncs.topic.location"] == SOURCE
        other = settings["target.cluster.alias" if at_source else "source.cluster.alias"]
        replicas = settings["offset-syncs.topic.replication.factor"]
        cluster = self._clusters[0 if at_source else 1]
        topic = name_for(other)
        self._schedule.every(
            float("inf"),
            "creating the offset-syncs topic",
            lambda: create_internal_topic(cluster, topic, replicas, COMPACTED),
        )

    def _refresh(self) -> None:
        found = self._topics.partitions()
        self._new = self._new or found != self._known
        self._known = found

    def changed(self) -> bool:
        self._schedule.run()
        return self._new

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Partitions are distributed round-robin, so that a large topic is spread over all tasks."""
        self._new = False
        count = min(max_tasks, len(self._known))
        return [
            {
                **self.config,
                PARTITIONS: ",".join(f"{topic}-{partition}" for topic, partition in self._known[task::count]),
                "task.index": str(task),
            }
            for task in range(count)
        ]

    def stop(self) -> None:
        for cluster in self._clusters:
            cluster.close()

    @classmethod
    def alter_offsets(
        cls, config: Mapping[str, str], offsets: Sequence[tuple[dict[str, Any], dict[str, Any] | None]]
    ) -> bool:
        for partition, offset in offsets:
            if offset is None:
                continue
            for name, kind in (("cluster", str), ("topic", str), ("partition", int)):
                value = partition.get(name)
                if not isinstance(value, kind):
                    raise ConnectError(
                        f"Source partition must contain '{name}', not {value!r}, in {partition}"
                    )
            value = offset.get("offset")
            if not isinstance(value, int) or value < 0:
                raise ConnectError(
                    f"Source offset must contain 'offset', the offset of the last record that is replicated, "
                    f"not {value!r}"
                )
        return True
