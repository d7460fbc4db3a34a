"""A SQL server as `penstock sql serve` runs it, without Spark: its engine writes down what it is to run.

python -m tests.browser.sql_process BOOTSTRAP READY_FILE EXECUTED_FILE
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.sql.language.statements import Statement
from penstock.sql.results import Done, Result
from penstock.sql.server.main import ServerSettings, serve
from penstock.sql.settings import EngineSettings


class Writing:
    """An engine that carries nothing out."""

    def __init__(self, executed: Path) -> None:
        self._executed = executed

    def execute(
        self, statement: Statement, properties: Mapping[str, str], *, user: str | None = None
    ) -> Result:
        with self._executed.open("a") as file:
            file.write(f"{type(statement).__name__}\n")
        return Done("written down")

    def start(self) -> None: ...
    def take_over(self) -> None: ...
    def give_up(self, *, deposed: bool = False) -> None: ...
    def stop(self) -> None: ...

    def away(self) -> str | None:
        return None

    def describe_queries(self, user: str | None = None) -> list[dict[str, Any]]:
        return []

    def describe_query(self, query_id: str, user: str | None = None) -> dict[str, Any] | None:
        return None

    def describe_relations(self, user: str | None = None) -> list[dict[str, Any]]:
        return []

    def topics(self, user: str | None = None) -> list[str]:
        return []


def main(bootstrap: str, ready_file: str, executed: str) -> int:
    settings = ServerSettings(EngineSettings(bootstrap, None, ""), port=0, replication_factor=1)
    return serve(settings, ready_file=ready_file, engine=lambda *_: Writing(Path(executed)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
