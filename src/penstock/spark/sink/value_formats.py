"""`value.format` and `key.format` of the sink: encodes columns with a schema of the registry, or as JSON.

Before a job starts, the driver creates the schema from the column's type, or takes it from the options, and
registers it. Tasks get its id and send no requests to the registry.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from penstock.registry.client import (
    MissingLibrary,
    RegisteredSchema,
    RegistryClient,
    RequestRefused,
    schema_body,
)
from penstock.registry.formats import InvalidSchema, ResolvedReference
from penstock.spark.errors import BadOption, NotTyped, SchemaRefused
from penstock.spark.typed.options import (
    JSON_TEXT,
    PARTS,
    SCHEMA_TYPES,
    TEXTS,
    TYPED_OPTIONS,
    registry_settings,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from penstock.spark.encoders.framed import ColumnEncoder

_OURS = frozenset(TYPED_OPTIONS)
_INCOMPATIBLE = 409
_INVALID = 422
_PATIENCE = 10.0
_MOST_ENCODERS = 32


@dataclass(frozen=True)
class Encoding:
    """How a task encodes the key or the value."""

    part: Literal["key", "value"]
    column: int
    schema_type: str
    schema: str
    references: tuple[ResolvedReference, ...]
    schema_id: int
    message: str | None
    kind: str
    """Spark's type, as JSON."""


