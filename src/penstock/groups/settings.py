"""The settings of the group coordinator's state machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.config import BrokerConfig

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Kafka's names with underscores; durations in milliseconds."""

    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * _MINUTE_MS
    offsets_retention_check_interval_ms: int = 600_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"

    new_member_join_timeout_ms: int = 5 * _MINUTE_MS
    """How long a JoinGroup of a new member waits; fixed in Kafka too. Its client does not know its id yet and
    cannot send heartbeats, so a client that gave up is only found this way."""

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group with members may become a consumer group (KIP-848)."""
        return self.group_consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def allows_downgrade(self) -> bool:
        return self.group_consumer_migration_policy in ("downgrade", "bidirectional")

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupSettings:
        return cls(
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_max_size=config.group_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            group_consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            group_consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
            group_consumer_max_size=config.group_consumer_max_size,
            group_consumer_assignors=config.group_consumer_assignors,
            group_consumer_migration_policy=config.group_consumer_migration_policy,
        )
