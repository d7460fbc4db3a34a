"""A table in memory: its rows by the key of their records, and by the columns of the key without a window's.

`RowReader` converts records to rows with the decoders of the Spark source, so that a lookup returns the same
row as Spark. If Spark would convert types (a column declared with another type than in the registry), there
is no reader (`NotInMemory`), and Spark executes the query.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.sql.catalog.catalog import Relation
from penstock.sql.catalog.relations import REGISTRY_FORMATS, source_options
from penstock.sql.pull.plan import WINDOW_COLUMNS, Key, Pull
from penstock.sql.settings import EngineSettings
from penstock.sqltext.spark_types import from_words, words

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Row = dict[str, Any]


class NotInMemory(Exception):
    """The table cannot be kept in memory; Spark can read it."""


class TopicRecord(NamedTuple):
    """A record of the topic."""

    key: bytes | None
    value: bytes | None
    partition: int
    offset: int
    headers: Sequence[tuple[str, bytes | None]]


class RowReader:
    """Rows of a relation's records. For one thread."""

    def __init__(self, relation: Relation, settings: EngineSettings) -> None:
        self._relation = relation
        self._decoder = None
        value_type = None
        options = source_options(relation, settings, {}, streaming=False)
        typed = {name: value for name, value in options.items() if not name.startswith("kafka.")}
        if "value.format" in typed:
            from penstock.spark.source.options import parse_source_options
            from penstock.spark.typed.columns import ColumnDecoder, resolve, source_schema, with_types

            typed |= {name: "null" for name in typed if name.endswith(".decode.errors")}
            typed.pop("dead.letter.topic", None)
            parsed = parse_source_options(
                {**typed, "kafka.bootstrap.servers": settings.bootstrap}, streaming=False
            )
            assert parsed.typed is not None
            columns = with_types(resolve(parsed.typed), _declared(relation))
            value_type = source_schema(columns, False)["value"].dataType
            self._decoder = ColumnDecoder(columns)
        self._takes = self._value_takes(value_type)
        self._keys = self._key_reader()

    def close(self) -> None:
        if self._decoder is not None:
            self._decoder.close()

    def read(self, records: Sequence[TopicRecord]) -> list[Row | None]:
        """A row for each record; None if it does not decode, or has no value."""
        values, failed = self._values(records)
        rows: list[Row | None] = []
        for at, record in enumerate(records):
            if record.value is None or at in failed:
                rows.append(None)
                continue
            value = values[at]
            try:
                row = {name: take(value) for name, take in self._takes}
                if self._keys is not None:
                    row |= self._keys(record.key)
            except (ValueError, TypeError, KeyError):
                rows.append(None)
                continue
            rows.append(row)
        return rows

    def _values(self, records: Sequence[TopicRecord]) -> tuple[list[Any], Mapping[int, Any]]:
        if self._decoder is None:
            return [record.value for record in records], {}
        import pyarrow as pa

        from penstock.spark.source.reading import ARROW_SCHEMA_WITH_HEADERS

        count = len(records)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([record.key for record in records], pa.binary()),
                pa.array([record.value for record in records], pa.binary()),
                pa.array([self._relation.topic] * count, pa.string()),
                pa.array([record.partition for record in records], pa.int32()),
                pa.array([record.offset for record in records], pa.int64()),
                pa.array([0] * count, pa.timestamp("us", tz="UTC")),
                pa.array([0] * count, pa.int32()),
                pa.array(
                    [[{"key": name, "value": value} for name, value in record.headers] for record in records],
                    ARROW_SCHEMA_WITH_HEADERS.field("headers").type,
                ),
            ],
            schema=ARROW_SCHEMA_WITH_HEADERS,
        )
        decoded, failures = self._decoder.decode(batch)
        column = decoded.column(decoded.schema.names.index("value"))
        return column.to_pylist(maps_as_pydicts="lossy"), failures

    def _value_takes(self, value_type: Any) -> list[tuple[str, Callable[[Any], Any]]]:
        from pyspark.sql.types import StructType

        columns = [(each.name, _normal(each.type)) for each in self._relation.columns if not each.key]
        takes: list[tuple[str, Callable[[Any], Any]]] = []
        if isinstance(value_type, StructType):
            exact = {field.name: field for field in value_type.fields}
            folded = {field.name.casefold(): field for field in reversed(value_type.fields)}
            for name, wanted in columns:
                field = exact.get(name) or folded.get(name.casefold())
                if field is None or words(field.dataType) != wanted:
                    raise NotInMemory(f"{self._relation.name}.{name} is converted")
                takes.append((name, _field(field.name)))
            return takes
        kind = "BINARY" if value_type is None else words(value_type)
        for name, wanted in columns:
            if wanted == kind:
                takes.append((name, _itself))
            elif kind == "BINARY" and wanted == "STRING":
                takes.append((name, _text))
            else:
                raise NotInMemory(f"{self._relation.name}.{name} is converted")
        return takes

    def _key_reader(self) -> Callable[[bytes | None], Row] | None:
        """The decoder of the key's columns, equivalent to the one that `relations` builds in Spark."""
        columns = [column for column in self._relation.columns if column.key]
        if not columns:
            return None
        form = self._relation.key_format
        if form in REGISTRY_FORMATS or form == "bytes":
            raise NotInMemory(f"the key of {self._relation.name} is not text")
        for column in columns:
            if column.type.upper() not in _FROM_TEXT:
                raise NotInMemory(f"{self._relation.name}.{column.name} is converted")
        converts = [(column.name, _FROM_TEXT[column.type.upper()]) for column in columns]
        if len(columns) == 1 and form == "string":
            ((name, convert),) = converts
            return lambda key: {name: None if key is None else convert(key.decode())}

        def from_json(key: bytes | None) -> Row:
            value = json.loads(key or b"{}")
            if not isinstance(value, dict):
                raise ValueError("the key is not a JSON object")
            found = [(each, convert, value.get(each)) for each, convert in converts]
            return {each: None if item is None else convert(_as_text(item)) for each, convert, item in found}

        return from_json


