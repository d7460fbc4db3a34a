"""Transforms of the fields of a struct or map: insert, rename, mask, extract, hoist, flatten, cast."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import replace
from typing import Any

from penstock.connect.api import SinkRecord
from penstock.connect.errors import DataError
from penstock.connect.schemas import (
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    TIMESTAMP_SCHEMA,
    Schema,
    Type,
    struct_schema,
)
from penstock.connect.settings import REPLACE_NULL, BadConfig, ConfigType, Field, Importance
from penstock.connect.transforms.base import (
    PartTransform,
    Record,
    Transform,
    fields_of,
    need_struct,
    with_defaults,
    with_fields,
)
from penstock.connect.transforms.casting import TYPES, cast

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _text(name: str, doc: str) -> Field:
    return Field(name, ConfigType.STRING, None, doc)


class InsertField(PartTransform):
    """Adds the topic, partition, offset, timestamp of a record, or a fixed text, as fields.

    A name that ends with `!` is required, one with `?` (the default) is optional.
    """

    fields = (
        _text("topic.field", "Field name for the topic."),
        _text("partition.field", "Field name for the partition."),
        _text("offset.field", "Field name for the offset; only for sinks."),
        _text("timestamp.field", "Field name for the record's timestamp."),
        _text("static.field", "Field name for the fixed text."),
        _text("static.value", "The fixed text."),
        REPLACE_NULL,
    )

    def configure(self) -> None:
        self._wanted: list[tuple[str, str, bool]] = []
        for kind in ("topic", "partition", "offset", "timestamp", "static"):
            name = self.settings[f"{kind}.field"]
            if name:
                self._wanted.append((kind, name.rstrip("!?"), not name.endswith("!")))
        if not self._wanted:
            raise ValueError("No field insertion configured")
        if self.settings["static.field"] and self.settings["static.value"] is None:
            raise BadConfig({"static.value": ["No value specified for static.value: static.field needs it"]})

    def change(self, schema: Schema | None, value: Any, record: Record) -> tuple[Schema | None, Any]:
        value = self.struct(schema, value, "field insertion")
        fields = None if schema is None else fields_of(schema)
        for kind, name, optional in self._wanted:
            found, found_schema = self._find(kind, record, schema is not None)
            if found is None and kind == "timestamp":
                continue
            value[name] = found
            if fields is not None:
                fields[name] = found_schema.as_optional() if optional else found_schema
        return None if schema is None or fields is None else with_fields(schema, fields), value

    def _find(self, kind: str, record: Record, typed: bool) -> tuple[Any, Schema]:
        if kind == "topic":
            return record.topic, STRING_SCHEMA
        if kind == "partition":
            return record.partition, INT32_SCHEMA
        if kind == "offset":
            if not isinstance(record, SinkRecord):
                raise DataError("Offset insertion is only supported for sink connectors")
            return record.offset, INT64_SCHEMA
        if kind == "timestamp":
            if record.timestamp is None:
                return None, TIMESTAMP_SCHEMA
            at = _EPOCH + datetime.timedelta(milliseconds=record.timestamp)
            return at if typed else record.timestamp, TIMESTAMP_SCHEMA
        return self.settings["static.value"], STRING_SCHEMA


class ReplaceField(PartTransform):
    """Excludes fields, includes only some, or renames them (`renames=old:new,...`)."""

    fields = (
        Field("exclude", ConfigType.LIST, (), "Fields to leave out."),
        Field("include", ConfigType.LIST, (), "The only fields to keep."),
        Field("renames", ConfigType.LIST, (), "Pairs old:new."),
        REPLACE_NULL,
    )

    def configure(self) -> None:
        self._renames: dict[str, str] = {}
        for pair in self.settings["renames"]:
            old, colon, new = pair.partition(":")
            if not colon or not old or not new:
                raise ValueError(f"Invalid rename mapping: {pair}")
            self._renames[old] = new

    def _kept(self, name: str) -> bool:
        include = self.settings["include"]
        return name not in self.settings["exclude"] and (not include or name in include)

    def change(self, schema: Schema | None, value: Any, record: Record) -> tuple[Schema | None, Any]:
        value = self.struct(schema, value, "field replacement")
        changed = {self._renames.get(k, k): v for k, v in value.items() if self._kept(k)}
        if schema is None:
            return None, changed
        fields = {self._renames.get(k, k): each for k, each in fields_of(schema).items() if self._kept(k)}
        return with_fields(schema, fields), changed


class MaskField(PartTransform):
    """Replaces fields by the empty value of their type, or by `replacement`."""

    fields = (
        Field("fields", ConfigType.LIST, doc="The fields to mask.", importance=Importance.HIGH),
        Field(
            "replacement",
            default=None,
            doc="What numbers and strings are replaced by.",
            importance=Importance.LOW,
        ),
        REPLACE_NULL,
    )

    def change(self, schema: Schema | None, value: Any, record: Record) -> tuple[Schema | None, Any]:
        value = self.struct(schema, value, "mask fields")
        for name in self.settings["fields"]:
            if value.get(name) is not None:
                value[name] = self._masked(value[name])
        return schema, value

    def _masked(self, value: Any) -> Any:
        replacement = self.settings["replacement"]
        if replacement is not None and isinstance(value, (str, int, float, decimal.Decimal)):
            try:
                return type(value)(replacement)
            except (ValueError, decimal.InvalidOperation) as error:
                raise DataError(
                    f"Unable to convert {replacement} ({type(value).__name__}) to number"
                ) from error
        empty: dict[type, Any] = {
            datetime.datetime: _EPOCH,
            datetime.date: datetime.date(1970, 1, 1),
            datetime.time: datetime.time(),
        }
        kind = type(value)
        if kind in empty:
            return empty[kind]
        if kind in (str, int, float, bool, list, dict, bytes, decimal.Decimal):
            return kind()
        raise DataError(f"Cannot mask value of type: {kind.__name__}")


class ExtractField(PartTransform):
    """Replaces a struct by the value of one of its fields."""

    fields = (
        Field("field", doc="The field to extract.", importance=Importance.MEDIUM),
        Field(
            "field.syntax.version",
            default="V1",
            doc="V1, or V2 for paths with dots.",
            importance=Importance.HIGH,
        ),
        REPLACE_NULL,
    )

    def change(self, schema: Schema | None, value: Any, record: Record) -> tuple[Schema | None, Any]:
        name = self.settings["field"]
        path = name.split(".") if self.settings["field.syntax.version"] == "V2" else [name]
        for step in path:
            value = None if value is None else self.struct(schema, value, "field extraction")
            if schema is not None:
                schema = schema.field(step)
                if schema is None:
                    raise DataError(f"Unknown field: {name}")
            value = None if value is None else value.get(step)
        return schema, value


class HoistField(PartTransform):
    """Wraps the whole value in a struct with one field."""

    fields = (Field("field", doc="The field to put it into."),)

    def apply(self, record: Record) -> Record | None:
        schema, value = self.get(record)
        name = self.settings["field"]
        struct = None if schema is None else struct_schema({name: schema})
        return self.put(record, struct, {name: value})


class Flatten(PartTransform):
    """Flattens nested structs; names are joined by `delimiter`."""

    fields = (Field("delimiter", default=".", doc="The separator between the names."),)

    def change(self, schema: Schema | None, value: Any, record: Record) -> tuple[Schema | None, Any]:
        flat: dict[str, Any] = {}
        if schema is None:
            self._flatten_plain(need_struct(value, "flattening"), "", flat)
            return None, flat
        fields: dict[str, Schema] = {}
        self._flatten(schema, value, "", flat, fields, schema.optional)
        return with_fields(schema, fields), flat

    def _flatten_plain(self, value: dict[str, Any], prefix: str, flat: dict[str, Any]) -> None:
        for name, item in value.items():
            full = f"{prefix}{self.settings['delimiter']}{name}" if prefix else name
            if isinstance(item, dict):
                self._flatten_plain(item, full, flat)
            else:
                flat[full] = item

    def _flatten(
        self,
        schema: Schema,
        value: Any,
        prefix: str,
        flat: dict[str, Any],
        fields: dict[str, Schema],
        optional: bool,
    ) -> None:
        if value is not None:
            value = with_defaults(schema, value, True)
        for name, each in fields_of(schema).items():
            full = f"{prefix}{self.settings['delimiter']}{name}" if prefix else name
            item = None if value is None else value.get(name)
            if each.type is Type.STRUCT:
                self._flatten(each, item, full, flat, fields, optional or each.optional)
            else:
                fields[full] = each.as_optional() if optional else each
                flat[full] = item


class Cast(PartTransform):
    """Casts fields, or the whole value, to another type: `spec=field:int32,...` or `spec=string`."""

    fields = (
        Field("spec", ConfigType.LIST, doc="Pairs field:type, or one type.", importance=Importance.HIGH),
        REPLACE_NULL,
    )

    def configure(self) -> None:
        self._whole: str | None = None
        self._by_field: dict[str, str] = {}
        for each in self.settings["spec"]:
            name, colon, kind = each.rpartition(":")
            if kind not in TYPES:
                raise BadConfig({"spec": [f"Cast transformation does not support casting to/from {kind}"]})
            if colon:
                self._by_field[name] = kind
            else:
                self._whole = kind
        if (self._whole and self._by_field) or not (self._whole or self._by_field):
            raise ValueError("Cast takes either one type for the whole value, or pairs field:type")

    def change(self, schema: Schema | None, value: Any, record: Record) -> tuple[Schema | None, Any]:
        if self._whole:
            return self._schema(schema, self._whole), cast(value, self._whole, schema)
        value = self.struct(schema, value, "cast")
        for name, kind in self._by_field.items():
            if value.get(name) is not None:
                value[name] = cast(value[name], kind, None if schema is None else schema.field(name))
        if schema is None:
            return None, value
        fields = {
            name: (self._schema(each, self._by_field[name]) or each) if name in self._by_field else each
            for name, each in fields_of(schema).items()
        }
        return with_fields(schema, fields), value

    def _schema(self, schema: Schema | None, kind: str) -> Schema | None:
        if schema is None:
            return None
        default = None if schema.default is None else cast(schema.default, kind, schema)
        return Schema(TYPES[kind], optional=schema.optional, default=default)


class SetSchemaMetadata(PartTransform):
    """Another name or version for the schema."""

    fields = (
        Field("schema.name", default=None, doc="Schema name to set.", importance=Importance.HIGH),
        Field("schema.version", ConfigType.INT, None, "Schema version to set.", importance=Importance.HIGH),
        REPLACE_NULL,
    )

    def apply(self, record: Record) -> Record | None:
        schema, value = self.get(record)
        if schema is None:
            if value is None:
                return record
            raise DataError("Schema required for [updating schema metadata]")
        name, version = self.settings["schema.name"], self.settings["schema.version"]
        if isinstance(value, dict) and schema.type is Type.STRUCT:
            value = self.struct(schema, value, "updating schema metadata")
        changed = replace(
            schema,
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
        )
        return self.put(record, changed, value)


class ValueToKey(Transform):
    """Replaces the key by fields of the value."""

    fields = (
        Field("fields", ConfigType.LIST, doc="The fields of the new key.", importance=Importance.HIGH),
        REPLACE_NULL,
    )

    def apply(self, record: Record) -> Record | None:
        value = need_struct(record.value, "copying fields from value to key")
        value = with_defaults(record.value_schema, value, self.settings[REPLACE_NULL.name])
        names = self.settings["fields"]
        key = {name: value.get(name) for name in names}
        if record.value_schema is None:
            return record.changed(key=key, key_schema=None)
        known = fields_of(record.value_schema)
        for name in names:
            if name not in known:
                raise DataError(f"Field does not exist: {name}")
        return record.changed(key=key, key_schema=struct_schema({name: known[name] for name in names}))
