"""The table of offsets that a sink updates in the same transaction as its data.

A row has the offset up to which the records of one partition are in the database. It is locked first: if two
tasks have the same partition (one of them has lost it and does not know yet), each sees what the other wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import exc
from sqlalchemy.engine import Connection

from penstock.connect.api import TopicPartition
from penstock.connect.connectors.sql.catalog import find_table
from penstock.connect.connectors.sql.database import Database

NONE_YET = -1


class OffsetTable:
    def __init__(self, database: Database, name: str, connector: str) -> None:
        self._database = database
        self._name, self._connector = name, connector
        self._table = database.quoted(name)
        self._mark = database.mark

    def create(self) -> None:
        text = "VARCHAR(249)"
        with self._database.transaction() as connection:
            if find_table(self._database, connection, self._name) is not None:
                return
        try:
            with self._database.transaction() as connection:
                self._database.execute(
                    connection,
                    f"CREATE TABLE {self._table} (connector {text} NOT NULL, topic {text} NOT NULL, "
                    "part INTEGER NOT NULL, next_offset BIGINT NOT NULL, "
                    "PRIMARY KEY (connector, topic, part))",
                )
        except exc.DBAPIError:
            # Another task has inserted it.
            with self._database.transaction() as connection:
                if find_table(self._database, connection, self._name) is None:
                    raise

    def open(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The next offset of each partition that has one; inserts a row without an offset for the others."""
        found = {}
        for place in places:
            try:
                with self._database.transaction() as connection:
                    known = self._read(connection, place)
                    if known is None:
                        self._insert(connection, place, NONE_YET)
            except exc.IntegrityError:
                with self._database.transaction() as connection:
                    known = self._read(connection, place)
            if known is not None and known != NONE_YET:
                found[place] = known
        return found

    def lock(self, connection: Connection, place: TopicPartition) -> int:
        """The stored offset; its row is locked until the transaction ends."""
        found = self._read(connection, place, lock=self._database.dialect in ("postgresql", "mysql"))
        if found is None:
            self._insert(connection, place, NONE_YET)
            return NONE_YET
        return found

    def store(self, connection: Connection, place: TopicPartition, offset: int) -> None:
        mark = self._mark
        connection.exec_driver_sql(
            f"UPDATE {self._table} SET next_offset = {mark} WHERE connector = {mark} AND topic = {mark} "
            f"AND part = {mark}",
            (offset, self._connector, *place),
        )

    def alter(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        with self._database.transaction() as connection:
            for place, offset in offsets.items():
                self.lock(connection, place)
                self.store(connection, place, NONE_YET if offset is None else offset)

    def _read(self, connection: Connection, place: TopicPartition, *, lock: bool = False) -> int | None:
        mark = self._mark
        return connection.exec_driver_sql(
            f"SELECT next_offset FROM {self._table} WHERE connector = {mark} AND topic = {mark} "
            f"AND part = {mark}{' FOR UPDATE' if lock else ''}",
            (self._connector, *place),
        ).scalar()

    def _insert(self, connection: Connection, place: TopicPartition, offset: int) -> None:
        mark = self._mark
        connection.exec_driver_sql(
            f"INSERT INTO {self._table} (connector, topic, part, next_offset) "
            f"VALUES ({mark}, {mark}, {mark}, {mark})",
            (self._connector, *place, offset),
        )
