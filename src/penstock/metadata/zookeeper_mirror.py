"""A mirror of ZooKeeper's tree, with a watch on the children of each directory and on each node.

A walk reads the whole tree after each connect. Afterwards, when a watch fires, its directory or node is read
again, until that succeeds or a later walk reads everything. All work runs on the event loop; kazoo's threads
only report. Changes are announced to watchers when all pending reads are done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from penstock.metadata.layout import TOPICS, is_topic_path
from penstock.metadata.store import StoreUnavailable, Versioned, WatchCallback
from penstock.metadata.zookeeper_names import DIRECTORIES, here, is_below, there

_RETRY_SECONDS = 0.2
_MOST_READS = 20  # in a row before the changes are announced, even if topics are still being created

log = logging.getLogger(__name__)

Ask = Callable[..., Coroutine[Any, Any, Any]]
"""`ask(call, *args)` returns the response of a kazoo call, or raises StoreUnavailable on timeout."""


class Mirror:
    """`nodes` is the tree as of the last response; it may lag behind, but never goes back."""

    def __init__(self, client: KazooClient, ask: Ask) -> None:
        self._client = client
        self._ask = ask
        self.nodes: dict[str, Versioned] = {}
        self._watches: list[tuple[str, WatchCallback]] = []
        self._walk = 0  # the number of the latest walk; watches of earlier ones are ignored
        self._watched: tuple[int, set[str]] = (0, set())  # a walk, and the paths that have a watch in it
        self.unannounced: set[str] = set()  # changed in `nodes`, but not yet announced to watchers
        self._fired: set[str] = set()  # directories and nodes whose watch has fired in this walk
        self._created: dict[str, int] = {}  # the transaction that created a node, if known
        self._topics_listed = -1  # the version of the topic list that was read last
        self._reading = asyncio.Lock()  # one read pass at a time, with one announcement at its end
        self._rereading: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def close(self) -> None:
        self._closed = True
        self._watches.clear()
        if self._rereading is not None:
            self._rereading.cancel()

    def watch(self, prefix: str, callback: WatchCallback) -> None:
        self._watches.append((prefix.rstrip("/"), callback))

    # what this process has written

    def wrote(self, path: str, node: Versioned | None) -> None:
        """Applies a change of this process to the mirror immediately; its watch fires later and finds nothing
        new.

        Responses arrive in the order of the requests, so earlier reads are never newer than this change, and
        later reads never older.
        """
        if node is None:
            self.nodes.pop(path, None)
        else:
            self.nodes[path] = node
        if node is None or node[1] == 0:
            self._created.pop(path, None)

    def notify(self, paths: Sequence[str]) -> None:
        if not paths or self._closed:
            return
        for prefix, callback in list(self._watches):
            changed = frozenset(path for path in paths if path == prefix or path.startswith(prefix + "/"))
            if changed:
                callback(changed)

    # reading everything

    def disconnected(self) -> None:
        """kazoo has dropped all watches: ignore those that still fire."""
        self._walk += 1

    async def walk(self) -> None:
        """Read everything and set all watches. KazooException or StoreUnavailable if that fails."""
        self._loop = asyncio.get_running_loop()
        self._walk += 1
        if self._rereading is not None:
            self._rereading.cancel()
        async with self._reading:
            self._fired.clear()
            await self._ask(self._client.sync_async, "/")
            await self._read_paths(set(DIRECTORIES), self._walk)
        self._reread_soon()

    async def catch_up(self) -> None:
        """Waits until `nodes` has every change that was made before the call."""
        await self._ask(self._client.sync_async, "/")
        paths = {*await self.names(), *self.nodes}
        # The watches are not touched; this only does not wait until they fire.
        async with self._reading:
            try:
                await self._all(self._refresh(path) for path in paths)
                await self._read_paths(set(), self._walk)
            except BaseException:
                self._fired.add(TOPICS)  # the next read pass announces what was read
                self._reread_soon()
                raise

    async def names(self) -> Sequence[str]:
        children = await asyncio.gather(
            *(self._ask(self._client.get_children_async, directory) for directory in DIRECTORIES)
        )
        return [
            path
            for directory, names in zip(DIRECTORIES, children, strict=True)
            for child in names
            if (path := here(directory, child)) is not None
        ]

    async def get(self, path: str) -> Versioned | None:
        """Reads a node from the connected server, which may be behind other servers."""
        try:
            value, stat = await self._ask(self._client.get_async, there(path))
        except NoNodeError:
            return None
        return value, stat.version

    async def _refresh(self, path: str) -> None:
        try:
            value, stat = await self._ask(self._client.get_async, there(path))
        except NoNodeError:
            self._read(path, None)
        else:
            self._read(path, (value, stat.version), stat.czxid)

    # reading what has changed

    async def _read_paths(self, paths: set[str], walk: int) -> None:
        """Read these directories and nodes, and announce all changes together.

        Readers must not see a change without the topics that were created before it: requests for an existing
        topic would fail. So the topics are read again if any were created since they were listed. Readers
        must also not see a topic with the leaders of a former one of the same name (`_of_former_topics`). A
        topic that is missing in the mirror is not necessarily deleted; readers must take care of that
        themselves.
        """
        for _ in range(_MOST_READS):
            directories = paths.intersection(DIRECTORIES)
            try:
                await self._all(
                    [
                        *(self._read_node(path, walk) for path in paths - directories),
                        *(self._read_directory(path, walk) for path in directories),
                    ]
                )
                # Watches and responses arrive from different threads, and a watch may be late.
                topics = await self._ask(self._client.exists_async, TOPICS)
            except BaseException:
                if walk == self._walk:
                    self._fired |= paths
                raise  # changes are announced only when all reads have succeeded
            paths = self._of_former_topics()
            if topics is not None and topics.cversion != self._topics_listed:
                paths.add(TOPICS)
            if not paths:
                break
        changed = list(self.unannounced)
        self.unannounced.clear()
        self.notify(changed)

    def _of_former_topics(self) -> set[str]:
        """Nodes that are older than their topic: the topic was recreated since they were read, and their
        events have not arrived yet."""
        topics = {path: self._created.get(path, -1) for path in self.unannounced if is_topic_path(path)}
        if not topics:
            return set()
        return {
            path
            for path in self.nodes
            if self._created.get(path, -1) < topics.get(path.rpartition("/state/")[0], -1)
        }

    async def _read_directory(self, directory: str, walk: int) -> None:
        def fired(event: WatchedEvent) -> None:
            if event.type != EventType.NONE:
                self._later(directory, walk)

        children, stat = await self._ask(self._client.get_children_async, directory, fired, True)
        if directory == TOPICS:
            self._topics_listed = stat.cversion
        found = {path for child in children if (path := here(directory, child)) is not None}
        known = self._mirrored(walk)
        for path in [path for path in self.nodes if is_below(path, directory) and path not in found]:
            known.discard(path)
            self._read(path, None)
        await self._all(self._read_node(path, walk) for path in found if path not in known)

    async def _read_node(self, path: str, walk: int) -> None:
        known = self._mirrored(walk)
        known.add(path)

        def fired(event: WatchedEvent) -> None:
            if event.type != EventType.NONE:
                self._later(path, walk)

        try:
            value, stat = await self._ask(self._client.get_async, there(path), fired)
        except NoNodeError:
            known.discard(path)
            self._read(path, None)
        except BaseException:
            known.discard(path)  # it may have no watch
            raise
        else:
            self._read(path, (value, stat.version), stat.czxid)

    def _read(self, path: str, node: Versioned | None, created: int = -1) -> None:
        """Sets the content of a node; `_read_paths` announces it."""
        if self.nodes.get(path) != node:
            self.wrote(path, node)
            self.unannounced.add(path)
        if node is not None:
            self._created[path] = created

    async def _all(self, reads: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Runs all reads to their end before the first error is raised."""
        for outcome in await asyncio.gather(*reads, return_exceptions=True):
            if outcome is not None:
                raise outcome

    def _mirrored(self, walk: int) -> set[str]:
        """The paths that have a watch in this walk."""
        if walk > self._watched[0]:
            self._watched = (walk, set())
        return self._watched[1] if walk == self._watched[0] else set()

    # fired watches

    def _later(self, path: str, walk: int) -> None:
        """Called in kazoo's thread when a watch fires: schedule the read on the event loop, unless a new walk
        starts or the store closes."""
        loop = self._loop

        def start() -> None:
            if walk == self._walk:
                self._fired.add(path)
                self._reread_soon()

        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(start)

    def _reread_soon(self) -> None:
        if self._fired and self._rereading is None and not self._closed:
            self._rereading = asyncio.ensure_future(self._reread())
            self._rereading.add_done_callback(self._reread_done)

    def _reread_done(self, task: asyncio.Task[None]) -> None:
        self._rereading = None
        self._reread_soon()

    async def _reread(self) -> None:
        """A watch fires only once, so the read is retried until it succeeds or a later walk reads
        everything."""
        while self._fired:
            try:
                async with self._reading:
                    paths, self._fired = self._fired, set()
                    await self._read_paths(paths, self._walk)
            except (KazooException, StoreUnavailable) as error:
                self._complain(error)
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception:  # the border: a failing watcher must not stop the mirror
                log.exception("could not follow a metadata change")
                await asyncio.sleep(_RETRY_SECONDS)

    def _complain(self, error: Exception) -> None:
        """Logs an error, except a lost connection, which is logged elsewhere."""
        if self._client.connected and not self._closed:
            log.warning("re-reading a metadata change: %s", error)
