"""The connector's settings and filters, with Debezium's names, defaults and meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.connect.api import BadConfig, ConfigType, Field, Importance, OneOf, Range, parse
from penstock.connect.connectors.cdc.settings import (
    RECORD_FIELDS,
    SNAPSHOT_MODES,
    CaptureSettings,
    Filter,
    choice,
    common_problems,
    filter_fields,
    millis,
    refusal,
    topic_fields,
)
from penstock.connect.connectors.postgres.column_types import Modes

_HIGH = Importance.HIGH
_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}", re.ASCII)

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
    *topic_fields("SCHEMA"),
    choice("plugin.name", "pgoutput", ("pgoutput",), "The server's decoding plugin."),
    Field("slot.name", default="debezium", doc="The replication slot; created if absent.", importance=_HIGH),
    Field(
        "slot.drop.on.stop", ConfigType.BOOLEAN, False, "Drop the slot when the task stops. Loses changes."
    ),
    Field(
        "publication.name", default="dbz_publication", doc="The publication; see publication.autocreate.mode."
    ),
    choice(
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
    *filter_fields("SCHEMA"),
    choice(
        "snapshot.mode",
        "initial",
        SNAPSHOT_MODES,
        "When the tables' rows are read: where there are no offsets (initial; initial_only then stops), "
        "at each start (always), never (no_data), or also where the slot was lost (when_needed).",
    ),
    choice(
        "decimal.handling.mode", "precise", ("precise", "double", "string"), "How numeric and money are sent."
    ),
    choice(
        "time.precision.mode",
        "adaptive",
        ("adaptive", "adaptive_time_microseconds", "connect"),
        "How date, time and timestamp are sent.",
    ),
    choice("interval.handling.mode", "numeric", ("numeric", "string"), "How intervals are sent."),
    choice(
        "binary.handling.mode", "bytes", ("bytes", "base64", "base64-url-safe", "hex"), "How bytea is sent."
    ),
    choice("hstore.handling.mode", "json", ("json", "map"), "How hstore is sent."),
    Field("money.fraction.digits", ConfigType.INT, 2, "Digits of money after the point.", Range(0, 18)),
    Field(
        "unavailable.value.placeholder",
        default="__debezium_unavailable_value",
        doc="Stands for a TOASTed value that an update did not change and the server did not send.",
    ),
    *RECORD_FIELDS,
    millis(
        "status.update.interval.ms", 10_000, "How often the server learns which changes are durable.", 1000
    ),
)


def problems(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """Problems that the fields alone do not show, by field."""
    found = common_problems(values, "schema")
    if not _SLOT_NAME.fullmatch(values["slot.name"]):
        reason = "Value must be 1 to 63 lower-case letters, digits and underscores"
        found["slot.name"] = refusal(values, "slot.name", reason)
    return found


@dataclass(frozen=True, slots=True)
class SourceSettings(CaptureSettings):
    """The typed settings of a task."""

    modes: Modes

    @classmethod
    def of(cls, config: Mapping[str, str]) -> SourceSettings:
        values = parse(FIELDS, config)
        wrong = problems(values)
        if wrong:
            raise BadConfig(wrong)
        modes = Modes(
            decimal=values["decimal.handling.mode"],
            time=values["time.precision.mode"],
            interval=values["interval.handling.mode"],
            binary=values["binary.handling.mode"],
            hstore=values["hstore.handling.mode"],
            money_digits=values["money.fraction.digits"],
            unavailable=values["unavailable.value.placeholder"],
        )
        schemas, tables, columns = (Filter.of(values, kind) for kind in ("schema", "table", "column"))
        return cls(values, schemas, tables, columns, modes)

    @property
    def slot(self) -> str:
        return str(self.values["slot.name"])

    @property
    def publication(self) -> str:
        return str(self.values["publication.name"])
