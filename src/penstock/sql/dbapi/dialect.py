"""SQLAlchemy's dialect of a SQL server: `create_engine("penstock://user:password@host:8088")`.

`?tls=true` for HTTPS, `?ca=FILE` for a private certificate authority. Streams and tables appear as tables, so
that pandas' `read_sql` and BI tools find them; create them with SQL statements, not from SQLAlchemy's
metadata.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from sqlalchemy import exc, types
from sqlalchemy.engine import URL
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.sql import compiler

from penstock.sqltext.types import type_of

_TYPES: dict[str, type[types.TypeEngine[Any]]] = {
    "BOOLEAN": types.Boolean,
    "TINYINT": types.SmallInteger,
    "SMALLINT": types.SmallInteger,
    "INT": types.Integer,
    "BIGINT": types.BigInteger,
    "FLOAT": types.Float,
    "DOUBLE": types.Double,
    "STRING": types.String,
    "VARCHAR": types.String,
    "CHAR": types.String,
    "BINARY": types.LargeBinary,
    "DATE": types.Date,
    "TIME": types.Time,
    "TIMESTAMP_NTZ": types.DateTime,
}


class _Names(compiler.IdentifierPreparer):
    """Quotes all names, because Spark decides which words are reserved."""

    def __init__(self, dialect: Any, **options: Any) -> None:
        super().__init__(dialect, **{**options, "initial_quote": "`", "final_quote": "`"})

    def _requires_quotes(self, value: str) -> bool:
        return True


class _TypeNames(compiler.GenericTypeCompiler):
    """Of CAST(… AS …)."""

    def visit_VARCHAR(self, type_: Any, **kw: Any) -> str:
        return "STRING"

    visit_TEXT = visit_NVARCHAR = visit_CHAR = visit_VARCHAR

    def visit_DOUBLE_PRECISION(self, type_: Any, **kw: Any) -> str:
        return "DOUBLE"

    visit_DOUBLE = visit_DOUBLE_PRECISION

    def visit_datetime(self, type_: Any, **kw: Any) -> str:
        return "TIMESTAMP" if type_.timezone else "TIMESTAMP_NTZ"

    def visit_BLOB(self, type_: Any, **kw: Any) -> str:
        return "BINARY"


class PenstockDialect(DefaultDialect):
    name = "penstock"
    driver = "http"
    default_paramstyle = "pyformat"
    supports_statement_cache = True
    supports_alter = False
    supports_native_boolean = True
    supports_native_decimal = True
    supports_sane_rowcount = False
    supports_default_values = False
    supports_empty_insert = False
    supports_sequences = False
    postfetch_lastrowid = False
    insert_returning = False
    preparer = _Names  # type: ignore[assignment]
    type_compiler_cls = _TypeNames

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        from penstock.sql import dbapi

        return dbapi

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        query = dict(url.query)
        secure = str(query.pop("tls", "false")).lower() in ("true", "1")
        known: dict[str, Any] = {name: query.pop(name) for name in ("ca", "token") if name in query}
        if query:
            names = ", ".join(sorted(query))
            raise exc.ArgumentError(f"penstock:// has no parameter {names}. Available: tls, ca, token")
        address = f"http{'s' if secure else ''}://{url.host or '127.0.0.1'}:{url.port or 8088}"
        return [address], {"user": url.username, "password": url.password, **known}

    # A statement is committed when its response arrives.

    def do_commit(self, dbapi_connection: Any) -> None: ...

    def do_rollback(self, dbapi_connection: Any) -> None: ...

    def do_ping(self, dbapi_connection: Any) -> bool:
        dbapi_connection.session.ask("/info")
        return True

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        return False  # each statement is a separate request

    def _get_server_version_info(self, connection: Any) -> None:
        return None

    def _get_default_schema_name(self, connection: Any) -> Any:
        return None

    # What is there

    def _relations(self, connection: Any) -> dict[str, dict[str, Any]]:
        found = connection.connection.dbapi_connection.session.ask("/relations")
        return {one["name"]: one for one in found["relations"]}

    def get_schema_names(self, connection: Any, **kw: Any) -> list[str]:
        return []

    def get_table_names(self, connection: Any, schema: str | None = None, **kw: Any) -> list[str]:
        return sorted(self._relations(connection))

    def get_view_names(self, connection: Any, schema: str | None = None, **kw: Any) -> list[str]:
        return []

    def has_table(self, connection: Any, table_name: str, schema: str | None = None, **kw: Any) -> bool:
        return table_name in self._relations(connection)

    def get_columns(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        columns = self._one(connection, table_name)["columns"]
        return [
            {"name": name, "type": _type(kind), "nullable": True, "default": None} for name, kind in columns
        ]

    def get_pk_constraint(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """The key of a table. A stream may have many records with one key."""
        one = self._one(connection, table_name)
        return {"constrained_columns": one["key"] if one["kind"].upper() == "TABLE" else [], "name": None}

    def _one(self, connection: Any, name: str) -> dict[str, Any]:
        found = self._relations(connection)
        if name not in found:
            raise exc.NoSuchTableError(name)
        return found[name]

    def get_foreign_keys(self, connection: Any, table_name: str, schema: Any = None, **kw: Any) -> list[Any]:
        return []

    def get_indexes(self, connection: Any, table_name: str, schema: Any = None, **kw: Any) -> list[Any]:
        return []

    def get_unique_constraints(
        self, connection: Any, table_name: str, schema: Any = None, **kw: Any
    ) -> list[Any]:
        return []

    def get_check_constraints(
        self, connection: Any, table_name: str, schema: Any = None, **kw: Any
    ) -> list[Any]:
        return []


def _type(kind: str) -> types.TypeEngine[Any]:
    try:
        found = type_of(kind)
    except ValueError:
        return types.NullType()
    if found.word == "DECIMAL":
        precision, scale = (*found.sizes, None, None)[:2]
        return types.Numeric(precision, scale)
    if found.word == "TIMESTAMP":
        return types.DateTime(timezone=True)
    return _TYPES.get(found.word, types.NullType)()
