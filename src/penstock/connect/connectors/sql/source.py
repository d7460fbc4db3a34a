"""Reads rows of tables, or of a query, into topics: new rows by an incrementing column, changed rows by a
timestamp.

Settings, topics and offsets are those of Confluent's JDBC source.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from sqlalchemy import exc

from penstock.connect.api import (
    ConfigType,
    ConnectError,
    Field,
    Importance,
    NonEmpty,
    OffsetsReader,
    OneOf,
    Range,
    Schema,
    SourceConnector,
    SourceRecord,
    SourceTask,
    parse,
    struct_schema,
)
from penstock.connect.connectors.sql.catalog import Table, find_table, table_names, typed_by_values
from penstock.connect.connectors.sql.column_types import Read, reader_of, schema_of, timestamp_of
from penstock.connect.connectors.sql.database import CONNECTION, Database, problem_with, short
from penstock.connect.connectors.sql.queries import Position, TableQuery

_MODES = ("bulk", "incrementing", "timestamp", "timestamp+incrementing")
_TABLES = "tables"
_PROBE = "penstock_query_columns"
_WAIT_SECONDS = 0.5

_FIELDS = (
    *CONNECTION,
    Field("topic.prefix", doc="The topic of a table is PREFIX and its name; that of a query is PREFIX."),
    Field(
        "mode",
        doc="Which rows are new: by an incrementing column, a timestamp, or both; or all of them each time.",
        validator=OneOf(*_MODES),
        importance=Importance.HIGH,
    ),
    Field(
        "incrementing.column.name", default="", doc="A column whose values only grow; default: the only key."
    ),
    Field(
        "timestamp.column.name", ConfigType.LIST, (), "Columns with the time of a change; the first not null."
    ),
    Field("timestamp.delay.interval.ms", ConfigType.LONG, 0, "How old a row must be to be read.", Range(0)),
    Field("table.whitelist", ConfigType.LIST, (), "The tables; default: all. Also table.include.list."),
    Field("table.blacklist", ConfigType.LIST, (), "Tables to leave out. Also table.exclude.list."),
    Field("table.include.list", ConfigType.LIST, (), "As table.whitelist.", importance=Importance.LOW),
    Field("table.exclude.list", ConfigType.LIST, (), "As table.blacklist.", importance=Importance.LOW),
    Field("schema.pattern", default="", doc="The schema of the tables; default: that of the connection."),
    Field(
        "query", default="", doc="A SELECT in place of tables, without WHERE conditions on the columns above."
    ),
    Field("poll.interval.ms", ConfigType.INT, 5000, "How often a table is asked for new rows.", Range(1)),
    Field("batch.max.rows", ConfigType.INT, 1000, "The most rows of one poll.", Range(1)),
    Field(
        "table.poll.interval.ms", ConfigType.LONG, 60_000, "How often new tables are looked for.", Range(1)
    ),
    Field(
        "numeric.mapping",
        default="none",
        doc="What NUMERIC columns are: none for decimals, best_fit for integers and doubles.",
        validator=OneOf("none", "best_fit"),
    ),
    Field(
        "db.timezone", default="UTC", doc="The time zone of timestamps that have none.", validator=NonEmpty()
    ),
    Field("validate.non.null", ConfigType.BOOLEAN, True, "Whether the columns of the mode must be NOT NULL."),
)


class _Reader:
    """One table, or the query: selects rows after the last one."""

    def __init__(self, database: Database, settings: Mapping[str, Any], name: str | None) -> None:
        self._database, self._settings = database, settings
        self._name = name
        mode = settings["mode"]
        self.partition = {"query": "query"} if name is None else {"protocol": "1", "table": name}
        self.topic = settings["topic.prefix"] + ("" if name is None else name.rpartition(".")[2])
        self._zone = ZoneInfo(settings["db.timezone"])
        self._by_timestamp = "timestamp" in mode
        self._incrementing: str | None = None
        self._timestamps = tuple(settings["timestamp.column.name"]) if self._by_timestamp else ()
        self.position = Position()
        self.due = 0.0

    def read(self) -> Iterator[list[SourceRecord]]:
        """Batches, each complete for its offset."""
        with self._database.reading() as connection:
            table, schema = self._described(connection)
            delay = datetime.timedelta(milliseconds=self._settings["timestamp.delay.interval.ms"])
            until = self._database.now(connection) - delay
        query = TableQuery(
            self._database,
            table,
            query=self._settings["query"] or None,
            incrementing=self._incrementing,
            timestamps=self._timestamps,
            zone=self._zone,
        )
        rows = _Rows(table, schema, self._zone)
        if self._incrementing is not None:
            yield from self._read_parts(query, rows, until)
        else:
            yield from self._read_whole(query, rows, until)

    def _read_parts(
        self, query: TableQuery, rows: _Rows, until: datetime.datetime
    ) -> Iterator[list[SourceRecord]]:
        """With a total order each page is a separate statement, and no cursor stays open in between."""
        most = self._settings["batch.max.rows"]
        while True:
            asked = query.question(self.position, until, most)
            with self._database.reading() as connection:
                found = self._database.execute(connection, asked.text, asked.values).fetchall()
            if found:
                yield self._records(found, rows)
            if len(found) < most:
                return

    def _read_whole(
        self, query: TableQuery, rows: _Rows, until: datetime.datetime
    ) -> Iterator[list[SourceRecord]]:
        """One cursor, read step by step, because no column can be used to continue."""
        asked = query.question(self.position, until, None)
        with self._database.reading() as connection:
            streamed = connection.execution_options(stream_results=True, max_row_buffer=1000)
            result = self._database.execute(streamed, asked.text, asked.values)
            for batch in self._batches(result, rows):
                yield self._records(batch, rows)

    def _batches(self, result: Any, rows: _Rows) -> Iterator[list[Any]]:
        size = self._settings["batch.max.rows"]
        if not self._by_timestamp:
            while found := result.fetchmany(size):
                yield found
            return
        # Rows of one timestamp stay together: their offset is the same.
        held: list[Any] = []
        last: Any = None
        while found := result.fetchmany(size):
            for row in found:
                moment = rows.timestamp(row, self._timestamps)
                if moment != last and len(held) >= size:
                    yield held
                    held = []
                held.append(row)
                last = moment
        if held:
            yield held

    def _records(self, batch: list[Any], rows: _Rows) -> list[SourceRecord]:
        position = self.position
        found = []
        for row in batch:
            if self._settings["mode"] != "bulk":
                position = Position(
                    rows.timestamp(row, self._timestamps) if self._timestamps else None,
                    rows.number(row, self._incrementing) if self._incrementing else None,
                )
            found.append(
                SourceRecord(
                    self.topic,
                    rows.value(row),
                    value_schema=rows.schema,
                    source_partition=self.partition,
                    source_offset=position.to_offset(),
                )
            )
        self.position = position
        return found

    def _described(self, connection: Any) -> tuple[Table, Schema]:
        """Called each time, because the table may have changed."""
        if self._name is None:
            quoted = self._database.quoted(_PROBE)
            text = self._settings["query"]
            execute = self._database.execute
            execute(connection, f"DROP TABLE IF EXISTS {quoted}")
            escaped = text.replace("%", "%%") if self._database.mark == "%s" else text
            columns = f"SELECT * FROM ({escaped}) penstock_query LIMIT 0"
            execute(connection, f"CREATE TEMPORARY TABLE {quoted} AS {columns}")
            table = find_table(self._database, connection, _PROBE)
            execute(connection, f"DROP TABLE {quoted}")
            if table is not None and self._database.dialect == "sqlite":
                table = typed_by_values(connection, table, f"({text})")
        else:
            schema_name, _, name = self._name.rpartition(".")
            table = find_table(self._database, connection, name, schema_name or None)
        if table is None:
            raise ConnectError(f"Table {self._name} is missing in {self._database.address}")
        self._check(table)
        mapping = self._settings["numeric.mapping"]
        fields = {each.name: schema_of(each, self._database.dialect, mapping) for each in table.columns}
        return table, struct_schema(fields, name=None if self._name is None else table.name)

    def _check(self, table: Table) -> None:
        """Checks that the columns of the mode exist and are not nullable."""
        if "incrementing" in self._settings["mode"]:
            named = self._settings["incrementing.column.name"]
            if not named and len(table.primary_key) != 1:
                raise ConnectError(
                    f"Table {self._name} has no single key column: set incrementing.column.name"
                )
            self._incrementing = named or table.primary_key[0]
        for name in (*self._timestamps, *filter(None, [self._incrementing])):
            column = table.column(name)
            if column is None:
                raise ConnectError(f"{self._name or 'The query'} has no column {name}")
            checked = self._settings["validate.non.null"] and self._name is not None
            key = name in table.primary_key
            if checked and column.nullable and not key and len(self._timestamps) < 2:
                raise ConnectError(
                    f"The column {name} of {self._name} allows nulls, and such rows would never be read: "
                    "make it NOT NULL, or set validate.non.null=false"
                )


class _Rows:
    """Converts a driver's rows to values."""

    def __init__(self, table: Table, schema: Schema, zone: ZoneInfo) -> None:
        self.schema = schema
        self._names = [each.name for each in table.columns]
        self._zone = zone
        self._readers: list[tuple[int, str, Read]] = []
        for index, column in enumerate(table.columns):
            read = reader_of(column, schema.fields[index].schema, zone)
            if read is not None:
                self._readers.append((index, column.name, read))
        self._index = {name: index for index, name in enumerate(self._names)}

    def value(self, row: Any) -> dict[str, Any]:
        found = dict(zip(self._names, row))
        for index, name, read in self._readers:
            item = row[index]
            if item is not None:
                try:
                    found[name] = read(item)
                except (ValueError, TypeError, ArithmeticError) as error:
                    raise ConnectError(
                        f"column {name}: {item!r} is not a value of its type: {error}"
                    ) from error
        return found

    def timestamp(self, row: Any, names: Sequence[str]) -> datetime.datetime:
        for name in names:
            value = row[self._index[name]]
            if value is not None:
                return timestamp_of(value, self._zone)
        raise ConnectError(f"a row has no value for {', '.join(names)}")

    def number(self, row: Any, name: str) -> int:
        return int(row[self._index[name]])


