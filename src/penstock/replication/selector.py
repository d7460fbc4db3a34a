"""Which replica a consumer should read from (KIP-392): one in its own rack, if that has the requested
offset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

RACK_AWARE = "RackAwareReplicaSelector"


class Candidate(NamedTuple):
    """An in-sync follower."""

    id: int
    rack: str | None
    log_start_offset: int
    log_end_offset: int


def preferred_replica(
    rack: str, offset: int, leader_rack: str | None, followers: Iterable[Candidate]
) -> int | None:
    """The follower to read from; None for the leader. If several qualify, the one with the most records."""
    if not rack or rack == leader_rack:
        return None
    near = [
        one for one in followers if one.rack == rack and one.log_start_offset <= offset <= one.log_end_offset
    ]
    return max(near, key=lambda one: (one.log_end_offset, -one.id)).id if near else None
