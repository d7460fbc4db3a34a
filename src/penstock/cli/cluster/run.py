"""Moves under way: begun with a throttle, watched with a progress bar, and the throttle lifted at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from penstock.admin.cluster import Cluster
from penstock.admin.partitions.moves import Key, Move
from penstock.admin.partitions.state import (
    ClusterPlacement,
    Moving,
    is_throttled,
    lift_throttle,
    read_moving,
    read_sizes,
    read_state,
    reassign,
    set_throttle,
)
from penstock.admin.wire_client import WireCluster, failure
from penstock.admin.words import human_bytes
from penstock.cli.failure import Unreachable
from penstock.cli.output import emit_json, note, progress, table
from penstock.errors import ApiError

T = TypeVar("T")

_LOOK_SECONDS = 0.5


def carry_out(
    cluster: Cluster, state: ClusterPlacement, moves: Sequence[Move], throttle: int | None
) -> dict[Key, ApiError]:
    """Begin the moves, the throttle first; those that were refused."""
    with WireCluster(cluster) as wire:
        if throttle is not None:
            set_throttle(wire, moves, state.brokers, throttle)
        return reassign(wire, {(move.topic, move.partition): move.new for move in moves})


def wait_for_moves(cluster: Cluster, moves: Sequence[Move] | None, *, show: bool) -> None:
    """Waits until these moves (None: all ongoing ones) are complete. Ctrl-C ends the wait, not the moves."""
    wanted = None if moves is None else {(move.topic, move.partition) for move in moves}
    total: dict[tuple[Key, int], int] = {}

    def copied() -> int | None:
        """The bytes that are there; None when nothing moves any more."""
        moving = _look(cluster, read_moving)
        left = {key: one for key, one in moving.items() if wanted is None or key in wanted}
        if not left:
            return None
        sizes = _look(cluster, partial(read_sizes, keys=tuple(left)))
        for key, one in left.items():
            largest = max((sizes.get((key, broker), 0) for broker in one.source), default=0)
            total.update({(key, broker): largest for broker in one.adding})
        return sum(total.values()) - _missing(left.values(), sizes, total)

    done = copied()
    with progress("moving partitions", sum(total.values()), unit="bytes", show=show) as bar:
        while done is not None:
            bar.update(done)
            time.sleep(_LOOK_SECONDS)
            done = copied()
    _lift_if_idle(cluster)


def _missing(
    moving: Iterable[Moving], sizes: dict[tuple[Key, int], int], total: dict[tuple[Key, int], int]
) -> int:
    missing = 0
    for one in moving:
        for broker in one.adding:
            at = ((one.topic, one.index), broker)
            missing += max(total[at] - sizes.get(at, 0), 0)
    return missing


def show_moving(cluster: Cluster, as_json: bool, *, quiet: bool = False) -> None:
    """What moves now, and how far it is."""
    moving = _look(cluster, read_moving)
    sizes = _look(cluster, lambda wire: read_sizes(wire, moving)) if moving else {}
    rows = []
    for key, one in sorted(moving.items()):
        largest = max((sizes.get((key, broker), 0) for broker in one.source), default=0)
        copied = sum(min(sizes.get((key, broker), 0), largest) for broker in one.adding)
        rows.append((one, copied, largest * len(one.adding)))
    if as_json:
        emit_json(
            [
                {
                    "topic": one.topic,
                    "partition": one.index,
                    "replicas": list(one.replicas),
                    "adding": list(one.adding),
                    "removing": list(one.removing),
                    "copied_bytes": copied,
                    "bytes": size,
                }
                for one, copied, size in rows
            ]
        )
    elif rows and not quiet:
        table(
            ("topic", "partition", "adding", "removing", "copied", "of"),
            [
                (
                    one.topic,
                    one.index,
                    ",".join(map(str, one.adding)) or None,
                    ",".join(map(str, one.removing)) or None,
                    human_bytes(copied),
                    human_bytes(size),
                )
                for one, copied, size in rows
            ],
        )
    elif not quiet:
        note("No reassignment is in progress.")
    if not moving:
        _lift_if_idle(cluster)


def _lift_if_idle(cluster: Cluster) -> None:
    """The throttle of moves that are done, also of those that somebody did not wait for."""

    def lift(wire: WireCluster) -> bool:
        state = read_state(wire)
        if state.moving or not is_throttled(wire, state):
            return False
        lift_throttle(wire, state.brokers, sorted({topic for topic, _ in state.partitions}))
        return True

    if _look(cluster, lift):
        note("The throttle is removed.")


def _look(cluster: Cluster, ask: Callable[[WireCluster], T]) -> T:
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
