"""A query as a consumer group: its progress is committed, so that every Kafka tool shows its lag.

The group is `kafka.group.id`, or `penstock-<query name>` (the query's id if it has no name). Spark passes the
name to the tasks of a query but not to the reader on the driver, which runs in its own process. So a task of
the first batch commits the start of its range to the group, with a token of the reader as the commit's
metadata; and the reader looks for its token among the groups with that prefix.

Spark's checkpoint is authoritative: nothing is read back from the group, and a failed commit is only logged.
Kafka rejects these commits while the group has members, so a group in use is not affected. A batch waits for
the coordinator only briefly, and not at all for a while after it did not respond.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import time
from collections.abc import Callable, Mapping

from penstock.client import ClientError, ClientSettings, Cluster
from penstock.client.groups import committed_metadata, list_groups
from penstock.errors import ApiError, IllegalGeneration, UnknownMemberId
from penstock.spark.source.offsets import Offsets, TopicPartition
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.plan import Range

log = logging.getLogger("penstock.spark")

_ATTEMPTS = 3
_TIMEOUT_MS = 5_000
_PAUSE_AFTER_FAILURE = 30.0


def group_settings(options: SourceOptions) -> ClientSettings:
    """The client's settings, with timeouts of a few seconds."""
    settings = ClientSettings.from_kafka(options.client_settings)
    return dataclasses.replace(
        settings,
        api_timeout_ms=min(settings.api_timeout_ms, _TIMEOUT_MS),
        request_timeout_ms=min(settings.request_timeout_ms, _TIMEOUT_MS),
    )


class GroupProgress:
    """The driver's side. `token` distinguishes this reader from all others."""

    def __init__(
        self, options: SourceOptions, token: str, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = Cluster(group_settings(options))
        self._monotonic = monotonic
        self._not_before = monotonic()
        self._prefix = options.group_id_prefix
        self._token = token
        self._group = options.group_id if options.commit_progress else None
        self._committed: Offsets = {}
        self._announced: TopicPartition | None = None
        self._attempts = _ATTEMPTS if options.commit_progress else 0
        self._reported = ""

    def token_for(self, wanted: Range) -> str | None:
        """The token that the task of this range must commit, if the group is not known yet."""
        if self._group is not None or not self._attempts:
            return None
        self._announced = (wanted.topic, wanted.partition)
        return self._token

    def close(self) -> None:
        self._cluster.close()

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits `offsets`: everything before them has been processed."""
        if self._monotonic() < self._not_before:
            return
        try:
            if self._group is None and not self._find():
                return
            changed = {
                place: offset for place, offset in offsets.items() if self._committed.get(place) != offset
            }
            if changed and self._group is not None:
                self._cluster.commit_offsets(self._group, changed)
                self._committed.update(changed)
                self._reported = ""
        except ClientError as error:
            self._not_before = self._monotonic() + _PAUSE_AFTER_FAILURE
            self._tell(error)
        except ApiError as error:
            self._tell(error)

    def _find(self) -> bool:
        if self._announced is None or not self._attempts:
            return False
        place, self._announced = self._announced, None
        for group in list_groups(self._cluster):
            if group.startswith(f"{self._prefix}-"):
                if committed_metadata(self._cluster, group, [place]).get(place) == self._token:
                    self._group = group
                    return True
        self._attempts -= 1
        if not self._attempts:
            log.warning(
                "the progress of this query is not committed to a consumer group, because its tasks could not"
                " announce one. Set kafka.group.id to name it"
            )
        return False

    def _tell(self, error: ClientError | ApiError) -> None:
        what = f"{type(error).__name__}: {error}"
        if isinstance(error, UnknownMemberId | IllegalGeneration):
            what = "the group has active members; choose another kafka.group.id"
        if what != self._reported:
            self._reported = what
            log.warning("could not commit the progress of this query to group %s: %s", self._group, what)


def announce(options: SourceOptions, wanted: Range, token: str) -> None:
    """The task's side: passes the group of the query to the reader by committing the start of this range."""
    name = query_name()
    if name is None:
        return
    group = f"{options.group_id_prefix}-{name}"
    try:
        with Cluster(group_settings(options)) as cluster:
            cluster.commit_offsets(group, {(wanted.topic, wanted.partition): wanted.start}, token)
    except (ClientError, ApiError) as error:
        log.warning("could not announce group %s: %s", group, error)


def query_name() -> str | None:
    """The name of the streaming query that this task works for, or its id if it has none."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return None
    description = context.getLocalProperty("spark.job.description") or ""
    return name_in(description) or context.getLocalProperty("sql.streaming.queryId")


def name_in(description: str) -> str | None:
    """The query's name from the description of a batch's jobs, the only place where Spark has it.

    Its lines are the name, the id, the id of the run, and the batch.
    """
    described = re.match(r"(.+)(?:\n|<br/>)id = [0-9a-f-]{36}(?:\n|<br/>)runId = ", description, re.DOTALL)
    return described.group(1) if described else None
