"""A member of a consumer group: its subscription and other metadata, and its current assignment. Frozen."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from penstock.groups.consumer.assignors import Partitions

LEAVE_EPOCH = -1
"""Sent by a member that leaves."""
LEAVE_STATIC_EPOCH = -2
"""Sent by a static member that leaves temporarily, and kept as its epoch until it is back."""


class MemberState(IntEnum):
    """The numbers are those in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """The JoinGroup data of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    # its metadata
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None
    # its current assignment
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    pending_revocation: Partitions = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch
