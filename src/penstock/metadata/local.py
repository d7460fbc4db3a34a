"""The metadata store of a single broker: a SQLite file beside the logs.

All SQL runs in one separate thread, so the event loop never waits for the disk. A write is on disk (WAL with
synchronous=FULL) before its call returns. Only one process uses the file at a time, so ephemeral nodes that
exist at startup belong to a session that has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from penstock.metadata.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    Set,
    StoreUnavailable,
    Versioned,
    WatchCallback,
)

T = TypeVar("T")

log = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS node (
    path TEXT PRIMARY KEY,
    value BLOB NOT NULL,
    version INTEGER NOT NULL,
    ephemeral INTEGER NOT NULL
) WITHOUT ROWID
"""
# Older versions stored topics in /topics.
_RENAMED_TOPICS = """
UPDATE node SET path = '/brokers' || path WHERE path > '/topics/' AND path < '/topics0'
"""


class LocalStore:
    def __init__(self, path: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")
        self._connection: sqlite3.Connection | None = None
        self._watches: list[tuple[str, WatchCallback]] = []
        self._closed = False

    async def get(self, path: str) -> Versioned | None:
        return await self._run(lambda db: _read(db, path))

    async def read(self, paths: Collection[str]) -> dict[str, Versioned]:
        def select(db: sqlite3.Connection) -> dict[str, Versioned]:
            found = ((path, _read(db, path)) for path in paths)
            return {path: node for path, node in found if node is not None}

        return await self._run(select)

    async def list(self, prefix: str) -> dict[str, Versioned]:
        # The children sort between "prefix/" and "prefix0", because "0" is the character after "/".
        low = prefix.rstrip("/")

        def select(db: sqlite3.Connection) -> dict[str, Versioned]:
            rows = db.execute(
                "SELECT path, value, version FROM node WHERE path > ? AND path < ? ORDER BY path",
                (low + "/", low + "0"),
            )
            return {path: (value, version) for path, value, version in rows}

        return await self._run(select)

    async def create(self, path: str, value: bytes, ephemeral: bool = False) -> None:
        await self.multi([Create(path, value, ephemeral)])

    async def compare_and_set(self, path: str, value: bytes, version: int) -> int:
        def write(db: sqlite3.Connection) -> int:
            with db:
                return _set(db, Set(path, value, version))

        new_version = await self._run(write)
        self._notify([path])
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, ops: Sequence[Op]) -> None:
        def write(db: sqlite3.Connection) -> None:
            with db:
                for op in ops:
                    _apply(db, op)

        await self._run(write)
        self._notify([op.path for op in ops if not isinstance(op, Check)])

    async def watch(self, prefix: str, callback: WatchCallback) -> None:
        self._watches.append((prefix.rstrip("/"), callback))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._watches.clear()
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        finally:
            self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreUnavailable(self._path, "is closed")

        def in_thread() -> T:
            try:
                return work(self._connect())
            except (sqlite3.Error, OSError) as error:
                raise StoreUnavailable(self._path, f"cannot be used: {error}") from error

        return await asyncio.get_running_loop().run_in_executor(self._thread, in_thread)

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
            connection = sqlite3.connect(self._path, check_same_thread=False)
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
                with connection:
                    connection.execute(_SCHEMA)
                    connection.execute("DELETE FROM node WHERE ephemeral")
                    connection.execute(_RENAMED_TOPICS)
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                with connection:
                    connection.execute("DELETE FROM node WHERE ephemeral")
                    connection.execute(_RENAMED_TOPICS)
            except sqlite3.Error as error:
                # A full disk must not keep a broker from stopping; the next start deletes them first.
                log.warning(
                    "%s: could not delete ephemeral nodes; the next start deletes them: %s", self._path, error
                )
            finally:
                connection.close()

    def _notify(self, paths: Sequence[str]) -> None:
        for prefix, callback in list(self._watches):
            changed = frozenset(path for path in paths if path == prefix or path.startswith(prefix + "/"))
            if changed:
                callback(changed)


def _read(db: sqlite3.Connection, path: str) -> Versioned | None:
    row = db.execute("SELECT value, version FROM node WHERE path = ?", (path,)).fetchone()
    return None if row is None else (row[0], row[1])


def _apply(db: sqlite3.Connection, op: Op) -> None:
    match op:
        case Create(path, value, ephemeral):
            try:
                db.execute("INSERT INTO node VALUES (?, ?, 0, ?)", (path, value, ephemeral))
            except sqlite3.IntegrityError:
                raise NodeExists(path) from None
        case Set():
            _set(db, op)
        case Delete(path, version):
            _check(db, path, version)
            db.execute("DELETE FROM node WHERE path = ?", (path,))
        case Check(path, version):
            _check(db, path, version)


def _set(db: sqlite3.Connection, op: Set) -> int:
    version = _check(db, op.path, op.version) + 1
    db.execute("UPDATE node SET value = ?, version = ? WHERE path = ?", (op.value, version, op.path))
    return version


def _check(db: sqlite3.Connection, path: str, version: int) -> int:
    row = db.execute("SELECT version FROM node WHERE path = ?", (path,)).fetchone()
    if row is None:
        raise NoNode(path)
    found: int = row[0]
    if version not in (ANY_VERSION, found):
        raise BadVersion(path)
    return found
