"""Connections to the server, its publication and its replication slot.

A temporary failure (the server is unavailable or restarts, or the slot is in use) is a RetriableError; any
other is a ConnectError with the server's own message.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg2
import psycopg2.extensions
import psycopg2.extras
from psycopg2 import errors, sql
from psycopg2.extensions import connection as Connection

from penstock.connect.api import ConnectError, RetriableError
from penstock.connect.connectors.postgres.settings import SourceSettings

_log = logging.getLogger(__name__)

# The text forms that `temporal` and `literals` read, whatever the server's defaults are.
_SESSION = (
    "-c DateStyle=ISO -c IntervalStyle=postgres -c TimeZone=UTC -c extra_float_digits=3 -c bytea_output=hex "
    "-c lc_monetary=C -c statement_timeout=0 -c idle_in_transaction_session_timeout=0"
)
_RAW = psycopg2.extensions.new_type(
    tuple(psycopg2.extensions.string_types), "TEXT FORM", psycopg2.extensions.UNICODE
)
_PASSING = (errors.ObjectInUse, errors.TooManyConnections, errors.AdminShutdown, errors.CannotConnectNow)


def lsn_number(text: str) -> int:
    """16/B374D848 as a number."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


@contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """Translates psycopg2's errors to Connect's: retriable and permanent ones."""
    try:
        yield
    except psycopg2.Error as error:
        raise translated(what, error) from error


def translated(what: str, error: psycopg2.Error) -> ConnectError:
    # A connection that breaks while results are read raises the base class.
    lost = type(error) is psycopg2.DatabaseError and error.pgcode is None
    passing = isinstance(error, (psycopg2.OperationalError, psycopg2.InterfaceError, *_PASSING))
    return (RetriableError if lost or passing else ConnectError)(f"{what}: {_reason(error)}")


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _parameters(settings: SourceSettings) -> dict[str, Any]:
    values = settings.values
    names = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword")
    return {
        "host": values["database.hostname"],
        "port": values["database.port"],
        "user": values["database.user"],
        "password": values["database.password"] or None,
        "dbname": values["database.dbname"],
        "application_name": f"penstock {settings.prefix}"[:63],
        "client_encoding": "UTF8",
        "connect_timeout": 10,
        "keepalives_idle": 30,
        "options": _SESSION,
        **{name: values[f"database.{name}"] for name in names if values[f"database.{name}"]},
    }


def where(settings: SourceSettings) -> str:
    values = settings.values
    return f"PostgreSQL {values['database.hostname']}:{values['database.port']}/{values['database.dbname']}"


def connect(settings: SourceSettings) -> Connection:
    """For queries, one statement a transaction; values are text."""
    with translated_errors(f"Cannot connect to {where(settings)}"):
        connection: Connection = psycopg2.connect(**_parameters(settings))
        connection.autocommit = True
        psycopg2.extensions.register_type(_RAW, connection)
        statements = settings.values["database.initial.statements"]
        if statements:
            with connection.cursor() as cursor:
                cursor.execute(statements)
        return connection


def connect_for_replication(settings: SourceSettings) -> psycopg2.extras.LogicalReplicationConnection:
    with translated_errors(f"Cannot connect to {where(settings)} for replication"):
        connection: psycopg2.extras.LogicalReplicationConnection = psycopg2.connect(
            connection_factory=psycopg2.extras.LogicalReplicationConnection, **_parameters(settings)
        )
        return connection


def query(connection: Connection, statement: str | sql.Composable, *values: Any) -> list[tuple[Any, ...]]:
    with translated_errors("A query failed"), connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []


@dataclass(frozen=True, slots=True)
class Slot:
    confirmed_lsn: int
    active: bool


def find_slot(connection: Connection, settings: SourceSettings) -> Slot | None:
    rows = query(
        connection,
        "SELECT plugin, database, confirmed_flush_lsn::text, active, wal_status FROM pg_replication_slots "
        "WHERE slot_name = %s",
        settings.slot,
    )
    if not rows:
        return None
    plugin, database, confirmed, active, wal_status = rows[0]
    if plugin != "pgoutput" or database != settings.values["database.dbname"]:
        raise ConnectError(
            f"Replication slot {settings.slot!r} belongs to plugin {plugin!r} and database {database!r}: "
            "set slot.name to another name."
        )
    if wal_status == "lost" or confirmed is None:
        raise ConnectError(
            f"Replication slot {settings.slot!r} is no longer usable: the server removed WAL that it needs "
            "(max_slot_wal_keep_size). Drop the slot and the connector's offsets, and take a new snapshot."
        )
    return Slot(lsn_number(confirmed), active == "t")