class _Given:
    """The registry's settings from the options, whose names are in lower case here."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def __contains__(self, name: str) -> bool:
        return name in self._options

    def get(self, name: str) -> str | None:
        return self._options.get(name)

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        text = (self._options.get(name) or default).strip().lower()
        if text not in allowed:
            raise BadOption(f"{name} must be {' or '.join(allowed)}, not '{text}'")
        return text


def encodings(options: Mapping[str, str], schema: StructType, topic: str | None) -> tuple[Encoding, ...]:
    """The formats of the options, with their schemas registered; names of options are in lower case."""
    if not any(f"{part}.format" in options for part in PARTS):
        return ()
    ours = tuple(sorted(item for item in options.items() if item[0] in _OURS))
    who = options.get("checkpointlocation") or options.get("txnappid")
    if who is None:
        return _encodings(ours, schema.json(), topic)
    return _known_encodings(ours, schema.json(), topic, who)


@functools.lru_cache(maxsize=_MOST_ENCODERS)
def _known_encodings(
    options: tuple[tuple[str, str], ...], schema: str, topic: str | None, who: str
) -> tuple[Encoding, ...]:
    """Spark plans each micro-batch again, in the same process: a query only registers for its first one.

    Another query (`who`) registers again, because the subject may have been deleted and recreated in between.
    """
    return _encodings(options, schema, topic)


def _encodings(
    options_: tuple[tuple[str, str], ...], schema_: str, topic: str | None
) -> tuple[Encoding, ...]:
    from pyspark.sql.types import StructType

    options, schema = dict(options_), StructType.fromJson(json.loads(schema_))
    given = _Given(options)
    formats = {
        part: SCHEMA_TYPES[given.choice(f"{part}.format", tuple(SCHEMA_TYPES), "")]
        for part in PARTS
        if f"{part}.format" in given
    }
    texts = tuple(
        text
        for part, form in formats.items()
        if form in TEXTS and (text := _text(schema, part, form)) is not None
    )
    framed = {part: form for part, form in formats.items() if form not in TEXTS}
    if not framed:
        return texts
    with RegistryClient(replace(registry_settings(given), patience=_PATIENCE)) as client:
        return (
            *texts,
            *(_encoding(client, options, schema, topic, part, form) for part, form in framed.items()),
        )


def _text(schema: StructType, part: Literal["key", "value"], form: str) -> Encoding | None:
    """None for text and bytes, which are written unchanged."""
    from pyspark.sql.types import BinaryType, StringType

    column, kind = _find(schema, part)
    if isinstance(kind, (StringType, BinaryType)):
        return None
    if form != JSON_TEXT:
        raise BadOption(f"{part}.format=csv-text does not make text of {kind.simpleString()}: use to_csv")
    made = Encoding(part, column, form, "", (), 0, None, kind.json())
    encoder(made)
    return made


def _find(schema: StructType, part: str) -> tuple[int, DataType]:
    for index, field in enumerate(schema.fields):
        if field.name.lower() == part:
            return index, field.dataType
    raise BadOption(f"{part}.format is given, and the rows have no column '{part}'")


def _encoding(
    client: RegistryClient,
    options: Mapping[str, str],
    schema: StructType,
    topic: str | None,
    part: Literal["key", "value"],
    schema_type: str,
) -> Encoding:
    column, kind = _find(schema, part)
    subject = (options.get(f"{part}.subject") or "").strip() or (f"{topic}-{part}" if topic else "")
    if not subject:
        raise BadOption(
            f"{part}.subject must name the subject of {part}.format where rows go to several topics:"
            f" it is <topic>-{part} only where the option topic is set"
        )
    message = (options.get(f"{part}.message") or "").strip() or None
    name = f"the column {part} ({subject})"
    try:
        found = _schema(client, options, part, schema_type, subject, kind)
        references = client.resolve(found)
        made = Encoding(part, column, schema_type, found.schema, references, found.id, message, kind.json())
        encoder(made)  # or an error, before a job starts
    except InvalidSchema as error:
        raise BadOption(f"the schema of {name} cannot be read: {error}") from None
    except NotTyped as error:
        raise NotTyped(f"{name} cannot be written as {schema_type.lower()}: {error}") from None
    except ImportError as error:
        raise MissingLibrary(f"{part}.format={schema_type.lower()}", error) from None
    return made


def _schema(
    client: RegistryClient,
    options: Mapping[str, str],
    part: str,
    schema_type: str,
    subject: str,
    kind: DataType,
) -> RegisteredSchema:
    version = (options.get(f"{part}.schema.version") or "").strip()
    text = options.get(f"{part}.schema")
    if version and text is not None:
        raise BadOption(f"{part}.schema and {part}.schema.version exclude each other")
    if version:
        try:
            found = client.version(subject, version)
        except RequestRefused as error:
            raise SchemaRefused(
                f"{part}.schema.version={version}: the registry at {client.url} does not give that schema of"
                f" {subject}: {error.message}"
            ) from None
        if found.schema_type != schema_type:
            raise BadOption(
                f"{part}.format is {schema_type.lower()}, but {subject} version {found.version} is of type"
                f" {found.schema_type}"
            )
        return found
    if text is None:
        from penstock.spark.encoders.framed import schema_text

        text = schema_text(schema_type, kind, subject)
    return RegisteredSchema(_register(client, subject, text, schema_type), schema_type, text, subject=subject)


def _register(client: RegistryClient, subject: str, text: str, schema_type: str) -> int:
    try:
        return client.register(subject, schema_body(text, schema_type))
    except RequestRefused as error:
        if error.status == _INCOMPATIBLE:
            raise SchemaRefused(
                f"the registry at {client.url} refuses the schema of these rows, because it is not compatible"
                f" with what {subject} has. Change the columns, write to another topic, or change the"
                f" compatibility of {subject} (`penstock schemas config`). {error.message}"
            ) from None
        if error.status == _INVALID:
            raise SchemaRefused(
                f"the registry at {client.url} refuses the schema for {subject}: {error.message}"
            ) from None
        raise


# In a task


@functools.lru_cache(maxsize=_MOST_ENCODERS)
def encoder(encoding: Encoding) -> ColumnEncoder:
    """Created once in a worker process, which runs many tasks."""
    from pyspark.sql.types import _parse_datatype_json_string

    from penstock.spark.encoders.framed import ColumnEncoder

    kind = _parse_datatype_json_string(encoding.kind)
    return ColumnEncoder(
        encoding.schema_type,
        encoding.schema,
        encoding.references,
        kind,
        encoding.schema_id,
        encoding.message,
    )


def encoded(batches: Iterator[pa.RecordBatch], parts: tuple[Encoding, ...]) -> Iterator[pa.RecordBatch]:
    """Returns the batches with the formatted columns as bytes."""
    import pyarrow as pa

    if not parts:
        yield from batches
        return
    encoders = [(part.column, encoder(part)) for part in parts]
    for batch in batches:
        arrays = list(batch.columns)
        for at, one in encoders:
            arrays[at] = one.encode(arrays[at])
        yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
