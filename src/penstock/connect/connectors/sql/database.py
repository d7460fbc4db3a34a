"""A database: its address, connections, temporary errors, and clock.

Addresses are SQLAlchemy's (`postgresql://user@host/db`, `sqlite:////path`) or JDBC's
(`jdbc:postgresql://host/db`). Sessions run in UTC.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy
from sqlalchemy import exc
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.pool import NullPool

from penstock.connect.api import ConfigType, ConnectError, Field, Importance, RetriableError
from penstock.connect.connectors.sql.failures import Fault, fault_of

DRIVERS = {
    "postgresql": "postgresql+psycopg2",
    "postgres": "postgresql+psycopg2",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "sqlite": "sqlite+pysqlite",
    "duckdb": "duckdb",
}
CONNECT_SECONDS = 10

CONNECTION = (
    Field(
        "connection.url",
        doc="The database, as a SQLAlchemy or JDBC URL: postgresql, mysql, mariadb, sqlite or duckdb.",
        importance=Importance.HIGH,
    ),
    Field(
        "connection.user", default=None, doc="The user, if the URL names none.", importance=Importance.HIGH
    ),
    Field(
        "connection.password",
        ConfigType.PASSWORD,
        None,
        "The password of the user.",
        importance=Importance.HIGH,
    ),
)


def url_of(config: Mapping[str, str]) -> URL:
    """SQLAlchemy's URL. ConnectError for an unknown kind of database."""
    text = config["connection.url"]
    given = text.removeprefix("jdbc:")
    kind, _, rest = given.partition(":")
    if text.startswith("jdbc:") and kind in ("sqlite", "duckdb") and not rest.startswith("//"):
        given = f"{kind}:///{rest}"
    try:
        url = make_url(given)
    except exc.ArgumentError:
        raise ConnectError(f"{text} is not the URL of a database: write postgresql://host/database") from None
    if url.drivername not in DRIVERS and url.drivername not in DRIVERS.values():
        known = ", ".join(sorted(DRIVERS))
        raise ConnectError(f"{url.drivername} is not a database that is known: use one of {known}")
    url = url.set(drivername=DRIVERS.get(url.drivername, url.drivername))
    query = dict(url.query)
    if text.startswith("jdbc:") and url.host:
        # JDBC has user and password among the parameters.
        user, password = query.pop("user", None), query.pop("password", None)
        url = url.set(query=query)
        if user is not None:
            url = url.set(username=str(user))
        if password is not None:
            url = url.set(password=str(password))
    if config.get("connection.user"):
        url = url.set(username=config["connection.user"])
    if config.get("connection.password"):
        url = url.set(password=config["connection.password"])
    return url


