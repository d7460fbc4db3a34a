"""Typed columns: `key` and `value` decoded by the schema ids in the records, or as plain text of one schema.

On the driver `resolve` requests the reader's schemas from the registry once; they are sent to the tasks with
the plan, so that all tasks of a query have the same types. In a task `ColumnDecoder` decodes batches, and
handles records that do not decode according to `decode.errors`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.registry.client import (
    MissingLibrary,
    RegisteredSchema,
    RegistryClient,
    RequestRefused,
    parse_schema,
)
from penstock.registry.formats import InvalidSchema, ResolvedReference
from penstock.registry.serdes import writer_schema
from penstock.registry.serdes.framing import HEADERS, Framed, Undecodable, take_apart
from penstock.spark.errors import BadOption, DecodeFailed, NotTyped
from penstock.spark.typed.options import JSON_TEXT, Errors, PartOptions, TypedOptions
from penstock.sqltext.identifiers import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from penstock.spark.dead_letters import DeadLetters

_SEVERITY: dict[Errors, int] = {"null": 0, "skip": 1, "dead-letter": 2, "fail": 3}
"""What becomes of a record whose key and value do not decode."""
_MOST_DECODERS = 16
_MOST_UNKNOWN = 1000
_FORGET_SECONDS = 5.0
"""For how long the registry is not asked again for a schema that it did not know."""
Value = Callable[[Framed], Any]


@dataclass(frozen=True)
class TypedPart:
    """The reader's schema of a column with all its references: everything that a task needs."""

    options: PartOptions
    schema: str
    """For text it is Spark's type as JSON, once Spark has parsed its DDL (`with_types`)."""
    references: tuple[ResolvedReference, ...]


@dataclass(frozen=True)
class TypedColumns:
    options: TypedOptions
    parts: tuple[TypedPart, ...]


# On the driver


def resolve(options: TypedOptions) -> TypedColumns:
    """The reader's schemas: the given ones, or the latest of the subjects."""
    if options.registry is None:
        return TypedColumns(options, tuple(TypedPart(part, "", ()) for part in options.parts))
    with RegistryClient(replace(options.registry, patience=0.0)) as client:
        return TypedColumns(options, tuple(_resolve(client, part) for part in options.parts))


def _resolve(client: RegistryClient, part: PartOptions) -> TypedPart:
    if part.is_text:
        return TypedPart(part, "", ())
    if part.schema is not None:
        return TypedPart(part, part.schema, ())
    try:
        found = client.version(part.subject, part.version)
    except RequestRefused as error:
        if error.status != 404:
            raise
        raise BadOption(
            f"the registry at {client.url} has no schema for the column {part.part}: {error.message} "
            f"Register one for {part.subject}, or name another with {part.part}.subject or {part.part}.schema"
        ) from None
    if found.schema_type != part.schema_type:
        raise BadOption(
            f"{part.part}.format is {part.schema_type.lower()}, but {part.subject} version {found.version} "
            f"is of type {found.schema_type}"
        )
    return TypedPart(part, found.schema, client.resolve(found))


def with_types(columns: TypedColumns, schema: StructType) -> TypedColumns:
    """Adds the types that Spark parsed from the DDL of text, as it passes them to a reader."""
    from pyspark.sql import types as T

    from penstock.spark.typed.text_values import check_types

    parts = []
    for part in columns.parts:
        options = part.options
        if options.is_text and not part.schema:
            kind = schema[options.part].dataType
            if not isinstance(kind, T.StructType):
                raise NotTyped(f"{options.part}.schema must be the columns of a struct, not {options.schema}")
            try:
                check_types(kind, nested=options.schema_type == JSON_TEXT)
            except NotTyped as error:
                raise NotTyped(f"{options.part}.schema: {error}") from None
            part = replace(part, schema=kind.json())
        parts.append(part)
    return replace(columns, parts=tuple(parts))


def source_ddl(columns: TypedColumns, include_headers: bool) -> str:
    """The columns of the source: key and value are bytes unless they are typed."""
    typed = {part.options.part: _ddl_of(part) for part in columns.parts}
    fields = [
        f"key {typed.get('key', 'binary')}, value {typed.get('value', 'binary')}",
        "topic string, partition int, offset bigint, timestamp timestamp, timestampType int",
    ]
    if include_headers:
        fields.append("headers array<struct<key: string, value: binary>>")
    return ", ".join(fields)


def _ddl_of(part: TypedPart) -> str:
    if not part.options.is_text:
        return ddl(_column(part).spark_type)
    text = part.options.schema or ""
    return text if re.match(r"struct\s*<", text, re.IGNORECASE) else f"struct<{text}>"


