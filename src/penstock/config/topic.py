"""The topic settings: one table with Kafka's names and defaults, and LogConfig, its typed form.

Every setting in the table is honoured; one that is not is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.config.types import (
    LONG_MAX,
    ConfigDef,
    ConfigType,
    EachOneOf,
    OneOf,
    Range,
    Synonym,
    ThrottledReplicas,
    UnlimitedOr,
)

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
MIB = 1024 * 1024


def _row(name: str, type: ConfigType, default: Any, validator: Any, synonyms: Any, doc: str) -> ConfigDef:
    names = (synonyms,) if isinstance(synonyms, str) else synonyms
    parsed = tuple(Synonym(s) if isinstance(s, str) else Synonym(*s) for s in names)
    return ConfigDef(name, type, default, doc, validator, parsed)


# name, type, default, what is allowed, the broker settings that give the default, meaning
TOPIC_CONFIGS: dict[str, ConfigDef] = {
    row.name: row
    for row in (
        _row("cleanup.policy", LIST, ("delete",), EachOneOf("compact", "delete"), "log.cleanup.policy",
             "What happens to old records: `delete` by time and size, `compact` by key, both, or nothing."),
        _row("compression.gzip.level", INT, -1, UnlimitedOr(Range(1, 9)), "compression.gzip.level",
             "The level for compression.type=gzip; -1 is the library's default."),
        _row("compression.lz4.level", INT, 9, Range(1, 17), "compression.lz4.level",
             "The level for compression.type=lz4."),
        _row("compression.type", STRING, "producer",
             OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), "compression.type",
             "The codec on disk; `producer` keeps what the producer chose."),
        _row("compression.zstd.level", INT, 3, Range(-131072, 22), "compression.zstd.level",
             "The level for compression.type=zstd."),
        _row("delete.retention.ms", LONG, DAY, Range(0), "log.cleaner.delete.retention.ms",
             "How long compaction keeps a tombstone, so that readers can see the deletion."),
        _row("file.delete.delay.ms", LONG, MINUTE, Range(0), "log.segment.delete.delay.ms",
             "How long a deleted segment file stays on disk for readers that still use it."),
        _row("flush.messages", LONG, LONG_MAX, Range(1), "log.flush.interval.messages",
             "fsync after this many records; by default the operating system decides."),
        _row("flush.ms", LONG, LONG_MAX, Range(0),
             ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
             "fsync when a record has waited this long; by default the operating system decides."),
        _row("follower.replication.throttled.replicas", LIST, (), ThrottledReplicas(), (),
             "Replicas, as partition:broker or * for all, that follower.replication.throttled.rate slows."),
        _row("index.interval.bytes", INT, 4096, Range(0), "log.index.interval.bytes",
             "One index entry for about this many bytes of log."),
        _row("leader.replication.throttled.replicas", LIST, (), ThrottledReplicas(), (),
             "Leaders, as partition:broker or * for all, that leader.replication.throttled.rate slows."),
        _row("max.compaction.lag.ms", LONG, LONG_MAX, Range(1), "log.cleaner.max.compaction.lag.ms",
             "A record is compacted at the latest after this time, whatever the dirty ratio."),
        _row("max.message.bytes", INT, MIB + 12, Range(0), "message.max.bytes",
             "The largest record batch that is accepted, after compression."),
        _row("message.timestamp.after.max.ms", LONG, HOUR, Range(0), "log.message.timestamp.after.max.ms",
             "How far a record's timestamp may lie ahead of the broker's clock (CreateTime only)."),
        _row("message.timestamp.before.max.ms", LONG, LONG_MAX, Range(0),
             "log.message.timestamp.before.max.ms",
             "How far a record's timestamp may lie behind the broker's clock (CreateTime only)."),
        _row("message.timestamp.type", STRING, "CreateTime", OneOf("CreateTime", "LogAppendTime"),
             "log.message.timestamp.type", "Whose time a record carries: the producer's or the broker's."),
        _row("min.cleanable.dirty.ratio", DOUBLE, 0.5, Range(0, 1), "log.cleaner.min.cleanable.ratio",
             "The share of not yet compacted bytes from which a log is compacted."),
        _row("min.compaction.lag.ms", LONG, 0, Range(0), "log.cleaner.min.compaction.lag.ms",
             "A record stays uncompacted for at least this time."),
        _row("min.insync.replicas", INT, 1, Range(1), "min.insync.replicas",
             "acks=all is refused while fewer replicas than this are in sync."),
        _row("preallocate", BOOLEAN, False, None, "log.preallocate",
             "Reserve the disk space of a segment when it is created."),
        _row("retention.bytes", LONG, -1, None, "log.retention.bytes",
             "Delete the oldest segments of a partition while it is larger than this; -1 for no limit."),
        _row("retention.ms", LONG, 7 * DAY, Range(-1),
             ("log.retention.ms", ("log.retention.minutes", MINUTE), ("log.retention.hours", HOUR)),
             "Delete segments whose newest record is older than this; -1 for no limit."),
        _row("segment.bytes", INT, 1024 * MIB, Range(14), "log.segment.bytes",
             "Start a new segment at this size. Kafka 4 refuses less than 1 MiB; tests like small ones."),
        _row("segment.index.bytes", INT, 10 * MIB, Range(4), "log.index.size.max.bytes",
             "The largest size of an index file; a full index starts a new segment."),
        _row("segment.jitter.ms", LONG, 0, Range(0), ("log.roll.jitter.ms", ("log.roll.jitter.hours", HOUR)),
             "A random time of up to this is subtracted from segment.ms, so that not all partitions roll at"
             " once."),
        _row("segment.ms", LONG, 7 * DAY, Range(1), ("log.roll.ms", ("log.roll.hours", HOUR)),
             "Start a new segment after this time, so that retention and compaction reach the old one."),
        _row("unclean.leader.election.enable", BOOLEAN, False, None, "unclean.leader.election.enable",
             "Let a replica that is not in sync become leader when no other is left; records may be lost."),
        # Penstock's own.
        _row("penstock.retention.consumed.groups", LIST, (), None, "penstock.retention.consumed.groups",
             "Also delete what all of these consumer groups have consumed."),
        _row("penstock.retention.records", LONG, -1, Range(-1), "penstock.retention.records",
             "Delete the oldest segments of a partition while at least this many records, counted by "
             "offsets, remain without them; -1 for no limit."),
        _row("penstock.retention.strict", BOOLEAN, False, None, "penstock.retention.strict",
             "Leave no record older than retention.ms readable or on disk after a retention pass."),
    )
}  # fmt: skip


def _default(name: str) -> Any:
    value = TOPIC_CONFIGS[name].default
    return field(default=frozenset(value) if name == "cleanup.policy" else value)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """All settings of one topic, typed and validated. `LogConfig()` has Kafka's defaults."""

    cleanup_policy: frozenset[str] = _default("cleanup.policy")
    compression_gzip_level: int = _default("compression.gzip.level")
    compression_lz4_level: int = _default("compression.lz4.level")
    compression_type: str = _default("compression.type")
    compression_zstd_level: int = _default("compression.zstd.level")
    delete_retention_ms: int = _default("delete.retention.ms")
    file_delete_delay_ms: int = _default("file.delete.delay.ms")
    flush_messages: int = _default("flush.messages")
    flush_ms: int = _default("flush.ms")
    follower_replication_throttled_replicas: tuple[str, ...] = _default(
        "follower.replication.throttled.replicas"
    )
    index_interval_bytes: int = _default("index.interval.bytes")
    leader_replication_throttled_replicas: tuple[str, ...] = _default("leader.replication.throttled.replicas")
    max_compaction_lag_ms: int = _default("max.compaction.lag.ms")
    max_message_bytes: int = _default("max.message.bytes")
    message_timestamp_after_max_ms: int = _default("message.timestamp.after.max.ms")
    message_timestamp_before_max_ms: int = _default("message.timestamp.before.max.ms")
    message_timestamp_type: str = _default("message.timestamp.type")
    min_cleanable_dirty_ratio: float = _default("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = _default("min.compaction.lag.ms")
    min_insync_replicas: int = _default("min.insync.replicas")
    preallocate: bool = _default("preallocate")
    retention_bytes: int = _default("retention.bytes")
    retention_ms: int = _default("retention.ms")
    segment_bytes: int = _default("segment.bytes")
    segment_index_bytes: int = _default("segment.index.bytes")
    segment_jitter_ms: int = _default("segment.jitter.ms")
    segment_ms: int = _default("segment.ms")
    unclean_leader_election_enable: bool = _default("unclean.leader.election.enable")
    retention_consumed_groups: tuple[str, ...] = _default("penstock.retention.consumed.groups")
    retention_records: int = _default("penstock.retention.records")
    retention_strict: bool = _default("penstock.retention.strict")

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy
