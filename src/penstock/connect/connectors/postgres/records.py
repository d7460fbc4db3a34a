"""PostgreSQL's records in Debezium's envelope: its `source` block, and logical messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import penstock
from penstock.connect.api import BYTES_SCHEMA, STRING_SCHEMA, SourceOffset, SourceRecord, struct_schema
from penstock.connect.connectors.cdc.envelope import envelope_tail
from penstock.connect.connectors.cdc.records import ChangeRecords
from penstock.connect.connectors.postgres.pgoutput import LogicalMessage
from penstock.connect.connectors.postgres.settings import SourceSettings
from penstock.connect.connectors.postgres.table_schema import SOURCE_SCHEMA

_MESSAGE_KEY = struct_schema(
    {"prefix": STRING_SCHEMA.as_optional()}, name="io.debezium.connector.postgresql.MessageKey", version=1
)
_MESSAGE_VALUE = struct_schema(
    {
        **envelope_tail(SOURCE_SCHEMA),
        "message": struct_schema(
            {"prefix": STRING_SCHEMA.as_optional(), "content": BYTES_SCHEMA.as_optional()},
            name="io.debezium.connector.postgresql.Message",
            version=1,
        ),
    },
    name="io.debezium.connector.postgresql.MessageValue",
    version=1,
)


@dataclass(slots=True)
class Moment:
    """Where and when a change happened."""

    micros: int
    """Of the commit, or of the snapshot."""
    lsn: int
    xid: int | None = None
    last_commit_lsn: int | None = None
    origin: str | None = None
    snapshot: str = "false"


class Records(ChangeRecords[Moment]):
    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        self._message_topic = f"{settings.prefix}{settings.values['topic.delimiter']}message"
        self._source = {
            "version": penstock.__version__,
            "connector": "postgresql",
            "name": settings.prefix,
            "db": settings.values["database.dbname"],
            "xmin": None,
            "origin_lsn": None,
        }

    def message(
        self, message: LogicalMessage, moment: Moment, now: int, offset: SourceOffset
    ) -> SourceRecord:
        value = {
            "message": {"prefix": message.prefix, "content": message.content},
            "source": self.source_block("", "", moment),
            "transaction": None,
            "op": "m",
            "ts_ms": now // 1000,
            "ts_us": now,
            "ts_ns": now * 1000,
        }
        return SourceRecord(
            self._message_topic,
            value,
            {"prefix": message.prefix},
            _MESSAGE_VALUE,
            _MESSAGE_KEY,
            source_partition=self.partition,
            source_offset=offset,
        )

    def source_block(self, space: str, table: str, moment: Moment) -> dict[str, Any]:
        commit = "null" if moment.last_commit_lsn is None else f'"{moment.last_commit_lsn}"'
        return {
            **self._source,
            "ts_ms": moment.micros // 1000,
            "snapshot": moment.snapshot,
            "sequence": f'[{commit},"{moment.lsn}"]',
            "ts_us": moment.micros,
            "ts_ns": moment.micros * 1000,
            "schema": space,
            "table": table,
            "txId": moment.xid,
            "lsn": moment.lsn,
            "origin": moment.origin,
        }
