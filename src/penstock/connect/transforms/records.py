"""Transforms of a whole record: headers, topic, timestamp, and dropping it."""

from __future__ import annotations

import datetime
import re
from typing import Any

from penstock.config.types import OneOf
from penstock.connect.api import Header
from penstock.connect.errors import DataError
from penstock.connect.schemas import (
    DATE_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    Schema,
    Type,
)
from penstock.connect.settings import REPLACE_NULL, ConfigType, Field, Importance
from penstock.connect.transforms.base import (
    PartTransform,
    Predicate,
    Record,
    Transform,
    fields_of,
    with_fields,
)
from penstock.connect.transforms.java_dates import format_date, parse_date

_HIGH, _LOW = Importance.HIGH, Importance.LOW
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class HeaderFrom(PartTransform):
    """Copies or moves fields into headers."""

    fields = (
        Field("fields", ConfigType.LIST, doc="The fields.", importance=_HIGH),
        Field("headers", ConfigType.LIST, doc="A header for each of them.", importance=_HIGH),
        Field(
            "operation",
            doc="Either move or copy.",
            validator=OneOf("move", "copy"),
            importance=_HIGH,
        ),
        REPLACE_NULL,
    )

    def configure(self) -> None:
        if len(self.settings["fields"]) != len(self.settings["headers"]):
            raise ValueError("'fields' config must have the same number of elements as 'headers' config.")

    def apply(self, record: Record) -> Record | None:
        schema, value = self.get(record)
        if value is None:
            return record
        read = self.struct(schema, value, "header copying")
        value = read if self.settings["operation"] == "move" else dict(value)
        fields = None if schema is None else fields_of(schema)
        headers = list(record.headers)
        for name, header in zip(self.settings["fields"], self.settings["headers"], strict=True):
            headers.append(Header(header, read.get(name), None if fields is None else fields.get(name)))
            if self.settings["operation"] == "move":
                value.pop(name, None)
                if fields is not None:
                    fields.pop(name, None)
        if schema is not None and fields is not None:
            schema = with_fields(schema, fields)
        return self.put(record, schema, value).changed(headers=tuple(headers))


class InsertHeader(Transform):
    fields = (
        Field("header", doc="The name.", importance=_HIGH),
        Field("value.literal", doc="The value.", importance=_HIGH),
    )

    def apply(self, record: Record) -> Record | None:
        header = Header(self.settings["header"], self.settings["value.literal"], STRING_SCHEMA)
        return record.changed(headers=(*record.headers, header))


class DropHeaders(Transform):
    fields = (Field("headers", ConfigType.LIST, doc="The headers to remove.", importance=_HIGH),)

    def apply(self, record: Record) -> Record | None:
        gone = self.settings["headers"]
        return record.changed(headers=tuple(each for each in record.headers if each.key not in gone))


class RegexRouter(Transform):
    """Changes the topic if its whole name matches `regex`; `$1` is replaced by the first group."""

    fields = (
        Field("regex", doc="What the topic must match.", importance=_HIGH),
        Field("replacement", doc="The new topic.", importance=_HIGH),
    )

    def configure(self) -> None:
        try:
            self._regex = re.compile(self.settings["regex"])
        except re.error as error:
            raise ValueError(f"regex {self.settings['regex']}: {error}") from error
        self._replacement = re.sub(r"\$(\d+)", r"\\g<\1>", self.settings["replacement"])

    def apply(self, record: Record) -> Record | None:
        match = self._regex.fullmatch(record.topic)
        return record if match is None else record.changed(topic=match.expand(self._replacement))


class TimestampRouter(Transform):
    """Adds the record's timestamp to the topic's name."""

    fields = (
        Field("topic.format", default="${topic}-${timestamp}", doc="The new topic.", importance=_HIGH),
        Field(
            "timestamp.format",
            default="yyyyMMdd",
            doc="The time, as Java's SimpleDateFormat has it.",
            importance=_HIGH,
        ),
    )

    def apply(self, record: Record) -> Record | None:
        if record.timestamp is None:
            raise DataError(f"Timestamp missing on record: {record.topic}")
        at = _EPOCH + datetime.timedelta(milliseconds=record.timestamp)
        text = format_date(self.settings["timestamp.format"], at)
        topic = self.settings["topic.format"].replace("${topic}", record.topic)
        return record.changed(topic=topic.replace("${timestamp}", text))


