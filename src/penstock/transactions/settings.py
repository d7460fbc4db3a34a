"""The settings that the transaction coordinator's state machine reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.config import BrokerConfig

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Kafka's names with underscores."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * _DAY_MS

    retry_ms: int = 1_000
    """The delay before a failed action (for example an abort that could not be written) is retried."""
    markers_retry_ms: int = 100
    """The delay before unwritten markers are requested again. The host has at most one request in flight."""

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionSettings:
        return cls(
            transaction_max_timeout_ms=config.transaction_max_timeout_ms,
            transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        )
