"""The settings that all change data capture sources share, with Debezium's names, and their filters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.connect.api import REQUIRED, ConfigType, EachOneOf, Field, Importance, OneOf, Range

SNAPSHOT_MODES = ("always", "initial", "initial_only", "no_data", "never", "when_needed")
OPERATIONS = ("c", "u", "d", "t", "none")
_TOPIC_PREFIX = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def choice(name: str, default: str, choices: tuple[str, ...], doc: str) -> Field:
    return Field(name, ConfigType.STRING, default, doc, OneOf(*choices), Importance.MEDIUM)


def patterns(name: str, doc: str) -> Field:
    """A list of regular expressions."""
    importance = Importance.HIGH if name.startswith("table") else Importance.MEDIUM
    return Field(name, ConfigType.LIST, (), doc, None, importance)


def millis(name: str, default: int, doc: str, least: int = 0) -> Field:
    return Field(name, ConfigType.LONG, default, doc, Range(least), Importance.LOW)


def topic_fields(space: str) -> tuple[Field, ...]:
    """`space` is the unit that contains tables: SCHEMA or DATABASE."""
    return (
        Field(
            "topic.prefix",
            default=REQUIRED,
            importance=Importance.HIGH,
            doc=f"The first part of all topics' names (PREFIX.{space}.TABLE), and the name of the source.",
        ),
        Field("topic.delimiter", default=".", doc="Stands between the parts of a topic's name."),
        Field(
            "topic.heartbeat.prefix",
            default="__debezium-heartbeat",
            doc="Before the prefix: the heartbeats' topic.",
        ),
    )


def filter_fields(space: str) -> tuple[Field, ...]:
    kind, name = space.lower(), space.upper()
    return (
        patterns(f"{kind}.include.list", f"Regular expressions of {kind}s to capture; all by default."),
        patterns(f"{kind}.exclude.list", f"Regular expressions of {kind}s not to capture."),
        patterns(
            "table.include.list",
            f"Regular expressions of tables to capture, as {name}.TABLE; all by default.",
        ),
        patterns("table.exclude.list", "Regular expressions of tables not to capture."),
        patterns(
            "column.include.list", f"Regular expressions of columns to capture, as {name}.TABLE.COLUMN."
        ),
        patterns("column.exclude.list", "Regular expressions of columns not to capture."),
    )


RECORD_FIELDS: tuple[Field, ...] = (
    Field("snapshot.fetch.size", ConfigType.INT, 10240, "Rows of a chunk of the snapshot.", Range(1)),
    choice(
        "event.converting.failure.handling.mode",
        "warn",
        ("fail", "warn", "skip"),
        "A value that its type cannot hold: fail, or send null, with or without a line in the log.",
    ),
    Field(
        "tombstones.on.delete", ConfigType.BOOLEAN, True, "Send a null value after a delete, for compaction."
    ),
    Field(
        "skipped.operations",
        ConfigType.LIST,
        ("t",),
        "Operations not to send: c, u, d, t; or none.",
        EachOneOf(*OPERATIONS),
    ),
    millis("heartbeat.interval.ms", 0, "How often a heartbeat is sent, which commits offsets; 0: never."),
    Field("heartbeat.action.query", default=None, doc="SQL to run with each heartbeat."),
    Field("max.batch.size", ConfigType.INT, 2048, "Most changes of one batch.", Range(1)),
)


def refusal(values: Mapping[str, Any], name: str, reason: str) -> list[str]:
    return [f"Invalid value {values[name]} for configuration {name}: {reason}"]


def common_problems(values: Mapping[str, Any], space: str) -> dict[str, list[str]]:
    """What single fields do not show, by field."""
    found: dict[str, list[str]] = {}
    for kind in (space, "table", "column"):
        for name in (f"{kind}.include.list", f"{kind}.exclude.list"):
            for pattern in values[name]:
                try:
                    re.compile(pattern)
                except re.error as error:
                    found[name] = refusal(values, name, f"{pattern!r} is not a regular expression: {error}")
        if values[f"{kind}.include.list"] and values[f"{kind}.exclude.list"]:
            name = f"{kind}.exclude.list"
            found[name] = refusal(values, name, f"{kind}.include.list is set as well: use one of them")
    if not _TOPIC_PREFIX.fullmatch(values["topic.prefix"]):
        reason = "Value must be letters, digits, dots, underscores and hyphens"
        found["topic.prefix"] = refusal(values, "topic.prefix", reason)
    return found


class Filter:
    """An include or an exclude list. Patterns match whole names, ignoring case, as in Debezium."""

    def __init__(self, include: tuple[str, ...], exclude: tuple[str, ...]) -> None:
        self._include = tuple(re.compile(pattern, re.IGNORECASE) for pattern in include)
        self._exclude = tuple(re.compile(pattern, re.IGNORECASE) for pattern in exclude)

    @classmethod
    def of(cls, values: Mapping[str, Any], kind: str) -> Filter:
        return cls(tuple(values[f"{kind}.include.list"]), tuple(values[f"{kind}.exclude.list"]))

    def takes(self, name: str) -> bool:
        if self._include:
            return any(pattern.fullmatch(name) for pattern in self._include)
        return not any(pattern.fullmatch(name) for pattern in self._exclude)


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """The typed settings of a task. `spaces` filters the units that contain tables: schemas or databases."""

    values: dict[str, Any]
    spaces: Filter
    tables: Filter
    columns: Filter

    def takes_table(self, space: str, table: str) -> bool:
        return self.spaces.takes(space) and self.tables.takes(f"{space}.{table}")

    @property
    def prefix(self) -> str:
        return str(self.values["topic.prefix"])

    @property
    def snapshot_mode(self) -> str:
        mode = str(self.values["snapshot.mode"])
        return "no_data" if mode == "never" else mode

    def topic(self, space: str, table: str) -> str:
        """Kafka allows letters, digits, dots, underscores and hyphens: anything else becomes an
        underscore.
        """
        delimiter = self.values["topic.delimiter"]
        return re.sub(r"[^A-Za-z0-9._-]", "_", f"{self.prefix}{delimiter}{space}{delimiter}{table}")
