"""All logs of a broker: the data directories, their checkpoints, the clean shutdown marker.

Everything here blocks on files and must run in a thread, or at startup or shutdown, except `get`. The
metadata decides which logs exist; this class opens, keeps and deletes them.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from penstock.clock import Clock
from penstock.config import BrokerConfig, LogConfig
from penstock.errors import KafkaStorageError
from penstock.fs import REAL_FS, Fs
from penstock.log.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CheckpointError,
    TopicPartition,
    read_offsets,
    write_offsets,
)
from penstock.log.delayed_delete import DelayedDeletes
from penstock.log.partition_log import PartitionLog
from penstock.log.recovery.loading import LogLoadError, open_log, read_partition_metadata

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
KRAFT_METADATA = "__cluster_metadata"
"""The directory in which an Apache Kafka node keeps its metadata log; it is ignored."""
_PARTITION_DIRECTORY = re.compile(r"^(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d+)$")
_DELETED_DIRECTORY = re.compile(r"^.+\.[0-9a-f]{32}-(delete|stray)$")

logger = logging.getLogger(__name__)

ConfigOf = Callable[[str], LogConfig]
IdOf = Callable[[str], uuid.UUID | None]


class LogManager:
    def __init__(self, config: BrokerConfig, clock: Clock, fs: Fs = REAL_FS) -> None:
        self.directories = [os.path.abspath(path) for path in config.log_dirs]
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.clean = True  # whether the last shutdown was clean
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self._recovery_points: dict[TopicPartition, int] = {}  # from the checkpoints on disk
        self._threads = config.num_recovery_threads_per_data_dir
        self._clock = clock
        self._fs = fs
        self._delayed_deletes = DelayedDeletes(clock, fs)
        self._outdated: set[TopicPartition] = set()  # deleted logs that are still in the checkpoints
        self._written: dict[
            str, dict[TopicPartition, int]
        ] = {}  # the high watermark checkpoint of each directory

    # opening

    def load(self, config_of: ConfigOf, id_of: IdOf = lambda topic: None) -> None:
        """Open all partitions of the data directories, with recovery if the last shutdown was not clean.

        `id_of` returns the id of a topic, for directories without one.
        """
        for directory in self.directories:
            self._fs.makedirs(directory)
            self._load_directory(directory, config_of, id_of)

    def _load_directory(self, directory: str, config_of: ConfigOf, id_of: IdOf) -> None:
        fs = self._fs
        marker = os.path.join(directory, CLEAN_SHUTDOWN)
        jobs: list[tuple[str, str, int]] = []
        for name in sorted(fs.listdir(directory)):
            match = _PARTITION_DIRECTORY.match(name)
            path = os.path.join(directory, name)
            if _DELETED_DIRECTORY.match(name):
                self._delayed_deletes.add([path], 0)
            elif match and match["topic"] != KRAFT_METADATA and os.path.isdir(path):
                jobs.append((path, match["topic"], int(match["partition"])))
        clean = fs.exists(marker) or not jobs
        self.clean = self.clean and clean
        recovery_points = self._read(directory, RECOVERY_POINTS)
        self._recovery_points.update(recovery_points)
        log_starts = self._read(directory, LOG_START_OFFSETS)
        high_watermarks = self._read(directory, HIGH_WATERMARKS)
        self.cleaner_offsets.update(self._read(directory, CLEANER_OFFSETS))
        checkpointed = {*recovery_points, *log_starts, *high_watermarks, *self.cleaner_offsets}

        def open_one(job: tuple[str, str, int]) -> PartitionLog:
            path, topic, partition = job
            topic_id = read_partition_metadata(path, fs) or id_of(topic) or uuid.uuid4()
            return open_log(
                path,
                topic,
                partition,
                topic_id,
                config_of(topic),
                self._clock,
                fs,
                clean=clean,
                recovery_point=recovery_points.get((topic, partition), 0),
                log_start_offset=log_starts.get((topic, partition), 0),
                high_watermark=high_watermarks.get((topic, partition), 0),
            )

        for log in self._each(open_one, jobs):
            if (log.topic, log.partition) in self.logs:
                other = self.logs[log.topic, log.partition].directory
                raise LogLoadError(
                    f"{log.topic}-{log.partition} is in both {other} and {log.directory}; remove one"
                )
            self.logs[log.topic, log.partition] = log
        self._outdated |= checkpointed - self.logs.keys()
        # From now on, a stop without a clean shutdown is a crash.
        if fs.exists(marker):
            fs.unlink(marker)
            fs.fsync_dir(directory)
        if not clean and jobs:
            logger.info("%s: recovered %d partitions after an unclean shutdown", directory, len(jobs))

    def _each(
        self, work: Callable[[tuple[str, str, int]], PartitionLog], jobs: list[tuple[str, str, int]]
    ) -> Iterator[PartitionLog]:
        if self._threads <= 1 or len(jobs) < 2:
            yield from map(work, jobs)
            return
        with ThreadPoolExecutor(self._threads, thread_name_prefix="recovery") as pool:
            yield from pool.map(work, jobs)

    def _read(self, directory: str, name: str) -> dict[TopicPartition, int]:
        path = os.path.join(directory, name)
        try:
            return read_offsets(path, self._fs)
        except CheckpointError as error:
            logger.warning("%s: %s; continuing without it", path, error)
            return {}

    # the set of logs

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self.logs.get((topic, partition))

    def create(self, topic: str, partition: int, topic_id: uuid.UUID, config: LogConfig) -> PartitionLog:
        """Create an empty log in the directory with the fewest logs, or open the existing one."""
        existing = self.logs.get((topic, partition))
        if existing is not None:
            return existing
        counts = dict.fromkeys(self.directories, 0)
        for log in self.logs.values():
            counts[os.path.dirname(log.directory)] += 1
        directory = min(counts, key=lambda path: counts[path])
        path = os.path.join(directory, f"{topic}-{partition}")
        try:
            if (topic, partition) in self._outdated:
                self.checkpoint()  # or after a crash it would get the log start offset of the deleted log
            log = open_log(path, topic, partition, topic_id, config, self._clock, self._fs, clean=False)
        except OSError as error:
            raise KafkaStorageError(f"cannot create {path}: {error.strerror}") from error
        self.logs[topic, partition] = log
        return log

    def delete(self, topic: str, partition: int, *, reason: str = "delete") -> None:
        """Delete a log. Its directory is renamed now and deleted after file.delete.delay.ms."""
        log = self.logs.pop((topic, partition), None)
        if log is None:
            return
        self.cleaner_offsets.pop((topic, partition), None)
        self._outdated.add((topic, partition))
        self._recovery_points.pop((topic, partition), None)
        name = f"{topic}-{partition}"[:200]  # a directory name has at most 255 bytes
        target = os.path.join(os.path.dirname(log.directory), f"{name}.{uuid.uuid4().hex}-{reason}")
        self._fs.rename(log.directory, target)
        log.directory = target
        self._delayed_deletes.add([target], log.config.file_delete_delay_ms)

    def purge(self) -> None:
        """Delete files and directories whose delay has passed. Blocking."""
        self._delayed_deletes.purge()
        for log in list(self.logs.values()):
            log.delayed_deletes.purge()

    def logs_to_trim(self) -> list[PartitionLog]:
        """The logs with segments below their log start offset, which are deleted step by step."""
        return [log for log in list(self.logs.values()) if log.segments_below_start]

    # durability

    def logs_to_flush(self) -> list[PartitionLog]:
        """The logs whose last flush is longer ago than flush.ms."""
        now = self._clock.now_ms()
        return [
            log
            for log in self.logs.values()
            if log.log_end_offset > log.recovery_point
            and log.failed is None
            and now - log.last_flush_ms >= log.config.flush_ms
        ]

    @staticmethod
    def _flush(log: PartitionLog) -> None:
        try:
            log.flush()
        except KafkaStorageError as error:
            logger.error("flush failed; the partition is offline for writes: %s", error)

    def checkpoint(self) -> None:
        """Write recovery points, log start offsets, high watermarks and the cleaner's progress."""
        for directory in self.directories:
            logs = self._in(directory)
            keys = {(log.topic, log.partition) for log in logs}
            self._checkpoint_recovery_points(directory, logs)
            cleaned = {key: offset for key, offset in self.cleaner_offsets.items() if key in keys}
            write_offsets(os.path.join(directory, CLEANER_OFFSETS), cleaned, self._fs)
        self.checkpoint_high_watermarks()
        self.checkpoint_log_starts()
        self._outdated.clear()

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks, so that after a restart a leader does not show consumers a lower one."""
        for directory in self.directories:
            offsets = {(log.topic, log.partition): log.high_watermark for log in self._in(directory)}
            if offsets != self._written.get(directory):
                write_offsets(os.path.join(directory, HIGH_WATERMARKS), offsets, self._fs)
                self._written[directory] = offsets

    def _checkpoint_recovery_points(self, directory: str, logs: list[PartitionLog]) -> None:
        points = {(log.topic, log.partition): log.recovery_point for log in logs}
        on_disk = self._recovery_points
        # If the write fails, either of the two may be on disk: the higher one counts until a write succeeds.
        on_disk.update({key: max(point, on_disk.get(key, 0)) for key, point in points.items()})
        write_offsets(os.path.join(directory, RECOVERY_POINTS), points, self._fs)
        on_disk.update(points)

    def truncated(self, log: PartitionLog, offset: int) -> None:
        """The log was truncated to `offset`: lower its checkpoints to that offset.

        Otherwise recovery after a crash would trust the records that replace the truncated ones without
        reading them, and compaction would take them for cleaned.
        """
        key = (log.topic, log.partition)
        if self.cleaner_offsets.get(key, 0) > offset:
            self.cleaner_offsets[key] = offset
        if self.logs.get(key) is log and self._recovery_points.get(key, 0) > log.recovery_point:
            directory = os.path.dirname(log.directory)
            self._checkpoint_recovery_points(directory, self._in(directory))

    def checkpoint_log_starts(self) -> None:
        """Write only the log start offsets: records that a client knows to be deleted must not come back."""
        for directory in self.directories:
            starts = {
                (log.topic, log.partition): log.log_start_offset
                for log in self._in(directory)
                if log.log_start_offset > log.segments[0].base_offset
            }
            write_offsets(os.path.join(directory, LOG_START_OFFSETS), starts, self._fs)

    def _in(self, directory: str) -> list[PartitionLog]:
        return [log for log in list(self.logs.values()) if os.path.dirname(log.directory) == directory]

    def close(self) -> None:
        """Clean shutdown: sync all logs, then write the marker."""
        failed = set()
        for log in self.logs.values():
            try:
                log.close()
            except (OSError, KafkaStorageError) as error:
                logger.error("%s-%d was not closed cleanly: %s", log.topic, log.partition, error)
                failed.add(os.path.dirname(log.directory))
            if log.failed is not None:
                failed.add(os.path.dirname(log.directory))
        try:
            self.checkpoint()
        except OSError as error:
            logger.error("could not write checkpoints: %s", error)
            return
        for directory in self.directories:
            if directory not in failed:
                self._fs.write_atomic(
                    os.path.join(directory, CLEAN_SHUTDOWN), b'{"version":0,"brokerEpoch":-1}'
                )
