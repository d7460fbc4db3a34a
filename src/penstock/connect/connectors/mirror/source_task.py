"""The task of MirrorSourceConnector: reads batches of its partitions, and writes offset syncs for them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from penstock.client import EARLIEST, LATEST, ClientError, Cluster, FetchedBytes, TopicPartition
from penstock.client.errors import AuthenticationFailed, BadClientSetting, TlsFailed
from penstock.client.partition_reader import PartitionReader
from penstock.connect.api import (
    BatchSourceTask,
    ConnectError,
    OffsetsReader,
    RawBatch,
    RetriableError,
    parse,
)
from penstock.connect.connectors.mirror.batches import batches_to_copy
from penstock.connect.connectors.mirror.offset_syncs import SyncWriter
from penstock.connect.connectors.mirror.policy import policy_of
from penstock.connect.connectors.mirror.settings import SOURCE, SOURCE_FIELDS, TARGET, client, connect
from penstock.errors import ApiError

log = logging.getLogger(__name__)

PARTITIONS = "task.assigned.partitions"
_POLL_SECONDS = 0.1
_FATAL = (AuthenticationFailed, BadClientSetting, TlsFailed)


class MirrorSourceTask(BatchSourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        settings = parse(SOURCE_FIELDS, config)
        self._policy = policy_of(settings)
        self._alias: str = settings["source.cluster.alias"]
        self._from_end = _begins_at_end(config)
        self._positions: dict[TopicPartition, int | None] = {}
        for word in filter(None, config[PARTITIONS].split(",")):
            topic, _, partition = word.rpartition("-")
            place = (topic, int(partition))
            committed = offsets_reader.offset(self._source_partition(place))
            self._positions[place] = None if committed is None else int(committed["offset"]) + 1
        self._cluster: Cluster = connect(config, SOURCE, "consumer")
        self._wait_ms = min(settings["consumer.poll.timeout.ms"], self._cluster.settings.fetch_max_wait_ms)
        self._reader: PartitionReader | None = None
        self._syncs: SyncWriter | None = None
        if settings["emit.offset-syncs.enabled"]:
            at_source = settings["offset-syncs.topic.location"] == SOURCE
            other = settings["target.cluster.alias"] if at_source else self._alias
            self._syncs = SyncWriter(
                client(config, SOURCE if at_source else TARGET, "producer"),
                self._policy.offset_syncs_topic(other),
                settings["offset.lag.max"],
            )

    def _source_partition(self, place: TopicPartition) -> dict[str, object]:
        """In MirrorMaker 2's format."""
        return {"cluster": self._alias, "partition": place[1], "topic": place[0]}

    def poll_batches(self) -> list[RawBatch]:
        try:
            if self._reader is None:
                self._reader = self._open()
            answers = self._reader.poll(_POLL_SECONDS)
            batches = [batch for place, fetched in answers for batch in self._batches(place, fetched)]
            self._reader.request()  # fetch the next batches while these are written
        except _FATAL:
            raise
        except ClientError as error:
            raise RetriableError(f"reading the source cluster: {error}") from error
        except ApiError as error:
            if error.retriable:
                raise RetriableError(f"reading the source cluster: {error}") from error
            # Not reported as an error of the target, which the runner would retry.
            raise ConnectError(f"reading the source cluster: {error}") from error
        if self._syncs is not None:
            self._syncs.write()
        return batches

    def _open(self) -> PartitionReader:
        """Start at the committed offsets; a partition without one starts at `auto.offset.reset`."""
        new = [place for place, position in self._positions.items() if position is None]
        begin = LATEST if self._from_end else EARLIEST
        for place, offset in self._cluster.list_offsets(dict.fromkeys(new, begin)).items():
            self._positions[place] = offset or 0
        positions = {place: position or 0 for place, position in self._positions.items()}
        return PartitionReader(self._cluster, positions, max_wait_ms=self._wait_ms)

    def _batches(self, place: TopicPartition, fetched: FetchedBytes) -> list[RawBatch]:
        assert self._reader is not None
        position = self._reader.positions[place]
        if fetched.error is not None:
            self._reader.seek(place, self._reset(place, position))
            return []
        settings = self._cluster.settings
        copied, following = batches_to_copy(
            fetched, position, isolation=settings.isolation, check_crcs=settings.check_crcs
        )
        self._reader.seek(place, following)
        topic, partition = place
        remote, source = self._policy.remote_topic(topic), self._source_partition(place)
        return [
            RawBatch(remote, partition, data, offsets, source, {"offset": offsets[-1]})
            for data, offsets in copied
        ]

    def _reset(self, place: TopicPartition, position: int) -> int:
        """Retention was faster than the replication, or the topic was created again: continue from its
        start.
        """
        start = self._cluster.list_offsets({place: EARLIEST})[place] or 0
        log.warning(
            "%s-%d has no offset %d any more: replication continues at its first, %d", *place, position, start
        )
        return start

    def written(self, batches: Sequence[tuple[RawBatch, int]]) -> None:
        if self._syncs is None:
            return
        for batch, base_offset in batches:
            source = batch.source_partition
            self._syncs.add(source["topic"], source["partition"], batch.offsets, base_offset)
        self._syncs.write()

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._syncs is not None:
            self._syncs.close()
        self._cluster.close()


def _begins_at_end(config: Mapping[str, str]) -> bool:
    for name in ("source.consumer.auto.offset.reset", "consumer.auto.offset.reset"):
        if name in config:
            return config[name] == "latest"
    return False
