"""Moves under way: watched with a progress bar, shown, and the throttle lifted at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial

from penstock.admin.cluster import Cluster
from penstock.admin.partitions.execution import copying, lift_if_idle, look
from penstock.admin.partitions.moves import Key, Move
from penstock.admin.partitions.state import Moving, read_moving, read_sizes
from penstock.admin.words import human_bytes
from penstock.cli.output import emit_json, note, progress, table

_LOOK_SECONDS = 0.5


def wait_for_moves(cluster: Cluster, moves: Sequence[Move] | None, *, show: bool) -> None:
    """Waits until these moves (None: all ongoing ones) are complete. Ctrl-C ends the wait, not the moves."""
    wanted = None if moves is None else {(move.topic, move.partition) for move in moves}
    total: dict[tuple[Key, int], int] = {}

    def copied() -> int | None:
        """The bytes that are there; None when nothing moves any more."""
        moving = look(cluster, read_moving)
        left = {key: one for key, one in moving.items() if wanted is None or key in wanted}
        if not left:
            return None
        sizes = look(cluster, partial(read_sizes, keys=tuple(left)))
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
    _lift(cluster)


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
    rows = [(each.moving, each.copied, each.bytes) for each in copying(cluster)]
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
    if not rows:
        _lift(cluster)


def _lift(cluster: Cluster) -> None:
    """The throttle of moves that are done, also of those that somebody did not wait for."""
    if lift_if_idle(cluster):
        note("The throttle is removed.")
