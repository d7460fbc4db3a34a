"""Writes records of topics to any destination of dlt.

Rows have their position in Kafka in `_kafka_topic`, `_kafka_partition` and `_kafka_offset`, which are the
primary key for `write_disposition=merge`: a repeated row replaces itself. Offsets are committed after the
load.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.connect.api import (
    ConfigType,
    ConnectError,
    DataError,
    Field,
    Importance,
    OneOf,
    Range,
    SinkConnector,
    SinkRecord,
    SinkTask,
    TopicPartition,
    parse,
)
from penstock.connect.connectors.dlt.library import arguments, load_dlt, referenced, translated

_TOPIC = "${topic}"
_PLACE = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
_FIELDS = (
    Field(
        "destination",
        doc="A destination of dlt by its name (duckdb, postgres, bigquery, filesystem), or module:name.",
        importance=Importance.HIGH,
    ),
    Field(
        "destination.arguments",
        ConfigType.PASSWORD,
        "{}",
        "The named arguments of the destination, such as credentials, as a JSON object.",
        importance=Importance.HIGH,
    ),
    Field("dataset_name", default="kafka", doc="The dataset: a schema of a database, a directory."),
    Field("table.name.format", default=_TOPIC, doc="The table of a topic; ${topic} is replaced."),
    Field(
        "write_disposition",
        default="merge",
        doc="merge (by primary_key), or append, with which records that come again are there again.",
        validator=OneOf("merge", "append"),
        importance=Importance.HIGH,
    ),
    Field("primary_key", ConfigType.LIST, _PLACE, "The columns of the primary key, for merge."),
    Field("flush.size", ConfigType.INT, 10_000, "The most records of one load.", Range(1)),
    Field(
        "behavior.on.null.values",
        default="fail",
        doc="What to do with a record without a value: fail reports it as an error, ignore skips it.",
        validator=OneOf("fail", "ignore"),
    ),
)


class DltSinkTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        self._settings = settings = parse(_FIELDS, config)
        self._size: int = settings["flush.size"]
        self._keys: list[str] = (
            list(settings["primary_key"]) if settings["write_disposition"] == "merge" else []
        )
        self._waiting: list[tuple[str, TopicPartition, dict[str, Any]]] = []
        self._next: dict[TopicPartition, int] = {}
        self._name = f"penstock_{config.get('name') or 'sink'}"
        self._directory = ""
        self._begin()

    def _begin(self) -> None:
        """A pipeline without local state: it reads the schemas of its tables from the destination."""
        dlt, settings = load_dlt(), self._settings
        self.stop()
        self._directory = tempfile.mkdtemp(prefix="penstock-dlt-")
        try:
            self._pipeline = dlt.pipeline(
                self._name,
                pipelines_dir=self._directory,
                destination=_destination(settings),
                dataset_name=settings["dataset_name"],
            )
        except Exception as error:
            raise translated(f"the destination {settings['destination']} cannot be used", error) from error

    def put(self, records: list[SinkRecord]) -> None:
        if len(self._waiting) >= self._size:
            self._load()
        for record in records:
            place = (record.original_topic, record.original_partition)
            if record.original_offset < self._next.get(place, 0):
                continue  # put again after a load failed
            self._next[place] = record.original_offset + 1
            if record.value is None:
                if self._settings["behavior.on.null.values"] == "fail":
                    text = "a record without a value has no row: set behavior.on.null.values=ignore"
                    self.report(record, DataError(text))
                continue
            row = _row(record)
            missing = [name for name in self._keys if row.get(name) is None]
            if missing:
                self.report(record, DataError(f"the value has no {', '.join(missing)}, of the primary_key"))
                continue
            self._waiting.append((record.topic, place, row))
            if len(self._waiting) >= self._size:
                self._load()

    def _load(self) -> None:
        if not self._waiting:
            return
        dlt = load_dlt()
        tables: dict[str, list[dict[str, Any]]] = {}
        for topic, _, row in self._waiting:
            name = str(self._settings["table.name.format"]).replace(_TOPIC, topic)
            tables.setdefault(name, []).append(row)
        resources = [
            dlt.resource(
                rows,
                name=name,
                write_disposition=self._settings["write_disposition"],
                primary_key=self._keys or None,
                # If a load has several rows with one key, the last one counts.
                columns={_PLACE[-1]: {"dedup_sort": "desc"}} if self._keys else None,
            )
            for name, rows in tables.items()
        ]
        try:
            self._pipeline.run(resources).raise_on_failed_jobs()
        except Exception as error:
            self._begin()
            raise translated(f"the load into {self._settings['destination']} failed", error) from error
        self._waiting = []

    def precommit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        self._load()
        return offsets

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        gone = set(partitions)
        self._waiting = [each for each in self._waiting if each[1] not in gone]
        for place in gone:
            self._next.pop(place, None)

    def stop(self) -> None:
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)


def _row(record: SinkRecord) -> dict[str, Any]:
    value = record.value if isinstance(record.value, dict) else {"value": record.value}
    place = (record.original_topic, record.original_partition, record.original_offset)
    return {**value, **dict(zip(_PLACE, place, strict=True))}


def _destination(settings: Mapping[str, Any]) -> Any:
    """Raises ConnectError for an unknown destination."""
    name: str = settings["destination"]
    if ":" in name:
        found = referenced(name)
    else:
        load_dlt()
        from dlt import destinations

        found = getattr(destinations, name, None)
        if found is None:
            raise ConnectError(f"dlt has no destination {name}")
    given = arguments(settings["destination.arguments"])
    return found(**given) if given or isinstance(found, type) else found


class DltSink(SinkConnector):
    """Tables of any destination of dlt, one for each topic."""

    task_class = DltSinkTask
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        settings = parse(cls.fields, config)
        try:
            arguments(settings["destination.arguments"])
        except ConnectError as error:
            return {"destination.arguments": [f"Invalid value for destination.arguments: {error}"]}
        try:
            _destination(settings)
        except (ConnectError, TypeError) as error:
            name = settings["destination"]
            return {"destination": [f"Invalid value {name} for configuration destination: {error}"]}
        return {}