def ddl(kind: DataType) -> str:
    """A type in Spark's DDL, with all names quoted."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        fields = (f"{quoted(each.name)}: {ddl(each.dataType)}" for each in kind.fields)
        return f"struct<{', '.join(fields)}>"
    if isinstance(kind, T.ArrayType):
        return f"array<{ddl(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"map<{ddl(kind.keyType)}, {ddl(kind.valueType)}>"
    return kind.simpleString()


def source_schema(columns: TypedColumns, include_headers: bool) -> StructType:
    """The columns of the source as a type, if all of their types are known."""
    from pyspark.sql import types as T

    typed = part_types(columns)
    fields = [
        T.StructField("key", typed.get("key", T.BinaryType())),
        T.StructField("value", typed.get("value", T.BinaryType())),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestamp", T.TimestampType()),
        T.StructField("timestampType", T.IntegerType()),
    ]
    if include_headers:
        header = T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
        fields.append(T.StructField("headers", T.ArrayType(header)))
    return T.StructType(fields)


def part_types(columns: TypedColumns) -> dict[str, DataType]:
    """The types of the columns that are typed."""
    from pyspark.sql import types as T

    return {
        part.options.part: T.StructType.fromJson(json.loads(part.schema))
        if part.options.is_text
        else _column(part).spark_type
        for part in columns.parts
    }


def _column(part: TypedPart) -> Any:
    """The column of a key or value: its type in Spark, and readers for writers' schemas."""
    options = part.options
    name = f"the schema of the column {options.part}"
    try:
        parsed: Any = parse_schema(options.schema_type, part.schema, part.references)
        if options.schema_type == "AVRO":
            from penstock.spark.typed.avro import AvroColumn

            return AvroColumn(parsed)
        if options.schema_type == "JSON":
            from penstock.spark.typed.json_schema import JsonColumn

            return JsonColumn(parsed)
        from penstock.spark.typed.protobuf import ProtobufColumn

        return ProtobufColumn(parsed, options.message)
    except InvalidSchema as error:
        raise BadOption(f"{name} cannot be read: {error}") from None
    except NotTyped as error:
        raise NotTyped(f"{name}: {error}. Leave out {options.part}.format to get its bytes") from None
    except ImportError as error:
        raise MissingLibrary(f"{options.part}.format={options.schema_type.lower()}", error) from None


# In a task


class Failure(NamedTuple):
    """The reason why a record does not decode."""

    part: str
    reason: str
    schema_id: int | None
    errors: Errors


_decoders: dict[TypedColumns, ColumnDecoder] = {}
"""Spark keeps its workers: connections to the registry and schemas that were read serve many tasks."""


def worker_decoder(columns: TypedColumns) -> ColumnDecoder:
    decoder = _decoders.get(columns)
    if decoder is None:
        while len(_decoders) >= _MOST_DECODERS:
            _decoders.pop(next(iter(_decoders))).close()
        decoder = _decoders[columns] = ColumnDecoder(columns)
    return decoder


def needs_headers(columns: TypedColumns) -> bool:
    """Whether to read headers: one may name the schema, and a dead letter has the record's headers."""
    return columns.options.registry is not None or columns.options.dead_letter_topic is not None


def decoded(
    batches: Iterator[pa.RecordBatch],
    columns: TypedColumns,
    *,
    keep_headers: bool,
    dead_letters: DeadLetters | None,
) -> Iterator[pa.RecordBatch]:
    """Takes batches, with headers if `needs_headers`; returns batches with typed columns.

    Dead letters are written before a batch is returned.
    """
    decoder = worker_decoder(columns)
    for batch in batches:
        done, failures = decoder.decode(batch)
        dead = [row for row, failure in failures.items() if failure.errors == "dead-letter"]
        if dead:
            assert dead_letters is not None
            for row in dead:
                dead_letters.send(batch, row, failures[row])
            dead_letters.flush()
        dropped = [row for row, failure in failures.items() if failure.errors in ("dead-letter", "skip")]
        if dropped:
            done = _without(done, dropped)
        if not keep_headers and "headers" in done.schema.names:
            done = done.drop_columns(["headers"])
        yield done


def _without(batch: pa.RecordBatch, rows: Sequence[int]) -> pa.RecordBatch:
    import numpy as np
    import pyarrow as pa

    keep = np.ones(batch.num_rows, dtype=bool)
    keep[list(rows)] = False
    return batch.filter(pa.array(keep))


class ColumnDecoder:
    """Decodes the typed columns of batches, with a cache of schemas."""

    def __init__(self, columns: TypedColumns) -> None:
        registry = columns.options.registry
        self._client = None if registry is None else RegistryClient(registry)
        self._columns = [_part_decoder(self._client, part) for part in columns.parts]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def decode(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, Failure]]:
        """The batch with typed columns, and the rows that do not decode: null in these columns.

        Raises DecodeFailed for the first of them whose `decode.errors` is fail.
        """
        import pyarrow as pa

        names = batch.schema.names
        arrays = list(batch.columns)
        failures: dict[int, Failure] = {}
        for column in self._columns:
            at = names.index(column.part)
            headers = _headers(batch, column.part) if column.asks_headers else None
            arrays[at], failed = column.decode(arrays[at], headers)
            for row, failure in failed.items():
                if failure.errors == "fail":
                    raise DecodeFailed(_reason(batch, row, failure))
                if row not in failures or _SEVERITY[failure.errors] > _SEVERITY[failures[row].errors]:
                    failures[row] = failure
        return pa.RecordBatch.from_arrays(arrays, names=names), failures