class SqlSourceTask(SourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        settings = parse(_FIELDS, config)
        self._database = Database(config)
        self._interval: float = settings["poll.interval.ms"] / 1000
        names: list[str | None] = [None] if settings["query"] else [*_list(config.get(_TABLES))]
        self._readers = [_Reader(self._database, settings, name) for name in names]
        for reader in self._readers:
            offset = offsets_reader.offset(reader.partition)
            if offset and settings["mode"] != "bulk":
                reader.position = Position.of(offset)
        self._batches: Iterator[list[SourceRecord]] | None = None

    def poll(self) -> list[SourceRecord]:
        if self._batches is None:
            now = time.monotonic()
            reader = min(self._readers, key=lambda each: each.due)
            if reader.due > now:
                time.sleep(min(reader.due - now, _WAIT_SECONDS))
                return []
            reader.due = now + self._interval
            self._batches = reader.read()
        try:
            batch = next(self._batches, None)
        except exc.DBAPIError as error:
            self._batches = None
            raise ConnectError(f"{self._database.address}: {short(error)}") from error
        except ConnectError:
            self._batches = None
            raise
        if batch is None:
            self._batches = None
        return batch or []

    def stop(self) -> None:
        self._batches = None
        self._database.close()


def _list(text: str | None) -> list[str]:
    return [part for part in (text or "").split(",") if part]


class SqlSource(SourceConnector):
    """Rows of a database's tables, divided among tasks by table."""

    task_class = SqlSourceTask
    aliases = ("io.confluent.connect.jdbc.JdbcSourceConnector",)
    exactly_once = True
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        settings = parse(cls.fields, config)
        if settings["query"] and (settings["table.whitelist"] or settings["table.include.list"]):
            return {"query": ["query and table.whitelist exclude each other: set one of them"]}
        mode = settings["mode"]
        if "timestamp" in mode and not settings["timestamp.column.name"]:
            return {"timestamp.column.name": [f"mode={mode} needs timestamp.column.name"]}
        if "incrementing" in mode and settings["query"] and not settings["incrementing.column.name"]:
            return {"incrementing.column.name": [f"mode={mode} needs incrementing.column.name with a query"]}
        if settings["db.timezone"] not in available_timezones():
            return {
                "db.timezone": [
                    f"{settings['db.timezone']} is not a time zone: use one such as Europe/Berlin"
                ]
            }
        if mode == "bulk" and config.get("exactly.once.support", "").lower() == "required":
            return {"mode": ["mode=bulk reads all rows again after a restart, which is not exactly once"]}
        return problem_with(config)

    def start(self, config: Mapping[str, str]) -> None:
        super().start(config)
        self.poll_changes_seconds = self.settings["table.poll.interval.ms"] / 1000  # type: ignore[misc]
        self._database = Database(config)
        self._seen: list[str] = []

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        if self.settings["query"]:
            return [dict(self.config)]
        self._seen = self._tables()
        count = min(max_tasks, len(self._seen))
        return [{**self.config, _TABLES: ",".join(self._seen[number::count])} for number in range(count)]

    def changed(self) -> bool:
        try:
            return not self.settings["query"] and self._tables() != self._seen
        except ConnectError:
            return False  # it is unavailable: the tasks report that

    def _tables(self) -> list[str]:
        schema = self.settings["schema.pattern"]
        wanted = {*self.settings["table.whitelist"], *self.settings["table.include.list"]}
        unwanted = {*self.settings["table.blacklist"], *self.settings["table.exclude.list"]}
        try:
            with self._database.reading() as connection:
                names = table_names(self._database, connection, schema or None)
        except exc.DBAPIError as error:
            raise ConnectError(f"{self._database.address}: {short(error)}") from error
        full = {name: f"{schema}.{name}" if schema else name for name in names}
        missing = wanted - set(names) - set(full.values())
        if missing:
            raise ConnectError(
                f"Tables that are missing in {self._database.address}: {', '.join(sorted(missing))}"
            )
        return [
            shown
            for name, shown in full.items()
            if not ({name, shown} & unwanted) and (not wanted or {name, shown} & wanted)
        ]

    def stop(self) -> None:
        self._database.close()
