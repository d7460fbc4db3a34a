"""The replication connection: starts, reads messages, and reports what is durable."""

from __future__ import annotations

import select

import psycopg2

from penstock.connect.connectors.postgres.pgoutput import Message, PgOutputDecoder
from penstock.connect.connectors.postgres.server import (
    connect_for_replication,
    translated,
    translated_errors,
)
from penstock.connect.connectors.postgres.settings import SourceSettings


class ReplicationStream:
    """From `start_lsn`, or from what the slot has confirmed, if that is later."""

    def __init__(self, settings: SourceSettings, start_lsn: int) -> None:
        self._what = f"Replication from slot {settings.slot!r} was interrupted"
        self._decoder = PgOutputDecoder()
        self._reported = 0
        self._connection = connect_for_replication(settings)
        try:
            quoted = settings.publication.replace('"', '""')
            options = {"proto_version": "1", "publication_names": f'"{quoted}"'}
            if self._connection.server_version >= 140000:
                options["messages"] = "true"
            with translated_errors(f"Cannot start replication from slot {settings.slot!r}"):
                self._cursor = self._connection.cursor()
                self._cursor.start_replication(
                    settings.slot,
                    start_lsn=start_lsn,
                    options=options,
                    decode=False,
                    status_interval=settings.values["status.update.interval.ms"] / 1000,
                )
        except BaseException:
            self._connection.close()
            raise

    def read(self) -> tuple[Message, int] | None:
        """The next message and its LSN; None if the server has sent no other yet."""
        try:
            message = self._cursor.read_message()
        except psycopg2.Error as error:
            raise translated(self._what, error) from error
        if message is None:
            return None
        return self._decoder.decode(message.payload), message.data_start

    @property
    def wal_end(self) -> int:
        """The LSN up to which the server has decoded."""
        return int(self._cursor.wal_end)

    def wait(self, seconds: float) -> None:
        """Waits until the server sends something."""
        select.select([self._connection], [], [], seconds)

    def confirm(self, lsn: int) -> None:
        if lsn > self._reported:
            with translated_errors(self._what):
                self._cursor.send_feedback(  # type: ignore[no-untyped-call]
                    flush_lsn=lsn, write_lsn=lsn, apply_lsn=lsn, force=True
                )
            self._reported = lsn

    def close(self) -> None:
        self._connection.close()
