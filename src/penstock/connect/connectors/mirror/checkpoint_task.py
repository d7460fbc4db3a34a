"""The task of MirrorCheckpointConnector: translates offsets of its groups, and commits them in the target."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from penstock.client import ClientError, Cluster, TopicPartition
from penstock.client.errors import AuthenticationFailed, BadClientSetting, TlsFailed
from penstock.client.groups import all_committed, describe_groups
from penstock.connect.api import (
    ConnectError,
    OffsetsReader,
    RetriableError,
    SourceRecord,
    SourceTask,
    parse,
)
from penstock.connect.connectors.mirror.checkpoints import (
    Known,
    TopicFollower,
    new_checkpoints,
    read_checkpoints,
)
from penstock.connect.connectors.mirror.formats import Checkpoint, OffsetSync
from penstock.connect.connectors.mirror.offset_syncs import OffsetSyncs
from penstock.connect.connectors.mirror.policy import NameFilter, policy_of
from penstock.connect.connectors.mirror.settings import CHECKPOINT_FIELDS, SOURCE, TARGET, connect
from penstock.errors import ApiError

log = logging.getLogger(__name__)

GROUPS = "task.assigned.groups"
_POLL_SECONDS = 0.5
_IDLE = ("Empty", "Dead", "")
_FATAL = (AuthenticationFailed, BadClientSetting, TlsFailed)


class MirrorCheckpointTask(SourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        settings = parse(CHECKPOINT_FIELDS, config)
        self._policy = policy_of(settings)
        self._target_alias: str = settings["target.cluster.alias"]
        self._groups = config[GROUPS].split(",")
        self._topics = NameFilter(settings["topics"], settings["topics.exclude"])
        self._checkpoints_topic = self._policy.checkpoints_topic()
        self._emit_seconds: int = settings["emit.checkpoints.interval.seconds"]
        self._sync_seconds: int | None = None
        if settings["sync.group.offsets.enabled"]:
            self._sync_seconds = settings["sync.group.offsets.interval.seconds"]
        self._source: Cluster = connect(config, SOURCE, "admin")
        self._target: Cluster = connect(config, TARGET, "admin")
        at_source = settings["offset-syncs.topic.location"] == SOURCE
        other = self._target_alias if at_source else settings["source.cluster.alias"]
        self._followed = TopicFollower(
            self._source if at_source else self._target, self._policy.offset_syncs_topic(other)
        )
        self._syncs = OffsetSyncs()
        self._known: Known | None = None
        self._emit_due = self._sync_due = time.monotonic()

    def poll(self) -> list[SourceRecord]:
        now = time.monotonic()
        if now < self._emit_due:
            time.sleep(min(_POLL_SECONDS, self._emit_due - now))
            return []
        try:
            records = self._emit()
            if self._sync_seconds is not None and now >= self._sync_due:
                self._sync_groups()
                self._sync_due = now + self._sync_seconds
        except _FATAL:
            raise
        except ClientError as error:
            raise RetriableError(str(error)) from error
        except ApiError as error:
            raise (RetriableError if error.retriable else ConnectError)(str(error)) from error
        self._emit_due = now + self._emit_seconds
        return records

    def _emit(self) -> list[SourceRecord]:
        if self._known is None:
            # The checkpoints of earlier runs: a checkpoint does not go back because this run knows fewer
            # syncs.
            self._known = read_checkpoints(self._target, self._checkpoints_topic)
        self._followed.read(self._take_sync)
        timestamp = int(time.time() * 1000)
        records = []
        for group in self._groups:
            committed = {
                place: found
                for place, found in all_committed(self._source, group).items()
                if self._topics.matches(place[0])
            }
            known = self._known.setdefault(group, {})
            for new in new_checkpoints(group, committed, self._syncs, self._rename, known):
                known[new.topic, new.partition] = new
                records.append(self._record(new, timestamp))
        return records

    def _take_sync(self, key: bytes, value: bytes | None) -> None:
        if value is not None:
            self._syncs.add(OffsetSync.of(key, value))

    def _rename(self, topic: str) -> str:
        """The topic's name in the target; a topic that came from the target has its original name there."""
        if self._policy.topic_source(topic) == self._target_alias:
            return self._policy.original_topic(topic)
        return self._policy.remote_topic(topic)

    def _record(self, checkpoint: Checkpoint, timestamp: int) -> SourceRecord:
        return SourceRecord(
            self._checkpoints_topic,
            checkpoint.value(),
            checkpoint.key(),
            partition=0,
            timestamp=timestamp,
            source_partition={
                "group": checkpoint.group,
                "partition": checkpoint.partition,
                "topic": checkpoint.topic,
            },
            source_offset={"offset": 0},
        )

    def _sync_groups(self) -> None:
        """Commit translated offsets in the target that are ahead of the group's, for groups without members
        there.
        """
        assert self._known is not None
        listed = describe_groups(self._target)
        for group in self._groups:
            if group in listed and listed[group].state not in _IDLE:
                continue
            there = all_committed(self._target, group) if group in listed else {}
            offsets: dict[TopicPartition, int] = {}
            for place, checkpoint in self._known.get(group, {}).items():
                if place not in there or there[place].offset < checkpoint.downstream_offset:
                    offsets[place] = checkpoint.downstream_offset
            try:
                self._target.commit_offsets(group, offsets)
            except ApiError as error:
                if error.retriable:
                    raise
                log.warning("Could not replicate offsets of group %s; will retry: %s", group, error)

    def stop(self) -> None:
        self._source.close()
        self._target.close()
