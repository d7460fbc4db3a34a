"""An engine of a test's own: a real broker, a registry, a catalog in memory in place of its topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from penstock.sql.catalog.catalog import Catalog, Record
from penstock.sql.language.parser import parse
from penstock.sql.results import Done, Result, Rows
from penstock.sql.server.engine import Engine
from tests.sql.written import Written

WAIT_SECONDS = 90.0


class MemoryLog:
    """A catalog's log that outlives engines, as its topic does."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []

    @property
    def catalog(self) -> Catalog:
        found = [Record.decode(key, value) for key, value in self.records]
        return Catalog().fold([each for each in found if each is not None])

    def write(self, records: Sequence[Record]) -> None:
        self.records += [each.encode() for each in records]


class Sql:
    """Runs texts of statements on an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def results(self, text: str, properties: Mapping[str, str] | None = None) -> list[Result]:
        return [self.engine.execute(each, properties or {}) for each in parse(text)]

    def run(self, text: str, properties: Mapping[str, str] | None = None) -> str:
        """The message of the last statement."""
        last = self.results(text, properties)[-1]
        assert isinstance(last, Done)
        return last.message

    def rows(self, text: str, properties: Mapping[str, str] | None = None) -> list[list[Any]]:
        last = self.results(text, properties)[-1]
        assert isinstance(last, Rows)
        return list(last.rows)

    def table(self, text: str) -> list[dict[str, Any]]:
        last = self.results(text)[-1]
        assert isinstance(last, Rows)
        names = [name for name, _ in last.columns]
        return [dict(zip(names, row, strict=True)) for row in last.rows]

    def eventually(self, text: str, expected: list[list[Any]], seconds: float = WAIT_SECONDS) -> None:
        """The rows in any order."""
        deadline = time.monotonic() + seconds
        wanted = sorted(expected, key=repr)
        with closing(Written(self.engine.settings.bootstrap)) as written:
            while True:
                seen, asked = written.ends(), time.monotonic()
                found = sorted(self.rows(text), key=repr)
                if found == wanted:
                    return
                assert time.monotonic() < deadline, f"{found} and not {wanted}; {self.rows('SHOW QUERIES')}"
                written.wait(seen, max(1, 3 * (time.monotonic() - asked)))


def wait_until(condition: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)
