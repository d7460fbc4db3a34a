"""One version of a table: its Connect schemas, and the conversion of database rows to keys and values."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.connect.api import ConnectError, DataError, Schema, struct_schema
from penstock.connect.connectors.cdc.column_types import UNCHANGED, ColumnType
from penstock.connect.connectors.cdc.envelope import envelope_tail
from penstock.connect.connectors.cdc.settings import CaptureSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Its index is its position in rows."""

    name: str
    type: ColumnType
    required: bool


class TableSchema:
    """Rebuilt after each change of the table. `space` is the schema or database that contains the table."""

    def __init__(
        self,
        settings: CaptureSettings,
        space: str,
        table: str,
        columns: Sequence[Column],
        key: Sequence[str],
        source_schema: Schema,
    ) -> None:
        self.space, self.table = space, table
        self.topic = settings.topic(space, table)
        self._failure_mode = settings.values["event.converting.failure.handling.mode"]
        self._name = settings.values["topic.delimiter"].join((settings.prefix, space, table))
        self._tail = envelope_tail(source_schema)
        places = {column.name: at for at, column in enumerate(columns)}
        self._key = [(name, places[name]) for name in key if name in places]
        self._types = [column.type for column in columns]
        self._converters = [each.convert for each in self._types]
        self._required = [column.required for column in columns]
        self._names = [column.name for column in columns]
        taken = [settings.columns.takes(f"{space}.{table}.{name}") for name in self._names]
        self._taken = [at for at, yes in enumerate(taken) if yes]
        self._all = all(taken)
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
            {"before": row, "after": row, **self._tail}, name=f"{self._name}.Envelope", version=2
        )

    def _column_schema(self, at: int) -> Schema:
        schema = self._types[at].schema
        return schema if self._required[at] else schema.as_optional()

    @property
    def has_key(self) -> bool:
        return bool(self._key)

    def key_columns(self, row: Sequence[Any]) -> list[Any]:
        """The key as the database sent it."""
        return [row[at] for _, at in self._key]

    def key(self, row: Sequence[Any]) -> dict[str, Any] | None:
        """None for a table without a primary key."""
        if not self._key:
            return None
        return {name: self._value(at, row[at]) for name, at in self._key}

    def value(self, row: Sequence[Any], old: Sequence[Any] | None = None) -> dict[str, Any]:
        """The whole row. A value that was not sent is taken from the old row, if that is complete."""
        if len(row) != len(self._names):
            raise ConnectError(
                f"A row of {self.space}.{self.table} has {len(row)} columns, "
                f"and its table {len(self._names)}."
            )
        if self._all and None not in row and UNCHANGED not in row:
            try:
                return {
                    name: convert(value) for name, convert, value in zip(self._names, self._converters, row)
                }
            except (DataError, ValueError):
                pass  # find out which column it is
        result = {}
        for at in self._taken:
            value = row[at]
            if value is UNCHANGED and old is not None:
                value = old[at]
            result[self._names[at]] = self._value(at, value)
        return result

    def identity(self, row: Sequence[Any]) -> dict[str, Any]:
        """A row of which the server sent only the replica identity: other columns are null, or the zero of
        their type.
        """
        return {
            self._names[at]: (
                self._types[at].zero if row[at] is None and self._required[at] else self._value(at, row[at])
            )
            for at in self._taken
        }

    def _value(self, at: int, value: Any) -> Any:
        if value is UNCHANGED:
            if self._types[at].unavailable is not None:
                return self._types[at].unavailable
        elif value is not None:
            try:
                return self._converters[at](value)
            except (DataError, ValueError) as error:
                self._failed(at, value, error)
        # A column that is required now may have been null when the row was written.
        if self._required[at]:
            self._required[at] = False
            self._make_schemas()
        return None

    def _failed(self, at: int, value: Any, error: Exception) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= 62 else f"{shown[:58]}..."
        message = f"Column {self.space}.{self.table}.{self._names[at]}: {shown} cannot be converted: {error}"
        if self._failure_mode == "fail":
            raise ConnectError(f"{message}. event.converting.failure.handling.mode warn sends null instead.")
        if self._failure_mode == "warn":
            _log.warning("%s; null is sent.", message)