def create_slot(
    replication: psycopg2.extras.LogicalReplicationConnection, settings: SourceSettings
) -> tuple[int, str]:
    """Its consistent point, and the name of the snapshot, which is valid while this connection is idle."""
    _log.info("Creating replication slot %s; waiting for running transactions to end.", settings.slot)
    with (
        translated_errors(f"Cannot create replication slot {settings.slot!r}"),
        replication.cursor() as cursor,
    ):
        cursor.create_replication_slot(settings.slot, output_plugin="pgoutput")
        row = cursor.fetchone()
    assert row is not None
    return lsn_number(row[1]), row[2]


def drop_slot(connection: Connection, settings: SourceSettings) -> None:
    query(connection, "SELECT pg_drop_replication_slot(%s)", settings.slot)


def check_server(connection: Connection) -> dict[str, list[str]]:
    """Why changes of this server cannot be captured, by field."""
    [(level,)] = query(connection, "SHOW wal_level")
    if level != "logical":
        return {
            "database.hostname": [
                f"Invalid value for configuration database.hostname: the server has wal_level={level}. Set "
                "wal_level=logical in postgresql.conf and restart it."
            ]
        }
    [(allowed,)] = query(
        connection,
        "SELECT rolsuper OR rolreplication OR EXISTS (SELECT 1 FROM pg_roles g WHERE "
        "g.rolname = 'rds_replication' AND pg_has_role(r.oid, g.oid, 'member')) "
        "FROM pg_roles r WHERE rolname = current_user",
    )
    if allowed != "t":
        return {
            "database.user": [
                "Invalid value for configuration database.user: the role may not replicate. Run "
                "ALTER ROLE ... REPLICATION."
            ]
        }
    return {}


def ensure_publication(connection: Connection, settings: SourceSettings) -> None:
    """Creates it according to `publication.autocreate.mode`; with `filtered`, also sets its tables."""
    mode = settings.values["publication.autocreate.mode"]
    name = sql.Identifier(settings.publication)
    exists = bool(query(connection, "SELECT 1 FROM pg_publication WHERE pubname = %s", settings.publication))
    if mode == "disabled" or (exists and mode != "filtered"):
        if not exists:
            raise ConnectError(
                f"Publication {settings.publication!r} does not exist, and publication.autocreate.mode is "
                "disabled: create it with CREATE PUBLICATION, or choose another mode."
            )
        return
    root = str(settings.values["publish.via.partition.root"]).lower()
    options = sql.SQL(f" WITH (publish_via_partition_root = {root})")
    if mode == "all_tables":
        statement: sql.Composable = sql.SQL("CREATE PUBLICATION {} FOR ALL TABLES").format(name) + options
    elif mode == "no_tables":
        statement = sql.SQL("CREATE PUBLICATION {}").format(name) + options
    else:
        tables = _filtered_tables(connection, settings)
        if exists:
            statement = sql.SQL("ALTER PUBLICATION {} SET TABLE {}").format(name, tables)
        else:
            statement = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(name, tables) + options
    with translated_errors(f"Cannot create publication {settings.publication!r}"):
        query(connection, statement)
    _log.info("Publication %s is ready (%s).", settings.publication, mode)


def _filtered_tables(connection: Connection, settings: SourceSettings) -> sql.Composable:
    kinds = (
        "('r', 'p') AND NOT c.relispartition" if settings.values["publish.via.partition.root"] else "('r')"
    )
    rows = query(
        connection,
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE c.relkind IN {kinds} AND c.relpersistence = 'p' AND n.nspname <> 'information_schema' "
        r"AND n.nspname NOT LIKE 'pg\_%' ORDER BY 1, 2",
    )
    taken = [sql.Identifier(schema, table) for schema, table in rows if settings.takes_table(schema, table)]
    if not taken:
        raise ConnectError(
            "No table is in table.include.list and schema.include.list: publication.autocreate.mode filtered "
            "needs at least one."
        )
    return sql.SQL(", ").join(taken)
