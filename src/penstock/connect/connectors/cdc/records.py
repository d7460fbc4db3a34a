"""Records in Debezium's envelope, for snapshot rows and for changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from penstock.connect.api import ConnectError, Header, SourceOffset, SourcePartition, SourceRecord
from penstock.connect.connectors.cdc.envelope import HEARTBEAT_KEY, HEARTBEAT_VALUE
from penstock.connect.connectors.cdc.settings import CaptureSettings
from penstock.connect.connectors.cdc.table_schema import TableSchema

M = TypeVar("M")
Row = Sequence[Any]


def source_partition(prefix: str) -> dict[str, str]:
    return {"server": prefix}


def check_offsets(
    prefix: str,
    offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
    read: Callable[[Mapping[str, Any]], object],
) -> None:
    """Raises ConnectError if new offsets are for another source partition, or `read` cannot parse them."""
    expected = source_partition(prefix)
    for partition, offset in offsets:
        if partition != expected:
            raise ConnectError(f"The source partition {partition} is unknown: this connector has {expected}.")
        if offset is not None:
            read(offset)


class ChangeRecords(Generic[M]):
    """Creates all records of one task. All records of a change have the same offset, which the caller passes.

    `M` is the position and time of a change; `source_block` shows it.
    """

    def __init__(self, settings: CaptureSettings) -> None:
        values = settings.values
        self._tombstones = values["tombstones.on.delete"]
        self._skipped = set(values["skipped.operations"])
        self.partition: SourcePartition = source_partition(settings.prefix)
        self._heartbeat_topic = f"{values['topic.heartbeat.prefix']}.{settings.prefix}"
        self._prefix = settings.prefix

    def source_block(self, space: str, table: str, moment: M) -> dict[str, Any]:
        raise NotImplementedError

    def read(self, table: TableSchema, row: Row, moment: M, now: int, offset: SourceOffset) -> SourceRecord:
        return self._change(table, "r", None, table.value(row), table.key(row), moment, now, offset)

    def insert(
        self, table: TableSchema, row: Row, moment: M, now: int, offset: SourceOffset
    ) -> list[SourceRecord]:
        if "c" in self._skipped:
            return []
        return [self._change(table, "c", None, table.value(row), table.key(row), moment, now, offset)]

    def update(
        self,
        table: TableSchema,
        old: Row | None,
        new: Row,
        moment: M,
        now: int,
        offset: SourceOffset,
        *,
        old_is_key: bool = False,
    ) -> list[SourceRecord]:
        """`old` is the whole row, or with `old_is_key` only its key, or None if the key is unchanged."""
        whole = None if old_is_key else old
        new_key = table.key(new)
        if old is not None and table.has_key:
            old_key = table.key(old)
            if old_key != new_key:
                records = self.delete(table, old, moment, now, offset, old_is_key=old_is_key)
                return self._moved(
                    table, records, old_key, new_key, table.value(new, whole), moment, now, offset
                )
        if "u" in self._skipped:
            return []
        before = None if whole is None else table.value(whole)
        return [self._change(table, "u", before, table.value(new, whole), new_key, moment, now, offset)]

    def _moved(
        self,
        table: TableSchema,
        records: list[SourceRecord],
        old_key: dict[str, Any] | None,
        new_key: dict[str, Any] | None,
        after: dict[str, Any],
        moment: M,
        now: int,
        offset: SourceOffset,
    ) -> list[SourceRecord]:
        """An update that changes the key: a delete of the old row and a create of the new one, as in
        Debezium.
        """
        if records:
            header = Header("__debezium.newkey", new_key, table.key_schema)
            records[0] = records[0].changed(headers=(header,))
        if "c" not in self._skipped:
            created = self._change(table, "c", None, after, new_key, moment, now, offset)
            records.append(created.changed(headers=(Header("__debezium.oldkey", old_key, table.key_schema),)))
        return records

    def delete(
        self,
        table: TableSchema,
        old: Row,
        moment: M,
        now: int,
        offset: SourceOffset,
        *,
        old_is_key: bool = False,
    ) -> list[SourceRecord]:
        if "d" in self._skipped:
            return []
        key = table.key(old)
        before = table.identity(old) if old_is_key else table.value(old)
        records = [self._change(table, "d", before, None, key, moment, now, offset)]
        if self._tombstones and key is not None:
            records.append(
                SourceRecord(
                    table.topic,
                    None,
                    key,
                    None,
                    table.key_schema,
                    source_partition=self.partition,
                    source_offset=offset,
                )
            )
        return records

    def truncate(self, table: TableSchema, moment: M, now: int, offset: SourceOffset) -> list[SourceRecord]:
        if "t" in self._skipped:
            return []
        return [self._change(table, "t", None, None, None, moment, now, offset)]

    def heartbeat(self, now: int, offset: SourceOffset) -> SourceRecord:
        return SourceRecord(
            self._heartbeat_topic,
            {"ts_ms": now // 1000},
            {"serverName": self._prefix},
            HEARTBEAT_VALUE,
            HEARTBEAT_KEY,
            source_partition=self.partition,
            source_offset=offset,
        )

    def _change(
        self,
        table: TableSchema,
        operation: str,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
        key: dict[str, Any] | None,
        moment: M,
        now: int,
        offset: SourceOffset,
    ) -> SourceRecord:
        value = {
            "before": before,
            "after": after,
            "source": self.source_block(table.space, table.table, moment),
            "transaction": None,
            "op": operation,
            "ts_ms": now // 1000,
            "ts_us": now,
            "ts_ns": now * 1000,
        }
        return SourceRecord(
            table.topic,
            value,
            key,
            table.value_schema,
            None if key is None else table.key_schema,
            source_partition=self.partition,
            source_offset=offset,
        )
