"""A push query whose first start comes to nothing.

Spark's 10 seconds cannot be had by asking: a stand-in says what Spark says then.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.sql.errors import SqlError
from penstock.sql.server.selecting import _MOST_STARTS, _Push

LATE = "Python worker failed to connect back."


class Frame:
    """Of a stream, and what writes it: the starts fail with these errors, None lets a row through."""

    def __init__(self, *errors: str | None) -> None:
        self.errors = list(errors)
        self.isActive = False
        self.error: Exception | None = None

    @property
    def writeStream(self) -> Frame:
        return self

    def outputMode(self, mode: str) -> Frame:
        return self

    def foreachBatch(self, take: Any) -> Frame:
        self.take = take
        return self

    def queryName(self, name: str) -> Frame:
        return self

    def option(self, name: str, value: str) -> Frame:
        return self

    def start(self) -> Frame:
        error = self.errors.pop(0)
        self.error = None if error is None else RuntimeError(error)
        self.isActive = error is None
        if error is None:
            self.take(self, 0)
        return self

    def toArrow(self) -> pa.Table:
        return pa.table({"n": [7]})

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.isActive = False


def rows(frame: Any) -> list[list[Any]]:
    push = _Push(frame, "append", 1, "a directory", lambda _: None)
    push.start()
    return list(push.rows())


@pytest.mark.promise(
    "sql",
    "A push query keeps its state in the server's storage; if its process starts too late it is started "
    "again; if it ends or cannot start, nothing is left behind",
)
def test_a_push_query_whose_process_was_late_is_started_again() -> None:
    frame = Frame(LATE, LATE, None)
    assert rows(frame) == [[7]]
    assert frame.errors == []


def test_a_push_query_is_not_started_again_for_ever_nor_for_other_reasons() -> None:
    frame = Frame(*[LATE] * (_MOST_STARTS + 1))
    with pytest.raises(SqlError, match="connect back"):
        rows(frame)
    assert len(frame.errors) == 1
    frame = Frame("no such thing", None)
    with pytest.raises(SqlError, match="no such thing"):
        rows(frame)
    assert frame.errors == [None]