# Nanoseconds in each; a time of Python has microseconds.
_UNITS = {"seconds": 10**9, "milliseconds": 10**6, "microseconds": 1000, "nanoseconds": 1}


class TimestampConverter(PartTransform):
    """Converts a field or the whole value between text, Unix time, Date, Time and Timestamp."""

    fields = (
        Field("field", default="", doc="The field; empty for the whole value.", importance=_HIGH),
        Field(
            "target.type",
            doc="What it becomes.",
            validator=OneOf("string", "unix", "Date", "Time", "Timestamp"),
            importance=_HIGH,
        ),
        Field("format", ConfigType.STRING, "", "Java's SimpleDateFormat, for text."),
        Field(
            "unix.precision",
            default="milliseconds",
            doc="Of Unix time.",
            validator=OneOf("seconds", "milliseconds", "microseconds", "nanoseconds"),
            importance=_LOW,
        ),
        REPLACE_NULL,
    )

    def configure(self) -> None:
        if self.settings["target.type"] == "string" and not self.settings["format"]:
            raise ValueError(
                "TimestampConverter requires format option to be specified when using string timestamps"
            )

    def change(self, schema: Schema | None, value: Any, record: Record) -> tuple[Schema | None, Any]:
        name = self.settings["field"]
        if not name:
            return self._schema(schema), self._convert(value)
        value = self.struct(schema, value, "converting timestamp formats")
        value[name] = self._convert(value.get(name))
        if schema is None:
            return None, value
        fields = fields_of(schema)
        if name in fields:
            fields[name] = self._schema(fields[name]) or fields[name]
        return with_fields(schema, fields), value

    def _schema(self, schema: Schema | None) -> Schema | None:
        if schema is None:
            return None
        found = {
            "string": STRING_SCHEMA,
            "unix": INT64_SCHEMA,
            "Date": DATE_SCHEMA,
            "Time": TIME_SCHEMA,
            "Timestamp": TIMESTAMP_SCHEMA,
        }[self.settings["target.type"]]
        return found.as_optional() if schema.optional else found

    def _convert(self, value: Any) -> Any:
        if value is None:
            return None
        at = self._moment(value)
        match self.settings["target.type"]:
            case "string":
                return format_date(self.settings["format"], at)
            case "unix":
                micros = (at - _EPOCH) // datetime.timedelta(microseconds=1)
                return micros * 1000 // _UNITS[self.settings["unix.precision"]]
            case "Date":
                return at.date()
            case "Time":
                return at.time()
            case _:
                return at

    def _moment(self, value: Any) -> datetime.datetime:
        if isinstance(value, datetime.datetime):
            return value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        if isinstance(value, datetime.date):
            return datetime.datetime(value.year, value.month, value.day, tzinfo=datetime.UTC)
        if isinstance(value, datetime.time):
            return datetime.datetime.combine(_EPOCH.date(), value, tzinfo=datetime.UTC)
        if isinstance(value, int) and not isinstance(value, bool):
            factor = _UNITS[self.settings["unix.precision"]]
            return _EPOCH + datetime.timedelta(microseconds=value * factor // 1000)
        if isinstance(value, str):
            return parse_date(self.settings["format"], value)
        raise DataError(f"TimestampConverter does not support {type(value).__name__}")


class Filter(Transform):
    """Drops every record, or with a predicate those that match it."""

    def apply(self, record: Record) -> Record | None:
        return None


class ExtractNewRecordState(Transform):
    """Unwraps Debezium's envelope to the row after the change; a deletion becomes a tombstone."""

    fields = (
        Field(
            "delete.tombstone.handling.mode",
            default="tombstone",
            doc="What a deletion becomes.",
            validator=OneOf("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone"),
        ),
        Field("drop.tombstones", ConfigType.BOOLEAN, None, "Older setting: whether tombstones are dropped."),
        Field(
            "add.fields", ConfigType.LIST, (), "Of the envelope, to add as __name: op,table,lsn,source.ts_ms."
        ),
        Field("add.headers", ConfigType.LIST, (), "The same as headers."),
        Field("add.fields.prefix", default="__", doc="Before the name of each added field."),
        Field("add.headers.prefix", default="__", doc="Before the name of each added header."),
    )

    def configure(self) -> None:
        mode = self.settings["delete.tombstone.handling.mode"]
        self._drop_tombstones = mode in ("drop", "rewrite", "delete-to-tombstone")
        if self.settings["drop.tombstones"] is not None:
            self._drop_tombstones = self.settings["drop.tombstones"]
        self._mode = mode

    def apply(self, record: Record) -> Record | None:
        envelope = record.value
        if envelope is None:
            return None if self._drop_tombstones else record
        if not isinstance(envelope, dict) or not {"op", "after"} <= envelope.keys():
            return record  # a heartbeat or a schema change
        schema = record.value_schema
        deleted = envelope["op"] == "d"
        record = record.changed(headers=(*record.headers, *self._headers(envelope, schema)))
        if deleted and not self._mode.startswith("rewrite"):
            if self._mode == "drop":
                return None
            # `tombstone`: only the tombstone that the source sends after the deletion is kept.
            return (
                record.changed(value=None, value_schema=None) if self._mode == "delete-to-tombstone" else None
            )
        row = envelope.get("before") if deleted else envelope["after"]
        if row is None:
            return None  # a truncate or a message
        row = dict(row)
        row_schema = (
            None if schema is None else (schema.field("before") if deleted else schema.field("after"))
        )
        fields = None if row_schema is None else fields_of(row_schema)
        for name in self.settings["add.fields"]:
            value, found = _of_envelope(envelope, schema, name)
            full = self.settings["add.fields.prefix"] + name.replace(".", "_")
            row[full] = value
            if fields is not None:
                fields[full] = (found or STRING_SCHEMA).as_optional()
        if self._mode.startswith("rewrite"):
            row["__deleted"] = "true" if deleted else "false"
            if fields is not None:
                fields["__deleted"] = STRING_SCHEMA.as_optional()
        if row_schema is not None and fields is not None:
            row_schema = with_fields(row_schema.as_required(), fields)
        return record.changed(value=row, value_schema=row_schema)

    def _headers(self, envelope: dict[str, Any], schema: Schema | None) -> list[Header]:
        found = []
        for name in self.settings["add.headers"]:
            value, of = _of_envelope(envelope, schema, name)
            found.append(Header(self.settings["add.headers.prefix"] + name.replace(".", "_"), value, of))
        return found


def _of_envelope(envelope: dict[str, Any], schema: Schema | None, name: str) -> tuple[Any, Schema | None]:
    """`op`, `ts_ms`, or a field of `source`, as Debezium finds them."""
    path = name.split(".") if "." in name else [name] if name in envelope else ["source", name]
    value: Any = envelope
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
        schema = schema.field(step) if schema is not None and schema.type is Type.STRUCT else None
    return value, schema


class TopicNameMatches(Predicate):
    fields = (Field("pattern", doc="What the whole topic name matches.", importance=Importance.MEDIUM),)

    def configure(self) -> None:
        try:
            self._pattern = re.compile(self.settings["pattern"])
        except re.error as error:
            raise ValueError(f"pattern {self.settings['pattern']}: {error}") from error

    def holds(self, record: Record) -> bool:
        return self._pattern.fullmatch(record.topic) is not None


class HasHeaderKey(Predicate):
    fields = (Field("name", doc="The header.", importance=Importance.MEDIUM),)

    def holds(self, record: Record) -> bool:
        return any(each.key == self.settings["name"] for each in record.headers)


class RecordIsTombstone(Predicate):
    def holds(self, record: Record) -> bool:
        return record.value is None
