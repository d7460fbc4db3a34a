"""Connections and cursors of PEP 249 over a SQL server's endpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import httpx

from penstock.sql.dbapi.errors import InterfaceError, NotSupportedError, OperationalError, error_of
from penstock.sql.dbapi.values import Read, bound, reader
from penstock.sql.shell.client import Line, Session, Unreachable

Description = tuple[str, str, None, None, None, None, None]
Row = tuple[Any, ...]


def connect(
    url: str = "http://127.0.0.1:8088",
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    ca: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> Connection:
    """Connects to a SQL server. `ca` is a PEM file; `properties` are those that SET would set. Raises
    OperationalError if no server responds, or it rejects the login.
    """
    login = f"{user}:{password or ''}" if user else None
    try:
        session = Session(url, dict(properties or {}), user=login, token=token, ca=ca)
        session.ask("/info")
    except Unreachable as error:
        raise OperationalError(str(error)) from error
    return Connection(session)


class Connection:
    """One user's session: SET and DEFINE apply to all of its cursors. For one thread."""

    def __init__(self, session: Session) -> None:
        self._session: Session | None = session
        self._cursors: set[Cursor] = set()

    @property
    def session(self) -> Session:
        if self._session is None:
            raise InterfaceError("the connection is closed")
        return self._session

    def cursor(self) -> Cursor:
        cursor = Cursor(self)
        self._cursors.add(cursor)
        return cursor

    def close(self) -> None:
        """Ends the queries of its cursors, too."""
        for cursor in list(self._cursors):
            cursor.close()
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def commit(self) -> None:
        """Does nothing: each statement is committed when its response arrives."""
        self.session  # noqa: B018 - InterfaceError if it is closed

    def rollback(self) -> None:
        raise NotSupportedError("each statement is committed when it is answered: nothing can be taken back")

    def closed(self, cursor: Cursor) -> None:
        self._cursors.discard(cursor)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Cursor:
    """The rows of one statement at a time, read on demand."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.description: list[Description] | None = None
        self.rowcount = -1
        self.messages: list[str] = []
        """What statements without rows have answered."""
        self.live = False
        """The rows come as records do, and need not end."""
        self._running = ExitStack()
        self._lines: Iterator[Line] | None = None
        self._reads: list[Read] = []
        self._in_rows = False
        self._closed = False

    def execute(self, operation: str, parameters: Mapping[str, Any] | None = None) -> Cursor:
        """Runs statements up to the first that returns rows, or all; `nextset` continues after it."""
        self._end()
        session = self._open()
        self.messages = []
        try:
            self._lines = self._running.enter_context(session.run(bound(operation, parameters)))
        except Unreachable as error:
            raise OperationalError(str(error)) from error
        self._to_rows()
        return self

    def executemany(self, operation: str, parameters: Sequence[Mapping[str, Any]]) -> None:
        for one in parameters:
            self.execute(operation, one)
            if self.description is not None:
                raise InterfaceError("executemany is for statements that give no rows")

    def fetchone(self) -> Row | None:
        self._open()
        if self.description is None:
            raise InterfaceError("no statement with rows was executed")
        while self._in_rows and (line := self._line()) is not None:
            if "row" in line:
                return tuple(read(each) for read, each in zip(self._reads, line["row"], strict=True))
            if "done" in line:
                self._in_rows = False
        return None

    def fetchmany(self, size: int | None = None) -> list[Row]:
        rows: list[Row] = []
        for _ in range(self.arraysize if size is None else size):
            row = self.fetchone()
            if row is None:
                break
            rows.append(row)
        return rows

    def fetchall(self) -> list[Row]:
        """All remaining rows. A push query has no last row: iterate over the cursor instead."""
        if self.live:
            raise InterfaceError("a query with EMIT CHANGES does not end: iterate over the cursor")
        return list(self)

    def nextset(self) -> bool | None:
        """Continues with the rows of the next statement. None if there is none."""
        while self.description is not None and self.fetchone() is not None:
            pass
        self._to_rows()
        return True if self.description is not None else None

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Has no effect: nothing needs to be prepared."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Has no effect: values are returned whole."""

    def close(self) -> None:
        """Ends a query that still runs."""
        self._end()
        self._closed = True
        self.connection.closed(self)

    def __iter__(self) -> Iterator[Row]:
        while (row := self.fetchone()) is not None:
            yield row

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> Session:
        if self._closed:
            raise InterfaceError("the cursor is closed")
        return self.connection.session

    def _to_rows(self) -> None:
        self.description, self.live, self._in_rows = None, False, False
        while (line := self._line()) is not None:
            if "columns" in line:
                columns = line["columns"]
                self.description = [(name, kind, None, None, None, None, None) for name, kind in columns]
                self._reads = [reader(kind) for _, kind in columns]
                self.live, self._in_rows = bool(line.get("live")), True
                return
            if "done" in line:
                self.messages.append(str(line["done"]))

    def _line(self) -> Line | None:
        """The next line of the response; None at its end."""
        if self._lines is None:
            return None
        try:
            line = next(self._lines, None)
        except (Unreachable, httpx.TransportError) as error:
            self._end()
            raise OperationalError(f"Lost connection to the SQL server: {error}") from error
        if line is None:
            self._end()
        elif "error" in line:
            self._end()
            raise error_of(line)
        return line

    def _end(self) -> None:
        self._lines = None
        self._in_rows = False
        self._running.close()
