"""The MySQL source's task, run as a worker does."""

from __future__ import annotations

from penstock.connect.connectors.mysql.source import MySqlSourceTask
from tests.connect.capture import Kept, RunningTask
from tests.connect.mysql.conftest import Database


class Running(RunningTask):
    def __init__(self, database: Database, kept: Kept | None = None, **settings: str) -> None:
        super().__init__(MySqlSourceTask(), config_of(database, **settings), kept)


def config_of(database: Database, **settings: str) -> dict[str, str]:
    """Settings as keywords have underscores for dots."""
    return {
        "database.hostname": "127.0.0.1",
        "database.port": str(database.server.port),
        "database.user": "root",
        "database.include.list": database.name,
        "topic.prefix": "shop",
        "include.schema.changes": "false",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
