"""The source offset of a record, in Debezium's format, and the order of positions.

A position is (LSN, events). After a complete transaction it is (end of its commit, 0); inside one it is (its
commit LSN, events so far). The end of one commit is never past the beginning of the next, so positions are in
the order of the stream, and a restart knows which events of a transaction it has already sent. Inside a
snapshot it is (consistent point, -1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.connect.api import ConnectError
from penstock.connect.connectors.cdc.snapshot import SnapshotProgress


@dataclass(frozen=True, slots=True, order=True)
class Position:
    lsn: int
    events: int = 0


@dataclass(frozen=True, slots=True)
class Offset:
    """The parsed form of a stored offset."""

    position: Position
    start_lsn: int
    """Where replication starts: the end of the last complete transaction."""
    snapshot: SnapshotProgress | None
    """A snapshot that has not ended."""

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Offset:
        try:
            start = int(kept.get("lsn_commit") or kept.get("lsn_proc") or kept["lsn"])
            position = Position(start)
            if kept.get("tx_lsn") is not None:
                position = Position(int(kept["tx_lsn"]), int(kept["tx_events"]))
            progress = None
            if kept.get("snapshot") and not kept.get("snapshot_completed"):
                progress = SnapshotProgress.of(kept)
                position = Position(start, -1)
        except (KeyError, TypeError, ValueError) as error:
            raise ConnectError(
                f"The offset {dict(kept)} is not one of this connector ({error!r}): it needs the number "
                "lsn_commit. Delete or alter the connector's offsets."
            ) from None
        return cls(position, start, progress)


def snapshot_offset(lsn: int, micros: int, progress: SnapshotProgress, *, last: bool) -> dict[str, Any]:
    offset: dict[str, Any] = {
        "ts_usec": micros,
        "lsn": lsn,
        "lsn_commit": lsn,
        "snapshot": "INITIAL",
        "last_snapshot_record": last,
        "snapshot_completed": last,
    }
    if not last:
        offset |= progress.fields()
    return offset
