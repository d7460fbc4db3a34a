"""Converts records to rows: their table, columns and key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.connect.api import (
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    DataError,
    Schema,
    SinkRecord,
)
from penstock.connect.converters.inferred import infer

_KAFKA_COLUMNS = ("__connect_topic", "__connect_partition", "__connect_offset")


class Row(NamedTuple):
    """`values` is None to delete the row with this key. `schemas` are those of key and values."""

    key: dict[str, Any]
    values: dict[str, Any] | None
    schemas: dict[str, Schema]


@dataclass(frozen=True, slots=True)
class RowShape:
    """The settings for a record's columns."""

    pk_mode: str
    pk_fields: tuple[str, ...]
    whitelist: frozenset[str]
    delete_enabled: bool

    def row(self, record: SinkRecord) -> Row:
        """Raises DataError for a record that cannot be a row."""
        if record.value is None:
            if not self.delete_enabled:
                raise DataError(
                    "a record without a value is a delete: set delete.enabled=true and pk.mode=record_key, "
                    "or drop it with the transform Filter"
                )
            key, schemas = self._key(record, {}, {})
            return Row(key, None, schemas)
        value, value_schemas = _fields(record.value, record.value_schema, "value")
        key, key_schemas = self._key(record, value, value_schemas)
        values = {
            name: item
            for name, item in value.items()
            if name not in key and (not self.whitelist or name in self.whitelist)
        }
        return Row(key, values, {**key_schemas, **{name: value_schemas[name] for name in values}})

    def _key(
        self, record: SinkRecord, value: Mapping[str, Any], schemas: Mapping[str, Schema]
    ) -> tuple[dict[str, Any], dict[str, Schema]]:
        match self.pk_mode:
            case "none":
                return {}, {}
            case "kafka":
                names = self.pk_fields or _KAFKA_COLUMNS
                place = (record.original_topic, record.original_partition, record.original_offset)
                return dict(zip(names, place)), dict(zip(names, (STRING_SCHEMA, INT32_SCHEMA, INT64_SCHEMA)))
            case "record_value":
                found, found_schemas = value, schemas
            case _:
                found, found_schemas = self._record_key(record)
        names = self.pk_fields or tuple(found)
        key = {}
        for name in names:
            if found.get(name) is None:
                raise DataError(f"pk.mode={self.pk_mode}: the record has no value for the field {name}")
            key[name] = found[name]
        return key, {name: found_schemas[name] for name in names}

    def _record_key(self, record: SinkRecord) -> tuple[Mapping[str, Any], Mapping[str, Schema]]:
        if record.key is None:
            raise DataError("pk.mode=record_key: the record has no key")
        if isinstance(record.key, dict):
            return _fields(record.key, record.key_schema, "key")
        if len(self.pk_fields) != 1:
            raise DataError("pk.fields must name one column for a key that is not a struct")
        name = self.pk_fields[0]
        return {name: record.key}, {name: record.key_schema or infer(record.key)}


def _fields(value: Any, schema: Schema | None, what: str) -> tuple[dict[str, Any], dict[str, Schema]]:
    if not isinstance(value, dict):
        raise DataError(f"the {what} must be a struct or a map, not {type(value).__name__}")
    if schema is None or not schema.fields:
        # Optional, because the next record may lack it.
        return value, {name: infer(item) for name, item in value.items()}
    found = {
        each.name: each.schema.default if value.get(each.name) is None else value[each.name]
        for each in schema.fields
    }
    return found, {each.name: each.schema for each in schema.fields}
