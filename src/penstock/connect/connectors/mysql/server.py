"""Connections to the server, its required settings, and its binlog position.

A temporary failure (the server is unavailable or restarts) is a RetriableError; any other is a ConnectError
with the server's own message.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.connections import Connection

from penstock.connect.api import ConnectError, RetriableError
from penstock.connect.connectors.mysql.settings import SourceSettings

READ_TIMEOUT_SECONDS = 60
# Access denied, unknown database, missing privilege, unknown table, purged binlog: permanent errors.
_LASTING = {1044, 1045, 1049, 1142, 1146, 1227, 1236, 1698}


@dataclass(frozen=True, slots=True)
class BinlogPosition:
    file: str
    pos: int


@contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """PyMySQL's errors as Connect's: retriable and permanent ones."""
    try:
        yield
    except pymysql.err.Error as error:
        raise translated(what, error) from error
    except (OSError, EOFError) as error:
        raise RetriableError(f"{what}: {error}") from error


def translated(what: str, error: pymysql.err.Error) -> ConnectError:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    passing = isinstance(error, (pymysql.err.OperationalError, pymysql.err.InterfaceError))
    words = " ".join(str(each) for each in error.args[1:]) or str(error)
    return (RetriableError if passing and code not in _LASTING else ConnectError)(f"{what}: {words} ({code})")


def connection_settings(settings: SourceSettings) -> dict[str, Any]:
    values = settings.values
    return {
        "host": values["database.hostname"],
        "port": values["database.port"],
        "user": values["database.user"],
        "password": values["database.password"] or "",
        "charset": "utf8mb4",
        "connect_timeout": max(1, values["connect.timeout.ms"] // 1000),
        "read_timeout": READ_TIMEOUT_SECONDS,
        "program_name": f"penstock {settings.prefix}",
        **_tls(settings),
    }


def _tls(settings: SourceSettings) -> dict[str, Any]:
    values = settings.values
    mode = values["database.ssl.mode"]
    if mode == "disabled":
        return {"ssl_disabled": True}
    if mode == "preferred" and not values["database.ssl.cert"]:
        return {}
    try:
        context = ssl.create_default_context(cafile=values["database.ssl.ca"])
        context.check_hostname = mode == "verify_identity"
        context.verify_mode = ssl.CERT_REQUIRED if mode.startswith("verify") else ssl.CERT_NONE
        if values["database.ssl.cert"]:
            context.load_cert_chain(values["database.ssl.cert"], values["database.ssl.key"])
    except (OSError, ssl.SSLError) as error:
        raise ConnectError(
            f"database.ssl.ca, database.ssl.cert or database.ssl.key cannot be read: {error}"
        ) from error
    return {"ssl": context}


def where(settings: SourceSettings) -> str:
    return f"MySQL {settings.values['database.hostname']}:{settings.values['database.port']}"


def connect(settings: SourceSettings) -> Connection:
    """For queries, one statement a transaction, with times in UTC."""
    with translated_errors(f"Cannot connect to {where(settings)}"):
        connection = pymysql.connect(
            **connection_settings(settings),
            autocommit=True,
            init_command="SET SESSION time_zone = '+00:00', sql_mode = '', net_write_timeout = 3600, "
            "wait_timeout = 86400",
        )
        for statement in (settings.values["database.initial.statements"] or "").split(";"):
            if statement.strip():
                connection.cursor().execute(statement)
        return connection


def query(connection: Connection, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with translated_errors("A query failed"), connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())


def is_mariadb(connection: Connection) -> bool:
    return "mariadb" in connection.get_server_info().lower()


def server_id(connection: Connection) -> int:
    return int(query(connection, "SELECT @@server_id")[0][0])


def variable(connection: Connection, name: str) -> str | None:
    """A global variable; None if the server does not know it."""
    rows = query(connection, "SHOW GLOBAL VARIABLES LIKE %s", name)
    return str(rows[0][1]) if rows else None


def end_of_binlog(connection: Connection) -> BinlogPosition:
    try:
        rows = query(connection, "SHOW MASTER STATUS")
    except ConnectError as error:
        if "(1064)" not in str(error):
            raise
        rows = query(connection, "SHOW BINARY LOG STATUS")  # MySQL 8.4
    if not rows:
        raise ConnectError("The server has no binlog: start it with log_bin.")
    return BinlogPosition(str(rows[0][0]), int(rows[0][1]))


def has_binlog(connection: Connection, file: str) -> bool:
    return any(row[0] == file for row in query(connection, "SHOW BINARY LOGS"))


def gtids_at(connection: Connection, position: BinlogPosition) -> str | None:
    """MariaDB's GTIDs up to a position; None on other servers."""
    if not is_mariadb(connection):
        return None
    [(found,)] = query(connection, "SELECT BINLOG_GTID_POS(%s, %s)", position.file, position.pos)
    return str(found) if found else None


_REQUIRED = (
    # Name, required value, and whether a server without the variable is accepted.
    ("log_bin", "ON", False, "Start the server with log_bin."),
    ("binlog_format", "ROW", False, "SET GLOBAL binlog_format = ROW."),
    ("binlog_row_image", "FULL", False, "SET GLOBAL binlog_row_image = FULL."),
    (
        "binlog_row_metadata",
        "FULL",
        False,
        "SET GLOBAL binlog_row_metadata = FULL (MariaDB 10.5, MySQL 8.0.14 or later): the binlog then has "
        "the names and types of columns.",
    ),
    ("log_bin_compress", "OFF", True, "SET GLOBAL log_bin_compress = OFF."),
    ("binlog_transaction_compression", "OFF", True, "SET GLOBAL binlog_transaction_compression = OFF."),
    ("binlog_row_value_options", "", True, "SET GLOBAL binlog_row_value_options = ''."),
)


def check_server(connection: Connection) -> dict[str, list[str]]:
    """Why changes of this server cannot be captured, by field."""
    for name, expected, optional, advice in _REQUIRED:
        found = variable(connection, name)
        if found is None and optional:
            continue
        if (found or "").upper() != expected:
            reason = f"the server has {name}={found or 'nothing'}. {advice}"
            return {"database.hostname": [f"Invalid value for configuration database.hostname: {reason}"]}
    grants = " ".join(row[0].upper() for row in query(connection, "SHOW GRANTS"))
    if not any(
        right in grants for right in ("REPLICATION SLAVE", "REPLICATION REPLICA", "ALL PRIVILEGES ON *.*")
    ):
        return {
            "database.user": [
                "Invalid value for configuration database.user: the user may not read the binlog. Run "
                "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO ..."
            ]
        }
    try:
        end_of_binlog(connection)
    except ConnectError as error:
        reason = f"the user may not see the binlog's position ({error}). Run GRANT REPLICATION CLIENT ON *.*"
        return {"database.user": [f"Invalid value for configuration database.user: {reason}"]}
    return {}
