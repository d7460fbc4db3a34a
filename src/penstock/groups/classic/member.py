"""The states of a classic group, its members, and the responses to members."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Any

from penstock.groups.timers import Timer
from penstock.wire.message import Message

Protocols = tuple[tuple[str, bytes], ...]
"""The protocols of a member in the order of preference, each with its metadata."""


class ClassicState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY = ClassicState.EMPTY
PREPARING_REBALANCE = ClassicState.PREPARING_REBALANCE
COMPLETING_REBALANCE = ClassicState.COMPLETING_REBALANCE
STABLE = ClassicState.STABLE
DEAD = ClassicState.DEAD

REACHED_FROM: dict[ClassicState, tuple[ClassicState, ...]] = {
    EMPTY: (PREPARING_REBALANCE,),
    PREPARING_REBALANCE: (STABLE, COMPLETING_REBALANCE, EMPTY),
    COMPLETING_REBALANCE: (PREPARING_REBALANCE,),
    STABLE: (COMPLETING_REBALANCE,),
    DEAD: (STABLE, PREPARING_REBALANCE, COMPLETING_REBALANCE, EMPTY),
}


class ClassicMember:
    """`join_token` and `sync_token` belong to its waiting requests; None if it does not wait."""

    __slots__ = (
        "member_id", "instance_id", "client_id", "client_host", "rebalance_timeout_ms", "session_timeout_ms",
        "protocols", "assignment", "join_token", "sync_token", "is_new", "session",
    )  # fmt: skip

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_token: Any = None
        self.sync_token: Any = None
        self.is_new = False
        self.session: Timer | None = None

    @property
    def keeps_alive_by_waiting(self) -> bool:
        """A waiting request counts as a heartbeat, except for a new member, whose client may have given
        up."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: Collection[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)


def join_error(code: int, member_id: str) -> Message:
    return Message(
        error_code=code,
        generation_id=-1,
        protocol_type=None,
        protocol_name=None,
        leader="",
        skip_assignment=False,
        member_id=member_id,
        members=[],
    )


def sync_answer(
    code: int, protocol_type: str | None = None, protocol_name: str | None = None, assignment: bytes = b""
) -> Message:
    return Message(
        error_code=code, protocol_type=protocol_type, protocol_name=protocol_name, assignment=assignment
    )
