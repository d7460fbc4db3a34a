"""The connector's settings, with Debezium's names, defaults and meaning, and the filters among them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.connect.api import (
    REQUIRED,
    BadConfig,
    ConfigType,
    EachOneOf,
    Field,
    Importance,
    OneOf,
    Range,
    parse,
)
from penstock.connect.connectors.postgres.column_types import Modes

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
SNAPSHOT_MODES = ("always", "initial", "initial_only", "no_data", "never", "when_needed")
OPERATIONS = ("c", "u", "d", "t", "none")
_FILTERS = (
    "schema.include.list", "schema.exclude.list", "table.include.list", "table.exclude.list",
    "column.include.list", "column.exclude.list",
)  # fmt: skip
_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}", re.ASCII)
_TOPIC_PREFIX = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def _choice(name: str, default: str, choices: tuple[str, ...], doc: str) -> Field:
    return Field(name, ConfigType.STRING, default, doc, OneOf(*choices), _MEDIUM)


def _list(name: str, doc: str) -> Field:
    return Field(name, ConfigType.LIST, (), doc, None, _HIGH if name.startswith("table") else _MEDIUM)


def _millis(name: str, default: int, doc: str, least: int = 0) -> Field:
    return Field(name, ConfigType.LONG, default, doc, Range(least), _LOW)


FIELDS: tuple[Field, ...] = (
    Field("database.hostname", doc="The host of the PostgreSQL server.", importance=_HIGH),
    Field("database.port", ConfigType.INT, 5432, "Its port.", Range(1, 65535), _HIGH),
    Field(
        "database.user", doc="A role with REPLICATION and SELECT on the captured tables.", importance=_HIGH
    ),
    Field("database.password", ConfigType.PASSWORD, "", "The password of the role.", None, _HIGH),
    Field("database.dbname", doc="The database whose tables are captured.", importance=_HIGH),
    Field(
        "database.sslmode",
        default="prefer",
        doc="libpq's sslmode.",
        validator=OneOf("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    ),
    Field("database.sslrootcert", default=None, doc="File with the certificates of trusted authorities."),
    Field("database.sslcert", default=None, doc="File with the client's certificate."),
    Field("database.sslkey", default=None, doc="File with the client's key."),
    Field("database.sslpassword", ConfigType.PASSWORD, None, "The password of the client's key."),
    Field("database.initial.statements", default=None, doc="SQL to run on every new connection for queries."),
    Field(
        "topic.prefix",
        default=REQUIRED,
        importance=_HIGH,
        doc="The first part of all topics' names (PREFIX.SCHEMA.TABLE), and the name of the source.",
    ),
    Field("topic.delimiter", default=".", doc="Stands between the parts of a topic's name."),
    Field(
        "topic.heartbeat.prefix",
        default="__debezium-heartbeat",
        doc="Before the prefix: the heartbeats' topic.",
    ),
    _choice("plugin.name", "pgoutput", ("pgoutput",), "The server's decoding plugin."),
    Field("slot.name", default="debezium", doc="The replication slot; created if absent.", importance=_HIGH),
    Field(
        "slot.drop.on.stop", ConfigType.BOOLEAN, False, "Drop the slot when the task stops. Loses changes."
    ),
    Field(
        "publication.name", default="dbz_publication", doc="The publication; see publication.autocreate.mode."
    ),
    _choice(
        "publication.autocreate.mode",
        "all_tables",
        ("all_tables", "disabled", "filtered", "no_tables"),
        "How an absent publication is created: for all tables (needs a superuser), not at all, for the "
        "tables of the include and exclude lists, or for no table.",
    ),
    Field(
        "publish.via.partition.root",
        ConfigType.BOOLEAN,
        False,
        "Whether a created publication names partitioned tables instead of their partitions.",
    ),
    _list("schema.include.list", "Regular expressions of schemas to capture; all by default."),
    _list("schema.exclude.list", "Regular expressions of schemas not to capture."),
    _list("table.include.list", "Regular expressions of tables to capture, as SCHEMA.TABLE; all by default."),
    _list("table.exclude.list", "Regular expressions of tables not to capture."),
    _list("column.include.list", "Regular expressions of columns to capture, as SCHEMA.TABLE.COLUMN."),
    _list("column.exclude.list", "Regular expressions of columns not to capture."),
    _choice(
        "snapshot.mode",
        "initial",
        SNAPSHOT_MODES,
        "When the tables' rows are read: where there are no offsets (initial; initial_only then stops), "
        "at each start (always), never (no_data), or also where the slot was lost (when_needed).",
    ),
    Field("snapshot.fetch.size", ConfigType.INT, 10240, "Rows of a chunk of the snapshot.", Range(1)),
    _choice(
        "decimal.handling.mode", "precise", ("precise", "double", "string"), "How numeric and money are sent."
    ),
    _choice(
        "time.precision.mode",
        "adaptive",
        ("adaptive", "adaptive_time_microseconds", "connect"),
        "How date, time and timestamp are sent.",
    ),
    _choice("interval.handling.mode", "numeric", ("numeric", "string"), "How intervals are sent."),
    _choice(
        "binary.handling.mode", "bytes", ("bytes", "base64", "base64-url-safe", "hex"), "How bytea is sent."
    ),
    _choice("hstore.handling.mode", "json", ("json", "map"), "How hstore is sent."),
    Field("money.fraction.digits", ConfigType.INT, 2, "Digits of money after the point.", Range(0, 18)),
    Field(
        "unavailable.value.placeholder",
        default="__debezium_unavailable_value",
        doc="Stands for a TOASTed value that an update did not change and the server did not send.",
    ),
    _choice(
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
    _millis("heartbeat.interval.ms", 0, "How often a heartbeat is sent, which commits offsets; 0: never."),
    Field("heartbeat.action.query", default=None, doc="SQL to run with each heartbeat."),
    _millis(
        "status.update.interval.ms", 10_000, "How often the server learns which changes are durable.", 1000
    ),
    Field("max.batch.size", ConfigType.INT, 2048, "Most changes of one batch.", Range(1)),
)


def problems(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """What single fields do not show, by field."""
    found: dict[str, list[str]] = {}

    def refuse(name: str, reason: str) -> None:
        found[name] = [f"Invalid value {values[name]} for configuration {name}: {reason}"]

    for name in _FILTERS:
        for pattern in values[name]:
            try:
                re.compile(pattern)
            except re.error as error:
                refuse(name, f"{pattern!r} is not a regular expression: {error}")
    for kind in ("schema", "table", "column"):
        if values[f"{kind}.include.list"] and values[f"{kind}.exclude.list"]:
            refuse(f"{kind}.exclude.list", f"{kind}.include.list is set as well: use one of them")
    if not _SLOT_NAME.fullmatch(values["slot.name"]):
        refuse("slot.name", "Value must be 1 to 63 lower-case letters, digits and underscores")
    if not _TOPIC_PREFIX.fullmatch(values["topic.prefix"]):
        refuse("topic.prefix", "Value must be letters, digits, dots, underscores and hyphens")
    return found


class Filter:
    """An include or an exclude list: whole names, in any case, as Debezium's."""

    def __init__(self, include: tuple[str, ...], exclude: tuple[str, ...]) -> None:
        self._include = tuple(re.compile(pattern, re.IGNORECASE) for pattern in include)
        self._exclude = tuple(re.compile(pattern, re.IGNORECASE) for pattern in exclude)

    def takes(self, name: str) -> bool:
        if self._include:
            return any(pattern.fullmatch(name) for pattern in self._include)
        return not any(pattern.fullmatch(name) for pattern in self._exclude)


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The typed settings of a task."""

    values: dict[str, Any]
    modes: Modes
    schemas: Filter
    tables: Filter
    columns: Filter

    @classmethod
    def of(cls, config: Mapping[str, str]) -> SourceSettings:
        values = parse(FIELDS, config)
        wrong = problems(values)
        if wrong:
            raise BadConfig(wrong)
        filters = [
            Filter(tuple(values[f"{kind}.include.list"]), tuple(values[f"{kind}.exclude.list"]))
            for kind in ("schema", "table", "column")
        ]
        modes = Modes(
            decimal=values["decimal.handling.mode"],
            time=values["time.precision.mode"],
            interval=values["interval.handling.mode"],
            binary=values["binary.handling.mode"],
            hstore=values["hstore.handling.mode"],
            money_digits=values["money.fraction.digits"],
            unavailable=values["unavailable.value.placeholder"],
        )
        return cls(values, modes, *filters)

    def takes_table(self, schema: str, table: str) -> bool:
        return self.schemas.takes(schema) and self.tables.takes(f"{schema}.{table}")

    @property
    def prefix(self) -> str:
        return str(self.values["topic.prefix"])

    @property
    def slot(self) -> str:
        return str(self.values["slot.name"])

    @property
    def publication(self) -> str:
        return str(self.values["publication.name"])

    @property
    def snapshot_mode(self) -> str:
        mode = str(self.values["snapshot.mode"])
        return "no_data" if mode == "never" else mode

    def topic(self, schema: str, table: str) -> str:
        """Kafka allows letters, digits, dots, underscores and hyphens: all else is an underscore."""
        delimiter = self.values["topic.delimiter"]
        return re.sub(r"[^A-Za-z0-9._-]", "_", f"{self.prefix}{delimiter}{schema}{delimiter}{table}")
