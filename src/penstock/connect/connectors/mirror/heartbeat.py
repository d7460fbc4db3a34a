"""MirrorHeartbeatConnector: writes a record to the worker's cluster each second.

The topic is replicated, too: the age of the newest heartbeat in another cluster is the replication delay.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import ClassVar

from penstock.client import ClientError
from penstock.connect.api import (
    OffsetsReader,
    RetriableError,
    SourceConnector,
    SourceRecord,
    SourceTask,
    parse,
)
from penstock.connect.connectors.mirror.formats import Heartbeat
from penstock.connect.connectors.mirror.policy import HEARTBEATS
from penstock.connect.connectors.mirror.settings import (
    BYTES_ONLY,
    HEARTBEAT_FIELDS,
    PACKAGE,
    TARGET,
    connect,
    problems,
)
from penstock.connect.connectors.mirror.topics import COMPACTED, create_internal_topic
from penstock.errors import ApiError

_POLL_SECONDS = 0.5


class MirrorHeartbeatTask(SourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        settings = parse(HEARTBEAT_FIELDS, config)
        self._names = settings["source.cluster.alias"], settings["target.cluster.alias"]
        self._interval: int = settings["emit.heartbeats.interval.seconds"]
        self._replicas: int = settings["heartbeats.topic.replication.factor"]
        self._config = config
        self._created = False
        self._due = time.monotonic()

    def poll(self) -> list[SourceRecord]:
        if not self._created:
            self._create()
        wait = self._due - time.monotonic()
        if wait > 0:
            time.sleep(min(wait, _POLL_SECONDS))
            if wait > _POLL_SECONDS:
                return []
        self._due = time.monotonic() + self._interval
        now = int(time.time() * 1000)
        heartbeat = Heartbeat(*self._names, now)
        source, target = self._names
        return [
            SourceRecord(
                HEARTBEATS,
                heartbeat.value(),
                heartbeat.key(),
                partition=0,
                timestamp=now,
                source_partition={"sourceClusterAlias": source, "targetClusterAlias": target},
                source_offset={"offset": 0},
            )
        ]

    def _create(self) -> None:
        try:
            with connect(self._config, TARGET, "admin") as cluster:
                create_internal_topic(cluster, HEARTBEATS, self._replicas, COMPACTED)
        except (ClientError, ApiError) as error:
            raise RetriableError(f"creating the topic {HEARTBEATS}: {error}") from error
        self._created = True


class MirrorHeartbeatConnector(SourceConnector):
    """Heartbeats, which show that replication works and how far it is behind."""

    aliases = (PACKAGE + "MirrorHeartbeatConnector",)
    defaults: ClassVar[Mapping[str, str]] = BYTES_ONLY
    fields = HEARTBEAT_FIELDS
    task_class = MirrorHeartbeatTask
    exactly_once = True

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        return problems(config, cls.fields)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        enabled = self.settings["enabled"] and self.settings["emit.heartbeats.enabled"]
        return [dict(self.config)] if enabled else []
