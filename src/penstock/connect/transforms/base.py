"""The interfaces of transforms and predicates, and transforms of a record's key or value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from penstock.connect.api import SinkRecord, SourceRecord
from penstock.connect.errors import DataError
from penstock.connect.schemas import Schema, SchemaField, Type
from penstock.connect.settings import REPLACE_NULL, Field, parse

Record = SourceRecord | SinkRecord


class Transform:
    """One of a connector's `transforms`. Returning None drops the record."""

    fields: ClassVar[tuple[Field, ...]] = ()

    def __init__(self, config: Mapping[str, str]) -> None:
        self.settings: dict[str, Any] = parse(self.fields, config)
        self.configure()

    def configure(self) -> None:
        """Prepares the settings. Raises ValueError for settings that contradict each other."""

    def apply(self, record: Record) -> Record | None:
        raise NotImplementedError


class Predicate:
    """One of a connector's `predicates`."""

    fields: ClassVar[tuple[Field, ...]] = ()

    def __init__(self, config: Mapping[str, str]) -> None:
        self.settings: dict[str, Any] = parse(self.fields, config)
        self.configure()

    def configure(self) -> None:
        pass

    def holds(self, record: Record) -> bool:
        raise NotImplementedError


class PartTransform(Transform):
    """Transforms the key (`Name$Key`) or the value (`Name$Value`); each class sets `part`."""

    part: ClassVar[str] = "value"

    def get(self, record: Record) -> tuple[Schema | None, Any]:
        if self.part == "key":
            return record.key_schema, record.key
        return record.value_schema, record.value

    def struct(self, schema: Schema | None, value: Any, purpose: str) -> dict[str, Any]:
        """A copy of the fields, with nulls read as the transform's `replace.null.with.default` says."""
        return with_defaults(schema, need_struct(value, purpose), self.settings[REPLACE_NULL.name])

    def put(self, record: Record, schema: Schema | None, value: Any) -> Record:
        if self.part == "key":
            return record.changed(key_schema=schema, key=value)
        return record.changed(value_schema=schema, value=value)

    def apply(self, record: Record) -> Record | None:
        schema, value = self.get(record)
        if value is None:
            return record
        return self.put(record, *self.change(schema, value, record))

    def change(self, schema: Schema | None, value: Any, record: Record) -> tuple[Schema | None, Any]:
        raise NotImplementedError


def parts(transform: type[PartTransform]) -> dict[str, type[Transform]]:
    """Returns both classes, with Java's names."""
    name = transform.__name__
    return {
        f"{name}$Key": type(f"{name}Key", (transform,), {"part": "key", "__module__": transform.__module__}),
        f"{name}$Value": type(
            f"{name}Value", (transform,), {"part": "value", "__module__": transform.__module__}
        ),
    }


def need_struct(value: Any, purpose: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(
            f"Only Struct or Map objects supported for [{purpose}], found: {type(value).__name__}"
        )
    return value


def with_defaults(schema: Schema | None, value: dict[str, Any], replace_null: bool) -> dict[str, Any]:
    """A copy of the struct; with `replace_null`, fields that are null have their default."""
    found = dict(value)
    if replace_null and schema is not None:
        for each in schema.fields:
            if found.get(each.name) is None and each.schema.default is not None:
                found[each.name] = each.schema.default
    return found


def fields_of(schema: Schema) -> dict[str, Schema]:
    if schema.type is not Type.STRUCT:
        raise DataError(f"a struct is needed, not {schema.type.value}")
    return {each.name: each.schema for each in schema.fields}


def with_fields(schema: Schema, fields: Mapping[str, Schema]) -> Schema:
    return schema.with_fields(SchemaField(name, each) for name, each in fields.items())
