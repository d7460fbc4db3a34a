"""The statements of a source: they select only rows after an offset, in the order of offsets.

`timestamp+incrementing`, `incrementing` and `timestamp` go by columns; `bulk` reads everything each time.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from penstock.connect.connectors.sql.catalog import Table
from penstock.connect.connectors.sql.column_types import resolution_of
from penstock.connect.connectors.sql.database import Database

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


class Position(NamedTuple):
    """The last row that was read."""

    timestamp: datetime.datetime | None = None
    incrementing: int | None = None

    def to_offset(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.incrementing is not None:
            found["incrementing"] = self.incrementing
        if self.timestamp is not None:
            found["timestamp"] = (self.timestamp - _EPOCH) // _MILLISECOND
            found["timestamp_nanos"] = self.timestamp.microsecond * 1000
        return found

    @classmethod
    def of(cls, offset: Mapping[str, Any]) -> Position:
        timestamp = None
        if offset.get("timestamp") is not None:
            timestamp = _EPOCH + int(offset["timestamp"]) * _MILLISECOND
            nanos = offset.get("timestamp_nanos")
            if nanos is not None:
                timestamp = timestamp.replace(microsecond=int(nanos) // 1000)
        incrementing = offset.get("incrementing")
        return cls(timestamp, None if incrementing is None else int(incrementing))


@dataclass(frozen=True, slots=True)
class Question:
    """A statement with its values."""

    text: str
    values: tuple[Any, ...]


class TableQuery:
    """Builds the statements for one table, or for the text of a query."""

    def __init__(
        self,
        database: Database,
        table: Table,
        *,
        query: str | None,
        incrementing: str | None,
        timestamps: tuple[str, ...],
        zone: ZoneInfo,
    ) -> None:
        self._database = database
        self._zone = zone
        quoted = database.quoted
        if query is None:
            self._from = quoted(table.name, table.schema)
        else:
            text = query.replace("%", "%%") if database.mark == "%s" else query
            self._from = f"({text}) penstock_query"
        self._columns = ", ".join(quoted(column.name) for column in table.columns)
        self._incrementing = quoted(incrementing) if incrementing else None
        kinds = [column.type for name in timestamps if (column := table.column(name)) is not None]
        self._aware = any(getattr(kind, "timezone", False) for kind in kinds)
        steps = [resolution_of(kind, database.dialect) for kind in kinds]
        self._step = max(steps, default=datetime.timedelta(microseconds=1))
        self._timestamp = self._timestamp_expression([quoted(name) for name in timestamps])

    def _timestamp_expression(self, names: list[str]) -> str | None:
        if not names:
            return None
        if self._database.dialect == "sqlite":
            # Timestamps as text have several forms: make them comparable, to the millisecond.
            names = [f"strftime('%Y-%m-%d %H:%M:%f', {name})" for name in names]
        return names[0] if len(names) == 1 else f"COALESCE({', '.join(names)})"

    def question(self, after: Position, until: datetime.datetime, most: int | None) -> Question:
        """Rows after a position, with timestamps before `until`, rounded down to the column's resolution."""
        mark = self._database.mark
        conditions, values = [], []
        order = [each for each in (self._timestamp, self._incrementing) if each]
        if self._timestamp:
            conditions.append(f"{self._timestamp} < {mark}")
            values.append(self._bound(self._begun(until)))
        if self._timestamp and after.timestamp is not None:
            last = self._bound(after.timestamp)
            if self._incrementing and after.incrementing is not None:
                newer, same = f"{self._timestamp} > {mark}", f"{self._timestamp} = {mark}"
                conditions.append(f"({newer} OR ({same} AND {self._incrementing} > {mark}))")
                values += [last, last, after.incrementing]
            else:
                conditions.append(f"{self._timestamp} > {mark}")
                values.append(last)
        elif self._incrementing and not self._timestamp and after.incrementing is not None:
            conditions.append(f"{self._incrementing} > {mark}")
            values.append(after.incrementing)
        text = f"SELECT {self._columns} FROM {self._from}"
        if conditions:
            text += f" WHERE {' AND '.join(conditions)}"
        if order:
            text += f" ORDER BY {', '.join(order)}"
        if most is not None:
            text += f" LIMIT {most}"
        return Question(text, tuple(values))

    def _begun(self, until: datetime.datetime) -> datetime.datetime:
        """The start of the current second (or unit of the column's resolution), which may get more rows."""
        local = until.astimezone(self._zone)
        # Local time of the same time zone, which may be put forward or back.
        passed = local - local.replace(hour=0, minute=0, second=0, microsecond=0)
        return (local - passed % self._step).replace(fold=local.fold)

    def _bound(self, moment: datetime.datetime) -> Any:
        if self._database.dialect == "sqlite":
            local = moment.astimezone(self._zone).replace(tzinfo=None)
            return local.isoformat(" ", "milliseconds")
        if self._aware:
            return moment
        return moment.astimezone(self._zone).replace(tzinfo=None)
