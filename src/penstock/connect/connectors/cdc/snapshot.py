"""Reads the existing rows of tables in chunks, before changes are streamed: the part that all sources share.

A source reads pages of its tables; this adds flags and offsets to the records, logs the progress, and tracks
where another snapshot continues after a restart.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.connect.api import SourceRecord
from penstock.connect.connectors.cdc.records import ChangeRecords, Row
from penstock.connect.connectors.cdc.table_schema import TableSchema

_log = logging.getLogger(__name__)
_SHOW_SECONDS = 1.0
M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """The snapshot has sent all tables before `table`, and the rows of that table up to `key` (None: no
    row).
    """

    table: str
    key: tuple[str, ...] | None
    rows: int = 0
    """The number of these rows, to show it."""

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> SnapshotProgress:
        key = kept.get("snapshot_key")
        rows = kept.get("snapshot_rows")
        return cls(
            str(kept.get("snapshot_table", "")),
            tuple(map(str, key)) if key else None,
            rows if isinstance(rows, int) and key else 0,
        )

    def fields(self) -> dict[str, Any]:
        """The fields of an offset."""
        key = None if self.key is None else list(self.key)
        return {"snapshot_table": self.table, "snapshot_key": key, "snapshot_rows": self.rows}


@dataclass(frozen=True, slots=True)
class TablePages:
    """A table to read: `pages` yields rows and whether they are the last; `key_text` is None without a
    key.
    """

    name: str
    schema: TableSchema
    pages: Iterator[tuple[list[Row], bool]]
    estimated_rows: int
    key_text: Callable[[Row], tuple[str, ...]] | None


@dataclass(frozen=True, slots=True)
class _Chunk:
    table: TableSchema
    rows: list[Row]
    progress: SnapshotProgress
    """The progress after this chunk."""
    shown: Mapping[str, Any]
    """What the status shows."""
    first: bool
    """Whether this is the first chunk of its table; `last` likewise."""
    last: bool


class SnapshotChunks(Generic[M]):
    """`next` returns the records of a chunk, and None after the last one.

    `tables` are in the order of their names, starting with the one in `progress`; `count` is their number.
    `moment` makes a record's `source` position from a flag, `offset` makes an offset from the progress and
    whether everything is read.
    """

    def __init__(
        self,
        records: ChangeRecords[M],
        tables: Iterable[TablePages],
        count: int,
        progress: SnapshotProgress | None,
        moment: Callable[[str], M],
        offset: Callable[[SnapshotProgress, bool], dict[str, Any]],
    ) -> None:
        self._records, self._moment, self._offset = records, moment, offset
        self.progress = progress or SnapshotProgress("", None)
        """What was returned so far: where another snapshot continues."""
        self._begun = progress is not None
        self.show_progress: Callable[[Mapping[str, Any] | None], None] = lambda progress: None
        self._shown_at = 0.0
        self._chunks = self._read(tables, count)
        self._ahead = next(self._chunks, None)

    def next(self) -> list[SourceRecord] | None:
        chunk = self._ahead
        if chunk is None:
            self.show_progress(None)
            return None
        if chunk.first or time.monotonic() >= self._shown_at + _SHOW_SECONDS:
            self._shown_at = time.monotonic()
            self.show_progress({"snapshot": chunk.shown})
        following = next(self._chunks, None)
        self._ahead = following
        now = time.time_ns() // 1000
        before = self._offset(self.progress, False)
        after = self._offset(chunk.progress, following is None)
        end = len(chunk.rows) - 1
        records = []
        for at, row in enumerate(chunk.rows):
            flag = "true"
            if at == end and chunk.last:
                flag = "last" if following is None else "last_in_data_collection"
            elif at == 0 and chunk.first:
                flag = "first_in_data_collection" if self._begun else "first"
            offset = after if at == end else before
            records.append(self._records.read(chunk.table, row, self._moment(flag), now, offset))
            self._begun = True
        self.progress = chunk.progress
        return records

    def close(self) -> None:
        self._chunks.close()

    def _read(self, tables: Iterable[TablePages], total: int) -> Generator[_Chunk, None, None]:
        for number, table in enumerate(tables, 1):
            _log.info(
                "Snapshot of %s, table %d of %d, about %d rows.",
                table.name, number, total, table.estimated_rows,
            )  # fmt: skip
            continued = self.progress.table == table.name and table.key_text is not None
            count, first = self.progress.rows if continued else 0, True
            for rows, last in table.pages:
                count += len(rows)
                progress = SnapshotProgress(table.name, None)
                if last:
                    # Sorts after this table and before any other.
                    progress = SnapshotProgress(f"{table.name}\0", None)
                elif table.key_text is not None:
                    progress = SnapshotProgress(table.name, table.key_text(rows[-1]), count)
                if rows:
                    shown = {
                        "table": table.name,
                        "rows": count,
                        "estimated_rows": None if table.estimated_rows < 0 else table.estimated_rows,
                        "table_number": number,
                        "tables": total,
                    }
                    yield _Chunk(table.schema, rows, progress, shown, first, last)
                    first = False
            _log.info("Snapshot of %s has read %d rows.", table.name, count)