def _declared(relation: Relation) -> StructType:
    """The type of the value from the relation's columns, for formats without another schema."""
    from pyspark.sql import types as T

    fields = [T.StructField(each.name, _type(each.type)) for each in relation.columns if not each.key]
    return T.StructType([T.StructField("value", T.StructType(fields))])


def _type(text: str) -> DataType:
    try:
        return from_words(text)
    except (ValueError, StopIteration) as error:
        raise NotInMemory(str(error)) from None


def _normal(text: str) -> str:
    return words(_type(text))


def _field(name: str) -> Callable[[Any], Any]:
    return lambda value: value[name]


def _itself(value: Any) -> Any:
    return value


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _boolean(text: str) -> bool:
    if text.strip().lower() in ("true", "t", "yes", "y", "1"):
        return True
    if text.strip().lower() in ("false", "f", "no", "n", "0"):
        return False
    raise ValueError(text)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text.strip())
    return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "STRING": str,
    "INT": int,
    "BIGINT": int,
    "SMALLINT": int,
    "TINYINT": int,
    "DOUBLE": float,
    "BOOLEAN": _boolean,
    "DATE": lambda text: date.fromisoformat(text.strip()),
    "TIMESTAMP": _moment,
}


class TableImage:
    """The rows of one table read so far. `put` is for one thread, the rest is thread-safe."""

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self.positions: dict[int, int] = {}
        """The offset that is read next, by partition."""
        self.failed: Exception | None = None
        self.skipped = 0
        """Records that did not decode."""
        self._key = [each for each in relation.key_columns if each.casefold() not in WINDOW_COLUMNS]
        self._rows: dict[Any, Row] = {}
        self._index: dict[Key, dict[Any, Row]] = {}
        self._offsets: dict[int, dict[Any, int]] = {}
        """Where the record of a row is, by partition, in the order of offsets."""
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._rows)

    # Filling

    def put(self, partition: int, changes: Iterable[tuple[int, Any, Row | None]]) -> None:
        """Rows of one partition, in order: offset, the row's identity, and the row; None deletes it."""
        with self._changed:
            offsets = self._offsets.setdefault(partition, {})
            for offset, identity, row in changes:
                self._remove(identity)
                offsets.pop(identity, None)
                if row is not None:
                    self._rows[identity] = row
                    self._index.setdefault(self._place(row), {})[identity] = row
                    offsets[identity] = offset

    def expire(self, starts: Mapping[int, int]) -> None:
        """Removes the rows of records before these offsets, the new log start offsets."""
        with self._changed:
            for partition, start in starts.items():
                offsets = self._offsets.get(partition, {})
                while offsets and (oldest := next(iter(offsets.items())))[1] < start:
                    self._remove(oldest[0])
                    del offsets[oldest[0]]

    def _remove(self, identity: Any) -> None:
        old = self._rows.pop(identity, None)
        if old is not None:
            place = self._place(old)
            there = self._index[place]
            del there[identity]
            if not there:
                del self._index[place]

    def _place(self, row: Row) -> Key:
        return tuple(row.get(name) for name in self._key)

    def at(self, positions: Mapping[int, int]) -> None:
        """Everything before these offsets has been put."""
        with self._changed:
            for partition, offset in positions.items():
                self.positions[partition] = max(offset, self.positions.get(partition, 0))
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        with self._changed:
            self.failed = error
            self._changed.notify_all()

    # Lookups

    def reached(self, ends: Mapping[int, int]) -> bool:
        return all(self.positions.get(partition, 0) >= end for partition, end in ends.items())

    def wait(self, ends: Mapping[int, int], timeout: float) -> bool:
        """Waits until everything before these offsets has been put, or reading has failed. False after the
        timeout.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self.failed is not None or self.reached(ends), timeout)

    def find(self, pull: Pull) -> list[Row]:
        """Rows of the pull query's keys that match its conditions, in the order of keys, then of windows."""
        with self._changed:
            found = {key: list(self._index[key].values()) for key in pull.keys if key in self._index}
        return answer(pull, found)


def answer(pull: Pull, found: Mapping[Key, list[Row]]) -> list[Row]:
    """The rows that the pull query selects, in the order of its keys, then of windows."""
    kept: list[Row] = []
    for key in pull.keys:
        rows = [row for row in found.get(key, ()) if all(condition(row) for condition in pull.conditions)]
        if len(rows) > 1 and "window_start" in rows[0]:
            rows.sort(key=_window_order)
        kept += rows
    return kept if pull.limit is None else kept[: pull.limit]


_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def _window_order(row: Row) -> datetime:
    moment = row["window_start"]
    return moment if isinstance(moment, datetime) else _LONG_AGO
