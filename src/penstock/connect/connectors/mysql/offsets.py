"""The source offset of a record, in Debezium's format.

`file` and `pos` are where the transaction starts, so that reading can start there; `event` and `row` say
which of its events were sent, and how many rows of the next one. After the last row of a transaction `pos` is
where the next one starts. `gtids` (MariaDB) is the same position on a replica of this server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.connect.api import ConnectError
from penstock.connect.connectors.cdc.snapshot import SnapshotProgress
from penstock.connect.connectors.mysql.server import BinlogPosition


@dataclass(frozen=True, slots=True)
class Offset:
    position: BinlogPosition
    event: int = 0
    row: int = 0
    gtids: str | None = None
    server_id: int | None = None
    """The server whose binlog `position` is in."""
    snapshot: SnapshotProgress | None = None
    """A snapshot that has not ended."""

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Offset:
        try:
            server = kept.get("server_id")
            gtids = kept.get("gtids")
            pos, event, row = int(kept["pos"]), int(kept.get("event") or 0), int(kept.get("row") or 0)
            if min(pos, event, row) < 0 or not isinstance(kept["file"], str) or not kept["file"]:
                raise ValueError("a negative number, or no file")
            return cls(
                BinlogPosition(kept["file"], pos),
                event,
                row,
                str(gtids) if gtids else None,
                int(server) if server else None,
                SnapshotProgress.of(kept) if kept.get("snapshot") else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConnectError(
                f"The offset {dict(kept)} is not one of this connector ({error!r}): it needs the text "
                "file and the number pos. Delete or alter the connector's offsets."
            ) from None

    def fields(self, seconds: int) -> dict[str, Any]:
        found: dict[str, Any] = {
            "ts_sec": seconds,
            "file": self.position.file,
            "pos": self.position.pos,
            "server_id": self.server_id,
        }
        if self.event or self.row:
            found["event"], found["row"] = self.event, self.row
        if self.gtids:
            found["gtids"] = self.gtids
        if self.snapshot is not None:
            found |= {"snapshot": True, **self.snapshot.fields()}
        return found
