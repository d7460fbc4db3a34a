"""Carries out moves: how much they copy, starting, throttling, following, cancelling; leader elections."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.admin.cluster import Cluster
from penstock.admin.failure import CommandFailed, Unreachable
from penstock.admin.partitions import state as wired
from penstock.admin.partitions.moves import Key, Move
from penstock.admin.partitions.state import (
    PREFERRED,
    UNCLEAN,
    ClusterPlacement,
    Moving,
    is_throttled,
    lift_throttle,
    read_moving,
    read_sizes,
    read_state,
    set_throttle,
)
from penstock.admin.wire_client import WireCluster, failure
from penstock.errors import ApiError, ElectionNotNeeded

T = TypeVar("T")

_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Copying:
    """A partition that is being reassigned, and how far its new replicas are."""

    moving: Moving
    copied: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Elections:
    """The partitions with another leader, and those for which none could be elected."""

    elected: list[Key]
    failed: dict[Key, ApiError]


def cluster_state(cluster: Cluster) -> ClusterPlacement:
    def read() -> ClusterPlacement:
        with WireCluster(cluster) as wire:
            return read_state(wire)

    return asking(read, "cannot read the cluster's state")


def asking(ask: Callable[[], T], doing: str) -> T:
    """The result of `ask`; an ApiError becomes one line that begins with `doing`."""
    try:
        return ask()
    except ApiError as error:
        raise failure(error, doing) from error


def requested_moves(state: ClusterPlacement, wanted: Mapping[Key, tuple[int, ...]]) -> list[Move]:
    """The moves to the wanted replicas, without those that are in place."""
    placed = state.placed
    return [Move(*key, placed[key], new) for key, new in sorted(wanted.items()) if placed[key] != new]


def copied_bytes(cluster: Cluster, state: ClusterPlacement, moves: Sequence[Move]) -> dict[Key, int] | None:
    """The bytes that each move copies; None where the cluster does not report sizes."""
    copying = {(move.topic, move.partition): move for move in moves if move.adding}
    if not copying:
        return {}
    try:
        with WireCluster(cluster) as wire:
            sizes = read_sizes(wire, copying)
    except (ApiError, CommandFailed):  # managed clusters forbid DescribeLogDirs
        return None
    found = {}
    for key, move in copying.items():
        one = state.partitions[key]
        source = one.leader if one.leader >= 0 else max(move.old, key=lambda b: sizes.get((key, b), 0))
        found[key] = sizes.get((key, source), 0) * len(move.adding)
    return found


def begin(
    cluster: Cluster, state: ClusterPlacement, moves: Sequence[Move], throttle: int | None
) -> dict[Key, ApiError]:
    """Begin the moves, the throttle first. Returns the rejected ones with the reason."""
    with WireCluster(cluster) as wire:
        if throttle is not None:
            set_throttle(wire, moves, state.brokers, throttle)
        return wired.reassign(wire, {(move.topic, move.partition): move.new for move in moves})


def cancel(cluster: Cluster, keys: Collection[Key]) -> dict[Key, ApiError]:
    """Cancel reassignments. Returns those that could not be cancelled."""
    if not keys:
        return {}
    with WireCluster(cluster) as wire:
        return asking(lambda: wired.reassign(wire, dict.fromkeys(keys)), "cannot cancel the reassignments")


def change_throttle(cluster: Cluster, rate: int) -> None:
    """Throttle the reassignments that are under way, or change their throttle."""

    def change(wire: WireCluster) -> None:
        state = read_state(wire)
        if not state.moving:
            raise CommandFailed("no reassignment is in progress.")
        moves = [Move(*key, one.source, one.target) for key, one in state.moving.items()]
        set_throttle(wire, moves, state.brokers, rate)

    with WireCluster(cluster) as wire:
        asking(lambda: change(wire), "cannot throttle the reassignments")


def copying(cluster: Cluster) -> list[Copying]:
    """The reassignments under way."""
    moving = look(cluster, read_moving)
    sizes = look(cluster, lambda wire: read_sizes(wire, tuple(moving))) if moving else {}
    rows = []
    for key, one in sorted(moving.items()):
        largest = max((sizes.get((key, broker), 0) for broker in one.source), default=0)
        copied = sum(min(sizes.get((key, broker), 0), largest) for broker in one.adding)
        rows.append(Copying(one, copied, largest * len(one.adding)))
    return rows


def lift_if_idle(cluster: Cluster) -> bool:
    """Remove the throttle if nothing moves any more, whoever set it. Returns whether there was one."""

    def lift(wire: WireCluster) -> bool:
        state = read_state(wire)
        if state.moving or not is_throttled(wire, state):
            return False
        lift_throttle(wire, state.brokers, sorted({topic for topic, _ in state.partitions}))
        return True

    return look(cluster, lift)


def elect(
    cluster: Cluster, partitions: Mapping[str, Sequence[int]] | None, *, unclean: bool = False
) -> Elections:
    """Elect the preferred leaders of these partitions, or of all (None)."""
    with WireCluster(cluster) as wire:
        results = asking(
            lambda: wired.elect(wire, partitions, UNCLEAN if unclean else PREFERRED), "cannot elect leaders"
        )
    failed = {
        key: error
        for key, error in results.items()
        if error is not None and not isinstance(error, ElectionNotNeeded)
    }
    return Elections(sorted(key for key, error in results.items() if error is None), failed)


def look(cluster: Cluster, ask: Callable[[WireCluster], T]) -> T:
    """Ask, and ask again while brokers come and go: a move takes longer than they do."""
    end = time.monotonic() + max(cluster.timeout, 10.0)
    while True:
        try:
            with WireCluster(cluster) as wire:
                return ask(wire)
        except Unreachable:
            if time.monotonic() > end:
                raise
        except ApiError as error:
            if not error.retriable or time.monotonic() > end:
                raise failure(error, "cannot follow the moves") from error
        time.sleep(_LOOK_SECONDS)
