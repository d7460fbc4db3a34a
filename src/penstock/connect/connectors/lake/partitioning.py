"""The directory of a record: by its time or by fields of its value, in the layout that Hive and Spark
read.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

from penstock.connect.api import ConfigType, DataError, Field, OneOf, Range, SinkRecord

PARTITIONING = (
    Field(
        "partitioner",
        default="default",
        doc="The directories: by the topic's partition (default), by time, or by fields of the value.",
        validator=OneOf("default", "time", "field"),
    ),
    Field(
        "path.format",
        default="'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH",
        doc="The directories of a time, with YYYY, MM, dd, HH and mm; text is in single quotes.",
    ),
    Field("partition.field.name", ConfigType.LIST, (), "The fields, for partitioner=field."),
    Field(
        "timestamp.extractor",
        default="Record",
        doc="The time of a record: that of Kafka (Record), or of a field (RecordField).",
        validator=OneOf("Record", "RecordField"),
    ),
    Field("timestamp.field", default="timestamp", doc="The field, for timestamp.extractor=RecordField."),
    Field("timezone", default="UTC", doc="The time zone of the directories."),
    Field(
        "partition.duration.ms",
        ConfigType.LONG,
        3_600_000,
        "How long a directory of time is.",
        Range(1),
    ),
)
_NULL = "__HIVE_DEFAULT_PARTITION__"
_LETTERS = {"YYYY": "%Y", "yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M"}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def is_by_partition(settings: Mapping[str, Any]) -> bool:
    """Whether all records of a topic partition go to one directory and use Kafka's timestamp."""
    return (settings["partitioner"], settings["timestamp.extractor"]) == ("default", "Record")


def directory_of(settings: Mapping[str, Any]) -> Callable[[SinkRecord], str]:
    """A function that returns a record's directory, below that of its topic."""
    match settings["partitioner"]:
        case "time":
            return _by_time(settings)
        case "field":
            names = tuple(settings["partition.field.name"])
            return lambda record: "/".join(f"{name}={_text(_field(record, name))}" for name in names)
    return lambda record: directory_of_partition(record.original_partition)


def directory_of_partition(partition: int) -> str:
    return f"partition={partition}"


def _by_time(settings: Mapping[str, Any]) -> Callable[[SinkRecord], str]:
    form, zone = strftime_of(settings["path.format"]), ZoneInfo(settings["timezone"])
    duration = settings["partition.duration.ms"]
    known: dict[int, str] = {}

    def found(record: SinkRecord) -> str:
        number = time_of(record, settings) // duration
        if number not in known:
            if len(known) > 1000:
                known.clear()
            begin = _EPOCH + datetime.timedelta(milliseconds=number * duration)
            known[number] = begin.astimezone(zone).strftime(form)
        return known[number]

    return found


def strftime_of(pattern: str) -> str:
    """The pattern in Python's syntax; ValueError for unknown letters."""
    out = []
    for index, part in enumerate(pattern.split("'")):
        if index % 2:
            out.append(part.replace("%", "%%"))
            continue
        while part:
            word = next((each for each in _LETTERS if part.startswith(each)), None)
            if word is None and part[0].isalpha():
                raise ValueError(
                    f"{part!r} is not a date pattern: use YYYY, MM, dd, HH, mm, and quotes for text"
                )
            out.append(_LETTERS[word] if word else part[0].replace("%", "%%"))
            part = part[len(word or part[0]) :]
    return "".join(out)


def time_of(record: SinkRecord, settings: Mapping[str, Any]) -> int:
    """In milliseconds."""
    if settings["timestamp.extractor"] == "Record":
        if record.timestamp is None:
            raise DataError("the record has no timestamp")
        return record.timestamp
    value = _field(record, settings["timestamp.field"])
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value)
        except ValueError as error:
            raise DataError(f"the field {settings['timestamp.field']} is not a timestamp: {error}") from error
    if isinstance(value, datetime.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        return (aware - _EPOCH) // datetime.timedelta(milliseconds=1)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise DataError(f"the field {settings['timestamp.field']} is not a timestamp: {value!r}")


def _field(record: SinkRecord, path: str) -> Any:
    value = record.value
    for name in path.split("."):
        if not isinstance(value, dict):
            raise DataError(f"the value has no field {path}")
        value = value.get(name)
    return value


def _text(value: Any) -> str:
    return _NULL if value is None or value == "" else quote(str(value), safe="")
