"""The PostgreSQL source's task, run as a worker does."""

from __future__ import annotations

from penstock.connect.connectors.postgres.source import PostgresSourceTask
from tests.connect.capture import Kept, RunningTask
from tests.connect.postgres.server import Database


class Running(RunningTask):
    def __init__(self, database: Database, kept: Kept | None = None, **settings: str) -> None:
        super().__init__(PostgresSourceTask(), config_of(database, **settings), kept)


def config_of(database: Database, **settings: str) -> dict[str, str]:
    """Settings as keywords have underscores for dots."""
    return {
        "database.hostname": "127.0.0.1",
        "database.port": str(database.server.port),
        "database.user": "penstock",
        "database.dbname": database.name,
        "topic.prefix": "shop",
        "slot.name": database.name,
        "status.update.interval.ms": "1000",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
