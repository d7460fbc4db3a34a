"""Encodes rows in the framing of a schema registry's serializers: schemas of Spark types, and encoders of
columns.

`schema_text` returns the schema that the sink registers for a type, so that it can be registered beforehand.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.registry.client import MissingLibrary, parse_schema
from penstock.registry.formats import ResolvedReference
from penstock.registry.serdes.framing import MAGIC_ID, write_indexes
from penstock.spark.encoders.columns import always, flags, joined, spread
from penstock.spark.errors import NotTyped
from penstock.spark.typed.options import JSON_TEXT

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from penstock.spark.encoders.columns import Encode

_ID = struct.Struct(">bI")


def schema_text(schema_type: str, kind: DataType, subject: str) -> str:
    """The schema for rows of this type under this subject; `schema_type` is AVRO, JSON or PROTOBUF."""
    name = record_name(subject)
    if schema_type == "AVRO":
        return avro_schema(kind, name)
    return json_schema(kind, name) if schema_type == "JSON" else proto_schema(kind, name)


def record_name(subject: str) -> str:
    """`page-views-value` becomes PageViewsValue: a valid name in all formats, the same for the same
    subject.
    """
    words = re.findall(r"[A-Za-z0-9]+", subject.rpartition(":")[2])
    name = "".join(word[0].upper() + word[1:] for word in words)
    return name if name[:1].isalpha() else f"Record{name}"


def avro_schema(kind: DataType, name: str = "Value") -> str:
    from penstock.spark.encoders import avro as encode_avro

    return encode_avro.avro_schema(kind, name)


def json_schema(kind: DataType, name: str = "Value") -> str:
    from penstock.spark.encoders import json as encode_json

    return encode_json.json_schema(kind, name)


def proto_schema(kind: DataType, name: str = "Value") -> str:
    from penstock.spark.encoders import protobuf as encode_protobuf

    return encode_protobuf.proto_schema(kind, name)


class ColumnEncoder:
    """Values of one type as framed records of one schema, or as plain JSON, a column at a time."""

    def __init__(
        self,
        schema_type: str,
        schema: str,
        references: tuple[ResolvedReference, ...],
        kind: DataType,
        schema_id: int,
        message: str | None = None,
    ) -> None:
        frame = b"" if schema_type == JSON_TEXT else _ID.pack(MAGIC_ID, schema_id)
        if schema_type == "PROTOBUF":
            self._encode, indexes = _protobuf(schema, references, kind, message)
            frame += write_indexes(indexes)
        elif schema_type == "AVRO":
            from penstock.spark.encoders import avro as encode_avro

            parsed: Any = parse_schema(schema_type, schema, references)
            self._encode = encode_avro.encoder(parsed.raw, kind)
        else:
            from penstock.spark.encoders import json as encode_json

            self._encode = encode_json.encoder(kind)
        self._frame = always(frame)

    def encode(self, column: pa.Array) -> pa.Array:
        """Bytes; null stays null."""
        if not column.null_count:
            return joined([self._frame, *self._encode(column)], len(column))
        values = column.drop_null()
        there = column.is_valid()
        dense = joined([self._frame, *self._encode(values)], len(values))
        return pc.if_else(there, spread(dense, flags(there)), pa.scalar(None, pa.binary()))


def _protobuf(
    schema: str, references: tuple[ResolvedReference, ...], kind: DataType, message: str | None
) -> tuple[Encode, tuple[int, ...]]:
    try:
        from penstock.registry.serdes.protobuf import Messages
        from penstock.spark.encoders import protobuf as encode_protobuf
    except ImportError as error:
        raise MissingLibrary("value.format=protobuf", error) from None
    parsed: Any = parse_schema("PROTOBUF", schema, references)
    messages = Messages(parsed)
    try:
        name = messages.find(message)
    except (KeyError, StopIteration):
        raise NotTyped(f"the schema has no message {message}; it has {', '.join(messages.names)}") from None
    return encode_protobuf.encoder(messages.descriptor(name), kind), messages.indexes_of(name)
