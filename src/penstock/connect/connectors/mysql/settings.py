"""The connector's settings, with the names, defaults and meaning of Debezium's MySQL connector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.connect.api import BadConfig, ConfigType, Field, Importance, Range, parse
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
from penstock.connect.connectors.mysql.column_types import Modes

_HIGH = Importance.HIGH
_SYSTEM_DATABASES = {"mysql", "information_schema", "performance_schema", "sys"}

FIELDS: tuple[Field, ...] = (
    Field("database.hostname", doc="The host of the MySQL or MariaDB server.", importance=_HIGH),
    Field("database.port", ConfigType.INT, 3306, "Its port.", Range(1, 65535), _HIGH),
    Field(
        "database.user",
        doc="A user with SELECT, REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: BINLOG MONITOR).",
        importance=_HIGH,
    ),
    Field("database.password", ConfigType.PASSWORD, "", "The password of the user.", None, _HIGH),
    Field(
        "database.server.id",
        ConfigType.LONG,
        None,
        "The server id of this connector, different from that of every server and replica. Default: random.",
        Range(1, 2**32 - 1),
    ),
    choice(
        "database.ssl.mode",
        "preferred",
        ("disabled", "preferred", "required", "verify_ca", "verify_identity"),
        "Whether the connection uses TLS, and whether the server's certificate is verified.",
    ),
    Field("database.ssl.ca", default=None, doc="File with the certificates of trusted authorities (PEM)."),
    Field("database.ssl.cert", default=None, doc="File with the client's certificate (PEM)."),
    Field("database.ssl.key", default=None, doc="File with the client's key (PEM)."),
    Field("database.initial.statements", default=None, doc="SQL to run on every new connection for queries."),
    millis("connect.timeout.ms", 30_000, "How long to wait for a connection.", 1000),
    *topic_fields("DATABASE"),
    *filter_fields("DATABASE"),
    choice(
        "snapshot.mode",
        "initial",
        SNAPSHOT_MODES,
        "When the tables' rows are read: where there are no offsets (initial; initial_only then stops), "
        "at each start (always), never (no_data), or also where the binlog was purged (when_needed).",
    ),
    choice(
        "snapshot.locking.mode",
        "minimal",
        ("minimal", "none"),
        "MySQL: whether a global read lock is held while the snapshot begins. MariaDB needs no lock.",
    ),
    *RECORD_FIELDS,
    choice(
        "decimal.handling.mode",
        "precise",
        ("precise", "double", "string"),
        "How DECIMAL and NUMERIC are sent.",
    ),
    choice(
        "time.precision.mode",
        "adaptive_time_microseconds",
        ("adaptive_time_microseconds", "connect"),
        "How DATE, TIME and DATETIME are sent.",
    ),
    choice("bigint.unsigned.handling.mode", "long", ("long", "precise"), "How BIGINT UNSIGNED is sent."),
    choice(
        "binary.handling.mode",
        "bytes",
        ("bytes", "base64", "base64-url-safe", "hex"),
        "How BINARY and BLOB are sent.",
    ),
    Field(
        "include.schema.changes",
        ConfigType.BOOLEAN,
        True,
        "Send DDL statements of captured databases to the topic that is named as the prefix.",
    ),
)


@dataclass(frozen=True, slots=True)
class SourceSettings(CaptureSettings):
    """The typed settings of a task."""

    modes: Modes

    @classmethod
    def of(cls, config: Mapping[str, str]) -> SourceSettings:
        values = parse(FIELDS, config)
        wrong = common_problems(values, "database")
        mode = values["database.ssl.mode"]
        if mode.startswith("verify") and not values["database.ssl.ca"]:
            wrong["database.ssl.ca"] = [
                f'Missing required configuration "database.ssl.ca": database.ssl.mode {mode} verifies the '
                "server's certificate with it."
            ]
        if bool(values["database.ssl.cert"]) != bool(values["database.ssl.key"]):
            wrong["database.ssl.cert"] = refusal(
                values, "database.ssl.cert", "database.ssl.cert and database.ssl.key are set together or not"
            )
        if wrong:
            raise BadConfig(wrong)
        modes = Modes(
            decimal=values["decimal.handling.mode"],
            time=values["time.precision.mode"],
            bigint_unsigned=values["bigint.unsigned.handling.mode"],
            binary=values["binary.handling.mode"],
        )
        databases, tables, columns = (Filter.of(values, kind) for kind in ("database", "table", "column"))
        return cls(values, databases, tables, columns, modes)

    def takes_database(self, database: str) -> bool:
        return database.lower() not in _SYSTEM_DATABASES and self.spaces.takes(database)

    def takes_table(self, space: str, table: str) -> bool:
        return self.takes_database(space) and self.tables.takes(f"{space}.{table}")

    @property
    def flavour(self) -> str:
        """The connector name in records: that of the Debezium class that was configured."""
        return "mariadb" if "mariadb" in str(self.values.get("connector.class", "")).lower() else "mysql"