class Database:
    """`transaction` is for writing, `reading` for queries.

    A temporary error is a RetriableError, a failed login a ConnectError; other errors are SQLAlchemy's.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        url = url_of(config)
        self.dialect: str = url.get_backend_name()
        if self.dialect == "mariadb":
            self.dialect = "mysql"
        self.address = url.render_as_string(hide_password=True)
        options: dict[str, Any] = {}
        if self.dialect == "postgresql":
            options["connect_args"] = {"connect_timeout": CONNECT_SECONDS, "options": "-c timezone=UTC"}
            options["executemany_mode"] = "values_plus_batch"
        elif self.dialect == "mysql":
            options["connect_args"] = {
                "connect_timeout": CONNECT_SECONDS,
                "init_command": "SET time_zone = '+00:00'",
                "charset": "utf8mb4",
            }
        elif self.dialect == "duckdb":
            # The process that has the file open locks it: others can read it between two batches.
            options["poolclass"] = NullPool
        self.engine = sqlalchemy.create_engine(url, **options)
        if self.dialect == "sqlite":
            _immediate(self.engine)
        self._quote = self.engine.dialect.identifier_preparer.quote_identifier
        self.mark = "?" if self.dialect in ("sqlite", "duckdb") else "%s"
        """The placeholder of a value in a statement."""

    def quoted(self, name: str, schema: str | None = None) -> str:
        name = self._quote(name)
        return f"{self._quote(schema)}.{name}" if schema else name

    def execute(self, connection: Connection, text: str, values: tuple[Any, ...] = ()) -> Any:
        """A statement with placeholders. `%` is `%%` if the driver interprets it, as in the result of
        `quoted`.
        """
        if values or self.mark != "%s":
            return connection.exec_driver_sql(text, values)
        # Drivers differ in whether they interpret `%` in a statement without values.
        return connection.execution_options(no_parameters=True).exec_driver_sql(text.replace("%%", "%"))

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with self._errors(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Without a lock for writing, and without a change at the end."""
        with self._errors(), self.engine.connect() as connection:
            yield connection.execution_options(writing=False)

    @contextmanager
    def held(self) -> Iterator[None]:
        """DuckDB's file stays open in between: opening it costs more than a small transaction."""
        if self.dialect != "duckdb":
            yield
            return
        with self._errors():
            connection = self.engine.connect()
        try:
            yield
        finally:
            connection.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except exc.DBAPIError as error:
            fault = fault_of(error, self.dialect)
            if fault is Fault.RECORD:
                raise
            if fault is Fault.LOGIN:
                raise ConnectError(f"{self.address}: {short(error)}") from error
            # By then it may be another server, or accept writes only in new sessions.
            self.engine.dispose()
            raise RetriableError(f"{self.address}: {short(error)}") from error

    def now(self, connection: Connection) -> datetime.datetime:
        """The database's clock, in UTC."""
        if self.dialect == "sqlite":
            text = connection.exec_driver_sql("SELECT strftime('%Y-%m-%dT%H:%M:%f', 'now')").scalar_one()
            return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
        if self.dialect == "mysql":
            found = connection.exec_driver_sql("SELECT UTC_TIMESTAMP(6)").scalar_one()
            return found.replace(tzinfo=datetime.UTC)  # type: ignore[no-any-return]
        if self.dialect == "duckdb":
            micros = connection.exec_driver_sql("SELECT epoch_us(now())").scalar_one()
            return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(microseconds=micros)
        found = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
        return found.astimezone(datetime.UTC)  # type: ignore[no-any-return]

    def close(self) -> None:
        self.engine.dispose()


def _immediate(engine: sqlalchemy.Engine) -> None:
    """SQLite: one writer at a time, from the start of its transaction; readers do not wait for it."""

    @sqlalchemy.event.listens_for(engine, "connect")
    def on_connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA busy_timeout = 5000")

    @sqlalchemy.event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        writing = connection.get_execution_options().get("writing", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def short(error: exc.DBAPIError) -> str:
    """The database's own message, without the statement and its values."""
    original: Any = error.orig
    args: Any = getattr(original, "args", ())
    if len(args) == 2 and isinstance(args[0], int):
        return f"{args[1]} ({args[0]})"
    return str(original).strip().partition("\n")[0]


def problem_with(config: Mapping[str, str]) -> dict[str, list[str]]:
    """Connection problems of this configuration, by field."""

    def refused(reason: str) -> dict[str, list[str]]:
        shown = config["connection.url"]
        return {"connection.url": [f"Invalid value {shown} for configuration connection.url: {reason}"]}

    try:
        database = Database(config)
    except ConnectError as error:
        return refused(str(error))
    except (exc.ArgumentError, exc.NoSuchModuleError, ImportError) as error:
        return refused(f"{error}; the extra connect-sql has the drivers")
    try:
        with database.reading() as connection:
            connection.exec_driver_sql("SELECT 1").scalar_one()
    except ConnectError as error:
        return refused(str(error))
    except exc.DBAPIError as error:
        return refused(short(error))
    finally:
        database.close()
    return {}
