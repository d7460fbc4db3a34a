"""The settings of the state machines of share groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.config import BrokerConfig


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """Kafka's names without `group.share.`, with underscores; durations in milliseconds."""

    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000
    max_share_sessions: int = 2_000
    max_size: int = 200
    updates_per_snapshot: int = 500

    @classmethod
    def of(cls, config: BrokerConfig) -> ShareSettings:
        return cls(
            delivery_count_limit=config.group_share_delivery_count_limit,
            partition_max_record_locks=config.group_share_partition_max_record_locks,
            max_share_sessions=config.group_share_max_share_sessions,
            max_size=config.group_share_max_size,
            updates_per_snapshot=config.share_coordinator_snapshot_update_records_per_snapshot,
        )


@dataclass(frozen=True, slots=True)
class ShareGroupConfig:
    """What can be set for each group; durations in milliseconds."""

    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    record_lock_duration_ms: int = 30_000
    auto_offset_reset: str = "latest"
    isolation_level: str = "read_uncommitted"
    dead_letter_topic: str = ""
