"""Converters between Connect's values and the bytes of records, by Kafka's and Confluent's names."""

from __future__ import annotations

from penstock.connect.converters.base import Converter
from penstock.connect.converters.json import JsonConverter
from penstock.connect.converters.primitive import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
    SimpleHeaderConverter,
    StringConverter,
)
from penstock.connect.converters.with_registry import AvroConverter, JsonSchemaConverter, ProtobufConverter

__all__ = ["CONVERTERS", "HEADER_CONVERTERS", "Converter"]

_BY_JAVA_NAME: dict[str, type[Converter]] = {
    "org.apache.kafka.connect.json.JsonConverter": JsonConverter,
    "org.apache.kafka.connect.storage.StringConverter": StringConverter,
    "org.apache.kafka.connect.converters.ByteArrayConverter": ByteArrayConverter,
    "org.apache.kafka.connect.converters.IntegerConverter": IntegerConverter,
    "org.apache.kafka.connect.converters.LongConverter": LongConverter,
    "org.apache.kafka.connect.converters.ShortConverter": ShortConverter,
    "org.apache.kafka.connect.converters.FloatConverter": FloatConverter,
    "org.apache.kafka.connect.converters.DoubleConverter": DoubleConverter,
    "org.apache.kafka.connect.converters.BooleanConverter": BooleanConverter,
    "io.confluent.connect.avro.AvroConverter": AvroConverter,
    "io.confluent.connect.json.JsonSchemaConverter": JsonSchemaConverter,
    "io.confluent.connect.protobuf.ProtobufConverter": ProtobufConverter,
}

CONVERTERS: dict[str, type[Converter]] = {
    **_BY_JAVA_NAME,
    **{name.rpartition(".")[2]: found for name, found in _BY_JAVA_NAME.items()},
    "json": JsonConverter,
    "string": StringConverter,
    "bytes": ByteArrayConverter,
    "avro": AvroConverter,
    "json-schema": JsonSchemaConverter,
    "protobuf": ProtobufConverter,
}

HEADER_CONVERTERS: dict[str, type[Converter]] = {
    "org.apache.kafka.connect.storage.SimpleHeaderConverter": SimpleHeaderConverter,
    "SimpleHeaderConverter": SimpleHeaderConverter,
    **CONVERTERS,
}