def _reason(batch: pa.RecordBatch, row: int, failure: Failure) -> str:
    topic, partition, offset = (batch.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
    return (
        f"{topic}-{partition}, offset {offset}: the {failure.part} does not decode: {failure.reason}. "
        f"To continue without such records, set {failure.part}.decode.errors to dead-letter, skip or null"
    )


def _headers(batch: pa.RecordBatch, part: str) -> list[Any] | None:
    """Headers of the rows, if any of them names a schema."""
    import pyarrow.compute as pc

    column = batch.column("headers")
    flat = column.flatten()
    if not len(flat) or not pc.any(pc.equal(flat.field("key"), HEADERS[part])).as_py():
        return None
    return [[(each["key"], each["value"]) for each in row or ()] for row in column.to_pylist()]


def _part_decoder(client: RegistryClient | None, part: TypedPart) -> PartDecoder | TextDecoder:
    if part.options.is_text:
        return TextDecoder(part)
    assert client is not None
    return PartDecoder(client, part)


class TextDecoder:
    """A key or value of text, which needs no registry."""

    asks_headers = False

    def __init__(self, part: TypedPart) -> None:
        from pyspark.sql import types as T

        from penstock.spark.typed.text import TextColumn

        self.part = part.options.part
        self._errors = part.options.errors
        self._column = TextColumn(part.options, T.StructType.fromJson(json.loads(part.schema)))

    def decode(self, column: pa.Array, headers: list[Any] | None) -> tuple[pa.Array, dict[int, Failure]]:
        values, reasons = self._column.decode(column)
        failures = {row: Failure(self.part, reason, None, self._errors) for row, reason in reasons.items()}
        return values, failures


class PartDecoder:
    """The key or the value."""

    asks_headers = True

    def __init__(self, client: RegistryClient, part: TypedPart) -> None:
        from pyspark.sql.pandas.types import to_arrow_type

        self.part = part.options.part
        self._options = part.options
        self._client = client
        self._column = _column(part)
        self._arrow = to_arrow_type(self._column.spark_type, timezone="UTC")
        self._readers: dict[tuple[int | None, str | None], Value] = {}
        self._unknown: dict[tuple[int | None, str | None], tuple[float, Undecodable]] = {}

    def decode(self, column: pa.Array, headers: list[Any] | None) -> tuple[pa.Array, dict[int, Failure]]:
        import pyarrow as pa

        failures: dict[int, Failure] = {}
        ids: list[int | None] = []
        values: list[Any] = []
        for row, data in enumerate(column.to_pylist()):
            value, schema_id = None, None
            if data is not None:
                try:
                    framed = take_apart(data, self.part, headers[row] if headers is not None else ())
                    schema_id = framed.schema_id
                    value = self._reader(framed)(framed)
                except Undecodable as error:
                    failures[row] = self._failure(error.reason, schema_id)
                except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
                    failures[row] = self._failure(str(error) or type(error).__name__, schema_id)
            values.append(value)
            ids.append(schema_id)
        try:
            return pa.array(values, type=self._arrow), failures
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            self._find_misfits(values, ids, failures)
        return pa.array(values, type=self._arrow), failures

    def _find_misfits(self, values: list[Any], ids: list[int | None], failures: dict[int, Failure]) -> None:
        """Values that Arrow does not accept, such as a number too large for its type, become null."""
        import pyarrow as pa

        for row, value in enumerate(values):
            try:
                pa.array([value], type=self._arrow)
            except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
                failures[row] = self._failure(f"a value does not fit its column's type: {error}", ids[row])
                values[row] = None

    def _failure(self, reason: str, schema_id: int | None) -> Failure:
        return Failure(self.part, reason, schema_id, self._options.errors)

    def _reader(self, framed: Framed) -> Value:
        key = (framed.schema_id, framed.guid)
        reader = self._readers.get(key)
        if reader is None:
            until, problem = self._unknown.get(key, (0.0, None))
            if problem is not None and time.monotonic() < until:
                raise Undecodable(problem.reason, problem.schema_id)
            try:
                writer = writer_schema(self._client, framed, self._options.schema_type, self._options.subject)
                reader = self._readers[key] = self._reader_for(writer, framed)
            except Undecodable as error:
                # Many such records in a row must not cause as many requests.
                if len(self._unknown) >= _MOST_UNKNOWN:
                    self._unknown.clear()
                self._unknown[key] = (time.monotonic() + _FORGET_SECONDS, error)
                raise
        return reader

    def _reader_for(self, writer: RegisteredSchema, framed: Framed) -> Value:
        try:
            reader: Value = self._column.reader_for(writer, self._client)
        except InvalidSchema as error:
            which = framed.schema_id or framed.guid
            raise Undecodable(f"its schema {which} cannot be read: {error}", framed.schema_id) from None
        return reader
