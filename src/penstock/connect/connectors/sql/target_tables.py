"""The tables that a sink writes: found, created and extended as the settings allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import exc

from penstock.connect.api import ConnectError, Schema
from penstock.connect.connectors.sql.catalog import Table, find_table
from penstock.connect.connectors.sql.column_types import ddl_of
from penstock.connect.connectors.sql.database import Database, short

_MARK = "${topic}"


class TargetTables:
    def __init__(self, database: Database, name_format: str, *, create: bool, evolve: bool) -> None:
        self._database = database
        self._format = name_format
        self._create, self._evolve = create, evolve
        self._known: dict[tuple[str | None, str], Table] = {}
        self._fits: dict[tuple[str, tuple[str, ...]], Table] = {}

    def forget(self) -> None:
        """Called after an error: the tables may have changed."""
        self._known.clear()
        self._fits.clear()

    def name_of(self, topic: str) -> tuple[str | None, str]:
        """Schema and table. A dot in the format separates them, a dot in the topic's name does not."""
        schema, dot, name = self._format.replace(_MARK, "\0").rpartition(".")
        return schema.replace("\0", topic) if dot else None, name.replace("\0", topic)

    def fitting(self, topic: str, keys: Iterable[str], schemas: Mapping[str, Schema]) -> Table:
        """The table with all these columns. ConnectError if it lacks one and may not be altered."""
        asked = (topic, tuple(schemas))
        fits = self._fits.get(asked)
        if fits is not None:
            return fits
        place = self.name_of(topic)
        table = self._known.get(place) or self._find(place)
        if table is None:
            table = self._created(place, tuple(keys), schemas)
        missing = {name: schema for name, schema in schemas.items() if table.column(name) is None}
        if missing:
            self._known.pop(place, None)
            table = self._find(place) or table  # another task may have added them
            missing = {name: schema for name, schema in missing.items() if table.column(name) is None}
            if missing:
                table = self._extended(place, table, missing)
            self._fits.clear()
        self._known[place] = self._fits[asked] = table
        return table

    def _find(self, place: tuple[str | None, str]) -> Table | None:
        with self._database.reading() as connection:
            return find_table(self._database, connection, place[1], place[0])

    def _created(
        self, place: tuple[str | None, str], keys: tuple[str, ...], schemas: Mapping[str, Schema]
    ) -> Table:
        shown = ".".join(filter(None, place))
        if not self._create:
            raise ConnectError(
                f"Table {shown} is missing in {self._database.address}: create it, or set auto.create=true"
            )
        quoted, dialect = self._database.quoted, self._database.dialect
        columns = []
        for name, schema in schemas.items():
            required = name in keys or not schema.optional
            kind = ddl_of(schema, dialect, key=name in keys)
            columns.append(f"{quoted(name)} {kind}{' NOT NULL' if required else ' NULL'}")
        if keys:
            columns.append(f"PRIMARY KEY ({', '.join(quoted(name) for name in keys)})")
        self._change(f"CREATE TABLE {quoted(place[1], place[0])} ({', '.join(columns)})")
        table = self._find(place)
        if table is None:
            raise ConnectError(
                f"Table {shown} was created in {self._database.address}, but cannot be found there"
            )
        return table

    def _extended(self, place: tuple[str | None, str], table: Table, missing: Mapping[str, Schema]) -> Table:
        shown = ".".join(filter(None, place))
        names = ", ".join(missing)
        if not self._evolve:
            raise ConnectError(
                f"Table {shown} has no column for {names}: add it, set auto.evolve=true, or choose fields "
                "with fields.whitelist"
            )
        for name, schema in missing.items():
            if not schema.optional and schema.default is None:
                raise ConnectError(
                    f"Cannot add the column {name} to table {shown}: the field is not optional and has no "
                    "default, and rows that are there have no value for it"
                )
        quoted, dialect = self._database.quoted, self._database.dialect
        for name, schema in missing.items():
            kind = ddl_of(schema, dialect)
            self._change(f"ALTER TABLE {quoted(place[1], place[0])} ADD COLUMN {quoted(name)} {kind}")
        return self._find(place) or table

    def _change(self, statement: str) -> None:
        """In its own transaction, as DDL in MySQL always is. Another task may have made the same change."""
        try:
            with self._database.transaction() as connection:
                self._database.execute(connection, statement)
        except exc.DBAPIError as error:
            if "exist" not in short(error).lower() and "duplicate" not in short(error).lower():
                raise ConnectError(f"{statement}: {short(error)}") from error
