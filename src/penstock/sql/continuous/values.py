"""Converts the values of INSERT INTO … VALUES to the types of their columns; reports the first invalid one.

Spark computes everything that is not plain (`literals`) in one query: a table of constants, with each
distinct value once. If that fails, halves are tried until one value is left, whose error is reported. A value
that is valid but not constant (`uuid()`) is computed for each of its occurrences, many of them in one SELECT
list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from penstock.sql.continuous.preparing import spark_errors
from penstock.sql.continuous.spark_queries import analysed
from penstock.sql.errors import Clash, Place, SqlError
from penstock.sql.language.literals import UNSURE, reader
from penstock.sql.language.statements import Column, InsertValues
from penstock.sqltext.spark_types import fits, from_words, words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

_CONSTANTS = 10_000
"""Values in one table of constants; more may be more than Spark's parser has memory for."""
_LISTED = 250
"""Values in the list of one SELECT; more take long to compile."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """A value that Spark computes."""

    text: str
    column: Column
    start: int
    """The position in the statement's text; of the first occurrence."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """The rows and columns of its occurrences."""


def computed(session: SparkSession, statement: InsertValues, columns: Sequence[Column]) -> list[list[Any]]:
    """The rows, with values for Arrow."""
    return _Values(session, statement, columns).computed()


class _Values:
    def __init__(self, session: SparkSession, statement: InsertValues, columns: Sequence[Column]) -> None:
        self._session = session
        self._statement = statement
        self._columns = columns
        self._rows: list[list[Any]] = [[None] * len(columns) for _ in statement.rows]

    def computed(self) -> list[list[Any]]:
        cells = self._not_plain()
        changing = [
            replace(each, start=self._statement.rows[row][column][0], places=[(row, column)])
            for each in self._compute(cells, constants=True)
            for row, column in each.places
        ]
        self._compute(sorted(changing, key=lambda each: each.start), constants=False)
        return self._rows

    def _not_plain(self) -> list[_Cell]:
        """Takes what is plain; the rest, a text once for each type, in the order in which it is written."""
        conf = self._session.conf
        utc = conf.get("spark.sql.session.timeZone") == "UTC"
        utc = utc and conf.get("spark.sql.timestampType") == "TIMESTAMP_LTZ"
        readers = [reader(each.type, utc=utc) for each in self._columns]
        text = str(self._statement.text)
        cells: dict[tuple[str, str], _Cell] = {}
        for row, spans in enumerate(self._statement.rows):
            for at, (start, end) in enumerate(spans):
                written, column = text[start:end], self._columns[at]
                value = readers[at](written)
                if value is UNSURE:
                    cell = cells.setdefault((written, column.type), _Cell(written, column, start))
                    cell.places.append((row, at))
                else:
                    self._rows[row][at] = value
        return list(cells.values())

    def _compute(self, cells: list[_Cell], *, constants: bool) -> list[_Cell]:
        """SqlError for the first that is wrong. What is left is given when one is right but no constant."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        most = _CONSTANTS if constants else _LISTED
        waiting = [cells[at : at + most] for at in range(0, len(cells), most)][::-1]
        while waiting:
            some = waiting.pop()
            try:
                found = self._constants(some) if constants else self._listed(some)
            except (PySparkException, Py4JError):
                if len(some) > 1:
                    waiting += [some[len(some) // 2 :], some[: len(some) // 2]]
                    continue
                found = [(self._alone(some[0]), None)]
                if constants:
                    return [*some, *(each for more in reversed(waiting) for each in more)]
            for cell, (value, given) in zip(some, found, strict=True):
                if given is not None and not _may_become(given, cell.column.type):
                    value = self._alone(cell)
                for row, column in cell.places:
                    self._rows[row][column] = value
        return []

    def _constants(self, cells: list[_Cell]) -> list[tuple[Any, str | None]]:
        """Values, and the types that they are written in. A type has two columns of the table."""
        kinds: dict[str, list[_Cell]] = {}
        for cell in cells:
            kinds.setdefault(cell.column.type, []).append(cell)
        rows = (
            ", ".join("NULL, NULL" if cell is None else _cast(cell) for cell in row)
            for row in zip_longest(*kinds.values())
        )
        names = ", ".join(f"v{at}, t{at}" for at in range(len(kinds)))
        found = analysed(
            self._session, f"SELECT * FROM VALUES ({'), ('.join(rows)}) AS constants({names})"
        ).toArrow()
        values: dict[tuple[str, str], tuple[Any, str | None]] = {}
        for at, (kind, some) in enumerate(kinds.items()):
            pairs = zip(found[f"v{at}"].to_pylist(), found[f"t{at}"].to_pylist())
            values |= {(cell.text, kind): pair for cell, pair in zip(some, pairs)}
        return [values[cell.text, cell.column.type] for cell in cells]

    def _listed(self, cells: list[_Cell]) -> list[tuple[Any, str | None]]:
        found = analysed(self._session, f"SELECT {', '.join(map(_cast, cells))}").toArrow()
        row = [column[0].as_py() for column in found.columns]
        return list(zip(row[::2], row[1::2]))

    def _alone(self, cell: _Cell) -> Any:
        """The value, or its error with the position."""
        text, column = cell.text, cell.column
        place = Place.of(self._statement.text, cell.start)

        def place_at(offset: int) -> Place:
            return Place.of(self._statement.text, cell.start + max(0, offset - len("SELECT ")))

        with spark_errors(f"SELECT {text}", place_at, {}, self._session):
            given = analysed(self._session, f"SELECT {text} AS c").schema[0].dataType
        if not may_become(given, from_words(column.type)):
            raise Clash(f"`{column.name}` is {column.type}, and {text} is {words(given)}", place)
        try:
            with spark_errors(f"SELECT {text}", lambda offset: place, {}, self._session):
                found = analysed(self._session, f"SELECT CAST({text} AS {column.type}) AS c").toArrow()
        except SqlError as error:
            said = error.message.partition(". Use `")[0]
            raise Clash(
                f"`{column.name}` is {column.type}, and {text} cannot be one: {said}", place
            ) from error
        return found["c"][0].as_py()


def _cast(cell: _Cell) -> str:
    return f"CAST({cell.text} AS {cell.column.type}), typeof({cell.text})"


def _may_become(given: str, wanted: str) -> bool:
    try:
        return may_become(from_words(given), from_words(wanted))
    except ValueError:  # an interval or the like, which no column is
        return False


def may_become(given: DataType, wanted: DataType) -> bool:
    """Whether a literal is acceptable for a type: 1 for a double, '2025-01-01' for a date."""
    from pyspark.sql import types as T

    if fits(given, wanted):
        return True
    if isinstance(given, T.StringType):
        return isinstance(wanted, T.DateType | T.TimestampType | T.TimestampNTZType | T.BinaryType)
    if isinstance(given, T.IntegralType):
        return isinstance(wanted, T.NumericType)
    if isinstance(given, T.DecimalType | T.DoubleType | T.FloatType):
        return isinstance(wanted, T.DecimalType | T.DoubleType | T.FloatType)
    if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
        return may_become(given.elementType, wanted.elementType)
    if isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
        return may_become(given.keyType, wanted.keyType) and may_become(given.valueType, wanted.valueType)
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType) and len(given) == len(wanted):
        return all(may_become(one.dataType, other.dataType) for one, other in zip(given, wanted, strict=True))
    return isinstance(given, T.TimestampType) and isinstance(wanted, T.TimestampNTZType)
