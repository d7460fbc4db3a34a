"""One version of a table: its Connect schemas, and how a row of text becomes key and value."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.connect.api import (
    INT64_SCHEMA,
    STRING_SCHEMA,
    ConnectError,
    DataError,
    Schema,
    Type,
    struct_schema,
)
from penstock.connect.connectors.postgres.column_types import PgType, column_type
from penstock.connect.connectors.postgres.pgoutput import UNCHANGED, Value
from penstock.connect.connectors.postgres.settings import SourceSettings

_log = logging.getLogger(__name__)

_SNAPSHOT = Schema(
    Type.STRING,
    optional=True,
    default="false",
    name="io.debezium.data.Enum",
    version=1,
    parameters=(
        ("allowed", "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"),
    ),
)
_OPTIONAL_INT64 = INT64_SCHEMA.as_optional()
_OPTIONAL_STRING = STRING_SCHEMA.as_optional()
SOURCE_SCHEMA = struct_schema(
    {
        "version": STRING_SCHEMA,
        "connector": STRING_SCHEMA,
        "name": STRING_SCHEMA,
        "ts_ms": INT64_SCHEMA,
        "snapshot": _SNAPSHOT,
        "db": STRING_SCHEMA,
        "sequence": _OPTIONAL_STRING,
        "ts_us": _OPTIONAL_INT64,
        "ts_ns": _OPTIONAL_INT64,
        "schema": STRING_SCHEMA,
        "table": STRING_SCHEMA,
        "txId": _OPTIONAL_INT64,
        "lsn": _OPTIONAL_INT64,
        "xmin": _OPTIONAL_INT64,
        "origin": _OPTIONAL_STRING,
        "origin_lsn": _OPTIONAL_INT64,
    },
    name="io.debezium.connector.postgresql.Source",
    version=1,
)
_TRANSACTION_SCHEMA = struct_schema(
    {"id": STRING_SCHEMA, "total_order": INT64_SCHEMA, "data_collection_order": INT64_SCHEMA},
    name="event.block",
    version=1,
).as_optional()
ENVELOPE_TAIL = {
    "source": SOURCE_SCHEMA,
    "transaction": _TRANSACTION_SCHEMA,
    "op": STRING_SCHEMA,
    "ts_ms": _OPTIONAL_INT64,
    "ts_us": _OPTIONAL_INT64,
    "ts_ns": _OPTIONAL_INT64,
}


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table; its place in rows is its index."""

    name: str
    type_oid: int
    type_modifier: int
    required: bool


class TableSchema:
    """Made again for each Relation message, and so after each change of the table."""

    def __init__(
        self,
        settings: SourceSettings,
        schema: str,
        table: str,
        columns: Sequence[TableColumn],
        key: Sequence[str],
        types: Mapping[int, PgType],
    ) -> None:
        self.schema, self.table = schema, table
        self.topic = settings.topic(schema, table)
        self._failure_mode = settings.values["event.converting.failure.handling.mode"]
        self._name = settings.values["topic.delimiter"].join((settings.prefix, schema, table))
        places = {column.name: at for at, column in enumerate(columns)}
        self._key = [(name, places[name]) for name in key if name in places]
        self._types = [
            column_type(column.type_oid, column.type_modifier, types, settings.modes) for column in columns
        ]
        self._converters = [each.convert for each in self._types]
        self._columns = tuple(columns)
        self._required = [column.required for column in columns]
        taken = [settings.columns.takes(f"{schema}.{table}.{column.name}") for column in columns]
        self._taken = [at for at, yes in enumerate(taken) if yes]
        self._all = all(taken)
        self._names = [column.name for column in columns]
        self.key_schema: Schema | None = None
        if self._key:
            self.key_schema = struct_schema(
                {name: self._types[at].schema for name, at in self._key}, name=f"{self._name}.Key"
            )
        self._make_schemas()

    def _make_schemas(self) -> None:
        row = struct_schema(
            {self._names[at]: self._column_schema(at) for at in self._taken}, name=f"{self._name}.Value"
        ).as_optional()
        self.value_schema = struct_schema(
            {"before": row, "after": row, **ENVELOPE_TAIL}, name=f"{self._name}.Envelope", version=2
        )

    def _column_schema(self, at: int) -> Schema:
        schema = self._types[at].schema
        return schema if self._required[at] else schema.as_optional()

    @property
    def has_key(self) -> bool:
        return bool(self._key)

    def key_text(self, row: Sequence[Value]) -> list[Value]:
        return [row[at] for _, at in self._key]

    def key(self, row: Sequence[Value]) -> dict[str, Any] | None:
        """None for a table without a primary key."""
        if not self._key:
            return None
        return {name: self._value(at, row[at]) for name, at in self._key}

    def value(self, row: Sequence[Value], old: Sequence[Value] | None = None) -> dict[str, Any]:
        """The whole row. A TOASTed value that was not sent comes from the old row, if that is whole."""
        if len(row) != len(self._columns):
            raise ConnectError(
                f"A row of {self.schema}.{self.table} has {len(row)} columns, "
                f"and its relation {len(self._columns)}."
            )
        if self._all and None not in row and UNCHANGED not in row:
            try:
                return {
                    name: convert(text)  # type: ignore[arg-type]  # neither null nor unchanged; never binary
                    for name, convert, text in zip(self._names, self._converters, row)
                }
            except (DataError, ValueError):
                pass  # column by column, to find which
        result = {}
        for at in self._taken:
            text = row[at]
            if text is UNCHANGED and old is not None:
                text = old[at]
            result[self._names[at]] = self._value(at, text)
        return result

    def identity(self, row: Sequence[Value]) -> dict[str, Any]:
        """A row of which the server sent only the replica identity: all else is null, or its type's zero."""
        return {
            self._names[at]: (
                self._types[at].zero if row[at] is None and self._required[at] else self._value(at, row[at])
            )
            for at in self._taken
        }

    def _value(self, at: int, text: Value) -> Any:
        if isinstance(text, str):
            try:
                return self._converters[at](text)
            except (DataError, ValueError) as error:
                self._failed(at, text, error)
                text = None
        if text is UNCHANGED:
            placeholder = self._types[at].unavailable
            if placeholder is not None:
                return placeholder
        # What the catalogue calls required now may have been null when the row was written.
        if self._required[at]:
            self._required[at] = False
            self._make_schemas()
        return None

    def _failed(self, at: int, text: str, error: Exception) -> None:
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        message = (
            f"Column {self.schema}.{self.table}.{self._names[at]}: {shown!r} cannot be converted: {error}"
        )
        if self._failure_mode == "fail":
            raise ConnectError(f"{message}. event.converting.failure.handling.mode warn sends null instead.")
        if self._failure_mode == "warn":
            _log.warning("%s; null is sent.", message)
