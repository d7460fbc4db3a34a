"""Encodes rows as Protobuf: the .proto of a Spark type, and columns as messages of a descriptor."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql import types as T

from penstock.spark.encoders.columns import (
    Encode,
    Piece,
    always,
    as_bytes,
    bits,
    grouped,
    joined,
    lists,
    little_endian,
    nullable,
    required,
    sizes_of,
    varints,
    whole_numbers,
    zigzag,
)
from penstock.spark.errors import BadRow, NotTyped

F = FieldDescriptor
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TIMESTAMP = "google.protobuf.Timestamp"
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_WHOLE = (T.ByteType, T.ShortType, T.IntegerType)


# From types to a schema


def proto_schema(kind: T.DataType, name: str = "Value") -> str:
    """The .proto of rows of this type; the same text for the same type. A field's number is its position, so
    new columns must be added at the end.
    """
    if not isinstance(kind, T.StructType):
        raise NotTyped(f"a Protobuf message is a struct, not {kind.simpleString()}")
    lines = _message(kind, name, "", "")
    text = "\n".join(lines)
    imports = 'import "google/protobuf/timestamp.proto";\n\n' if _TIMESTAMP in text else ""
    return f'syntax = "proto3";\n\n{imports}{text}\n'


def _message(kind: T.StructType, name: str, indent: str, place: str) -> list[str]:
    if not _NAME.fullmatch(name):
        raise NotTyped(f"Protobuf has no name '{name}': rename it, with letters, digits and _ only")
    fields, inside = [], []
    for number, field in enumerate(kind.fields, 1):
        if not _NAME.fullmatch(field.name):
            raise NotTyped(
                f"Protobuf has no field called '{field.name}': rename it (AS), with letters, digits and _"
            )
        where = f"{place}.{field.name}".lstrip(".")
        label, word, below = _field(field.dataType, f"{field.name}_message", where)
        if below is not None:
            inside += _message(below, f"{field.name}_message", f"{indent}  ", where)
        fields.append(f"{indent}  {label}{word} {field.name} = {number};")
    return [f"{indent}message {name} {{", *inside, *fields, f"{indent}}}"]


def _field(kind: T.DataType, name: str, place: str) -> tuple[str, str, T.StructType | None]:
    if isinstance(kind, T.ArrayType):
        return ("repeated ", *_word(kind.elementType, name, f"{place}[]"))
    if isinstance(kind, T.MapType):
        key, _ = _word(kind.keyType, name, f"the key of {place}")
        if not isinstance(kind.keyType, (T.StringType, T.BooleanType, T.LongType, *_WHOLE)):
            raise NotTyped(f"'{place}' is {kind.simpleString()}: Protobuf has no map with such keys")
        word, below = _word(kind.valueType, name, f"{place}{{}}")
        return "", f"map<{key}, {word}>", below
    return ("optional ", *_word(kind, name, place))


def _word(kind: T.DataType, name: str, place: str) -> tuple[str, T.StructType | None]:
    if isinstance(kind, T.StructType):
        return name, kind
    found = next((word for type_, word in _WORDS if isinstance(kind, type_)), None)
    if found is None:
        raise NotTyped(f"'{place}' is {kind.simpleString()}, for which Protobuf has no type in that place")
    return found, None


_WORDS: tuple[tuple[type[T.DataType], str], ...] = (
    (T.BooleanType, "bool"),
    (T.ByteType, "int32"),
    (T.ShortType, "int32"),
    (T.IntegerType, "int32"),
    (T.LongType, "int64"),
    (T.FloatType, "float"),
    (T.DoubleType, "double"),
    (T.StringType, "string"),
    (T.BinaryType, "bytes"),
    (T.TimestampType, _TIMESTAMP),
    (T.DecimalType, "string"),
    (T.DateType, "string"),
    (T.TimestampNTZType, "string"),
)


# From columns to bytes


def encoder(message: Descriptor, kind: T.DataType, place: str = "") -> Encode:
    """Encodes columns of a Spark type as bytes of the message. Raises NotTyped if they do not match."""
    if not isinstance(kind, T.StructType):
        raise NotTyped(
            f"{place or 'the column'} is {kind.simpleString()}, and {message.full_name} is a struct"
        )
    takes = []
    for index, column in enumerate(kind.fields):
        field = message.fields_by_name.get(column.name)
        if field is None:
            raise NotTyped(f"the message {message.full_name} has no field {column.name}")
        takes.append((index, _any_field(field, column.dataType, f"{place}.{column.name}".lstrip("."))))
    # In the order of field numbers, as other writers do it.
    takes.sort(key=lambda take: message.fields_by_name[kind.fields[take[0]].name].number)

    def pieces(array: pa.Array) -> list[Piece]:
        found = [piece for index, encode in takes for piece in encode(array.field(index))]
        return found or [always(b"")]

    return pieces


def _any_field(field: FieldDescriptor, kind: T.DataType, place: str) -> Encode:
    """A field with its tag; nothing for null."""
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if not isinstance(kind, T.MapType):
            raise _clash(field, kind, place)
        key = required(
            _tagged(entry.fields_by_name["key"], kind.keyType, place), place, "and a key may not be"
        )
        value = required(
            _tagged(entry.fields_by_name["value"], kind.valueType, f"{place}{{}}"), place, _NO_NULLS
        )
        entries: Encode = lambda array: [*key(array.field(0)), *value(array.field(1))]  # noqa: E731
        return nullable(_each(_with_size(entries, _tag(field.number, _LENGTH))), b"", b"")
    if field.is_repeated:
        if not isinstance(kind, T.ArrayType):
            raise _clash(field, kind, place)
        return nullable(
            _each(required(_tagged(field, kind.elementType, f"{place}[]"), f"{place}[]", _NO_NULLS)), b"", b""
        )
    return nullable(_tagged(field, kind, place), b"", b"")


_NO_NULLS = "and Protobuf has no null within lists and maps"


def _each(item: Encode) -> Encode:
    def pieces(array: pa.Array) -> list[Piece]:
        lengths, items = lists(array)
        return [grouped(joined(item(items), len(items)), lengths)]

    return pieces


def _tag(number: int, wire: int) -> pa.Scalar:
    return always(varints(np.array([number << 3 | wire], np.uint64))[0].as_py())


def _with_size(message: Encode, tag: pa.Scalar) -> Encode:
    def pieces(array: pa.Array) -> list[Piece]:
        data = joined(message(array), len(array))
        return [tag, varints(sizes_of(data)), data]

    return pieces


def _clash(field: FieldDescriptor, kind: T.DataType, place: str) -> NotTyped:
    return NotTyped(
        f"'{place}' is {kind.simpleString()}, which does not go into field {field.name} of "
        f"{field.containing_type.full_name}"
    )


def _tagged(field: FieldDescriptor, kind: T.DataType, place: str) -> Encode:
    """One value of a field, with its tag in front."""
    number = field.number
    if field.message_type is not None:
        name = field.message_type.full_name
        time = name == _TIMESTAMP and isinstance(kind, T.TimestampType)
        inside = _timestamp if time else encoder(field.message_type, kind, place)
        return _with_size(inside, _tag(number, _LENGTH))
    if field.enum_type is not None:
        if not isinstance(kind, T.StringType):
            raise _clash(field, kind, place)
        return _enum(field, place)
    found = _scalar(field, kind)
    if found is None:
        raise _clash(field, kind, place)
    wire, value = found
    tag = _tag(number, wire)
    return lambda array: [tag, *value(array)]


def _timestamp(array: pa.Array) -> list[Piece]:
    micros = whole_numbers(array)
    seconds = micros // 1_000_000
    nanos = (micros - seconds * 1_000_000) * 1000
    return [
        _tag(1, _VARINT),
        varints(seconds.view(np.uint64)),
        _tag(2, _VARINT),
        varints(nanos.view(np.uint64)),
    ]


def _enum(field: FieldDescriptor, place: str) -> Encode:
    names = pa.array([value.name for value in field.enum_type.values], pa.string())
    numbers = np.array([value.number for value in field.enum_type.values], np.int64)
    tag = _tag(field.number, _VARINT)

    def pieces(array: pa.Array) -> list[Piece]:
        found = pc.index_in(array.cast(pa.string()), names)
        if found.null_count:
            wrong = array.filter(found.is_null())[0].as_py()
            raise BadRow(f"'{place}' is '{wrong}', which is not a value of {field.enum_type.full_name}")
        return [tag, varints(numbers[whole_numbers(found)].view(np.uint64))]

    return pieces


def _scalar(field: FieldDescriptor, kind: T.DataType) -> tuple[int, Encode] | None:
    form = field.type
    if isinstance(kind, T.BooleanType):
        return (_VARINT, lambda array: [bits(array)]) if form == F.TYPE_BOOL else None
    if isinstance(kind, (T.LongType, *_WHOLE)):
        wide = not isinstance(kind, T.LongType)
        if form == F.TYPE_INT64 or (form == F.TYPE_INT32 and wide):
            return _VARINT, lambda array: [varints(whole_numbers(array).view(np.uint64))]
        if form == F.TYPE_SINT64 or (form == F.TYPE_SINT32 and wide):
            return _VARINT, lambda array: [varints(zigzag(whole_numbers(array)))]
        if form == F.TYPE_SFIXED64 or (form == F.TYPE_SFIXED32 and wide):
            target = pa.int64() if form == F.TYPE_SFIXED64 else pa.int32()
            wire = _EIGHT_BYTES if form == F.TYPE_SFIXED64 else _FOUR_BYTES
            return wire, lambda array: [little_endian(array.cast(target))]
        return None
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        if form == F.TYPE_DOUBLE:
            return _EIGHT_BYTES, lambda array: [little_endian(array.cast(pa.float64()))]
        if form == F.TYPE_FLOAT and isinstance(kind, T.FloatType):
            return _FOUR_BYTES, lambda array: [little_endian(array)]
        return None
    if form == F.TYPE_BYTES:
        return (_LENGTH, _sized) if isinstance(kind, T.BinaryType) else None
    if form != F.TYPE_STRING:
        return None
    if isinstance(kind, T.StringType):
        return _LENGTH, _sized
    if isinstance(kind, (T.DecimalType, T.DateType)):
        return _LENGTH, lambda array: _sized(array.cast(pa.string()))
    if isinstance(kind, T.TimestampNTZType):
        return _LENGTH, lambda array: _sized(pc.strftime(array, "%Y-%m-%dT%H:%M:%S"))
    return None


def _sized(array: pa.Array) -> list[Piece]:
    data = as_bytes(array)
    return [varints(sizes_of(data)), data]
