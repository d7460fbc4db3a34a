"""The mirror of ZooKeeper's tree catches up with every change, also when reads are left unanswered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent

from penstock.metadata.store import StoreUnavailable
from penstock.metadata.zookeeper import SessionState, ZooKeeperStore
from penstock.metadata.zookeeper_names import DIRECTORIES

Watch = Callable[[WatchedEvent], None]


class Answer:
    def __init__(self, value: Any = None, exception: Exception | None = None, lost: bool = False) -> None:
        self.value, self.exception, self._lost = value, exception, lost

    def rawlink(self, callback: Callable[[Answer], None]) -> None:
        if not self._lost:
            callback(self)


class Server:
    """ZooKeeper as kazoo shows it. `lose` has the reads that get no answer, as often as each is in it."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.lose: list[str] = []
        self.connected = True
        self.late: set[str] = set()  # their events are still on the way
        self._transactions = 0
        self._created_in: dict[str, int] = {}
        self._created: dict[str, int] = {}  # how often the children of a directory have changed
        self._watches: dict[str, list[Watch]] = {}

    def put(self, path: str, value: bytes) -> None:
        known = self.nodes.get(path)
        self.nodes[path] = (value, 0 if known is None else known[1] + 1)
        self._transactions += 1
        if known is None:
            self._created_in[path] = self._transactions
            self._children_changed(path)
        else:
            self._fire(path, EventType.CHANGED)

    def remove(self, path: str) -> None:
        del self.nodes[path]
        self._fire(path, EventType.DELETED)
        self._children_changed(path)

    def _children_changed(self, path: str) -> None:
        directory = path.rpartition("/")[0] or "/"
        self._created[directory] = self._created.get(directory, 0) + 1
        self._fire(directory, EventType.CHILD)

    def _stat(self, directory: str) -> SimpleNamespace:
        return SimpleNamespace(cversion=self._created.get(directory, 0))

    def reconnect(self) -> None:
        """Watches are gone, and what happens until it is connected again is not told."""
        self._watches.clear()

    def _fire(self, path: str, kind: str) -> None:
        if path in self.late:
            return
        for watch in self._watches.pop(path, []):
            watch(WatchedEvent(kind, KeeperState.CONNECTED, path))

    def _is_lost(self, path: str) -> bool:
        if path in self.lose:
            self.lose.remove(path)
            return True
        return False

    # as KazooClient

    def sync_async(self, path: str) -> Answer:
        return Answer(path, lost=self._is_lost("sync"))

    def get_async(self, path: str, watch: Watch | None = None) -> Answer:
        if self._is_lost(path):
            return Answer(lost=True)
        if path not in self.nodes:
            return Answer(exception=NoNodeError())
        if watch is not None:
            self._watches.setdefault(path, []).append(watch)
        value, version = self.nodes[path]
        return Answer((value, SimpleNamespace(version=version, czxid=self._created_in.get(path, 0))))

    def exists_async(self, path: str) -> Answer:
        return Answer(self._stat(path), lost=self._is_lost("exists"))

    def get_children_async(self, path: str, watch: Watch | None = None, include_data: bool = False) -> Answer:
        if self._is_lost(path):
            return Answer(lost=True)
        if watch is not None:
            self._watches.setdefault(path, []).append(watch)
        children = [
            name.rpartition("/")[2] for name in self.nodes if (name.rpartition("/")[0] or "/") == path
        ]
        return Answer((children, self._stat(path)) if include_data else children)

    def stop(self) -> None:
        pass

    close = stop


class Mirror:
    def __init__(self, store: ZooKeeperStore) -> None:
        self.store = store
        self.heard: list[frozenset[str]] = []
        self._changed = asyncio.Event()

    def changed(self, paths: frozenset[str]) -> None:
        self.heard.append(paths)
        self._changed.set()

    async def shows(self, path: str, value: bytes | None) -> None:
        """Whoever watches was called with the path when the mirror had this value."""

        def shown() -> bool:
            node = self.store.nodes.get(path)
            return (None if node is None else node[0]) == value and any(path in paths for paths in self.heard)

        async with asyncio.timeout(30):
            while not shown():
                self._changed.clear()
                await self._changed.wait()
        self.heard.clear()


def with_mirror(work: Callable[[Server, Mirror], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        monkeypatch.setattr("penstock.metadata.zookeeper._RETRY_SECONDS", 0.01)
        monkeypatch.setattr("penstock.metadata.zookeeper_mirror._RETRY_SECONDS", 0.01)
        server = Server()
        for directory in DIRECTORIES:
            if directory != "/":
                server.nodes[f"{directory}/first"] = (b"1", 0)
        monkeypatch.setattr("penstock.metadata.zookeeper.KazooClient", lambda hosts, **options: server)
        store = ZooKeeperStore("127.0.0.1:1", connection_timeout_ms=50)
        await store._walk()
        store._state, store._opened = SessionState.CONNECTED, True
        mirror = Mirror(store)
        await store.watch("/", mirror.changed)
        try:
            await work(server, mirror)
        finally:
            await store.close()

    asyncio.run(run())


@pytest.mark.promise(
    "reassignment",
    "A broker follows a change in ZooKeeper even if ZooKeeper does not respond to the read: the broker "
    "retries until it succeeds",
)
def test_a_change_whose_read_gets_no_answer_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(server: Server, mirror: Mirror) -> None:
        server.lose = ["/brokers/topics/first"] * 3
        server.put("/brokers/topics/first", b"2")
        await mirror.shows("/brokers/topics/first", b"2")
        server.put("/brokers/topics/first", b"3")  # and its watch is there again
        await mirror.shows("/brokers/topics/first", b"3")

    with_mirror(run, monkeypatch)


@pytest.mark.promise(
    "reassignment",
    "A broker follows a change in ZooKeeper even if ZooKeeper does not respond to the read: the broker "
    "retries until it succeeds",
)
def test_a_new_node_is_found_when_the_reads_get_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(server: Server, mirror: Mirror) -> None:
        server.lose = ["/brokers/topics", "/brokers/topics/second", "/brokers/topics"]
        server.put("/brokers/topics/second", b"1")
        await mirror.shows("/brokers/topics/second", b"1")
        server.put("/brokers/topics/second", b"2")
        await mirror.shows("/brokers/topics/second", b"2")
        server.lose = ["/brokers/topics/second", "/brokers/topics"]
        server.remove("/brokers/topics/second")
        await mirror.shows("/brokers/topics/second", None)
        server.put("/brokers/topics/second", b"3")
        await mirror.shows("/brokers/topics/second", b"3")

    with_mirror(run, monkeypatch)


@pytest.mark.promise(
    "reassignment",
    "A broker follows a change in ZooKeeper even if ZooKeeper does not respond to the read: the broker "
    "retries until it succeeds",
)
def test_what_was_read_is_announced_though_another_read_got_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(server: Server, mirror: Mirror) -> None:
        # Changed without a watch, as while another connection was there.
        server.nodes["/brokers/topics/first"] = (b"2", 1)
        server.lose = ["/brokers/ids/first"]
        with pytest.raises(StoreUnavailable):
            await mirror.store.catch_up()
        await mirror.shows("/brokers/topics/first", b"2")

    with_mirror(run, monkeypatch)


@pytest.mark.promise(
    "reassignment",
    "A broker follows a change in ZooKeeper even if ZooKeeper does not respond to the read: the broker "
    "retries until it succeeds",
)
def test_after_a_reconnection_the_tree_is_read_until_all_of_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(server: Server, mirror: Mirror) -> None:
        connected = asyncio.Event()
        store = mirror.store
        store.on_session(lambda state: connected.set() if state is SessionState.CONNECTED else None)
        store._changed_session(KazooState.SUSPENDED)
        server.reconnect()
        server.nodes["/brokers/topics/first"] = (b"2", 1)
        server.nodes["/brokers/ids/second"] = (b"1", 0)
        server.lose = ["sync", "/config", "/brokers/topics/first", "/brokers/ids/second"]
        store._changed_session(KazooState.CONNECTED)
        async with asyncio.timeout(30):
            await connected.wait()
        await mirror.shows("/brokers/ids/second", b"1")
        assert store.nodes["/brokers/topics/first"] == (b"2", 1)
        for path in ("/brokers/topics/first", "/brokers/ids/second", "/config/first"):
            server.put(path, b"9")  # each has its watch
            await mirror.shows(path, b"9")

    with_mirror(run, monkeypatch)


@pytest.mark.promise(
    "reassignment",
    "A broker follows a change in ZooKeeper even if ZooKeeper does not respond to the read: the broker "
    "retries until it succeeds",
)
def test_what_was_read_when_the_connection_was_lost_again_is_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next walk finds it in the mirror as it is, and would say nothing."""

    async def run(server: Server, mirror: Mirror) -> None:
        store = mirror.store
        store._changed_session(KazooState.SUSPENDED)
        server.reconnect()
        server.nodes["/brokers/topics/first"] = (b"2", 1)
        server.nodes["/brokers/topics/second"] = (b"1", 0)
        server.lose = ["/brokers/topics/second"]
        store._changed_session(KazooState.CONNECTED)
        async with asyncio.timeout(30):
            while store.nodes["/brokers/topics/first"] != (b"2", 1):
                await asyncio.sleep(0)
        store._changed_session(KazooState.SUSPENDED)  # the walk is given up
        store._changed_session(KazooState.CONNECTED)
        await mirror.shows("/brokers/topics/first", b"2")

    with_mirror(run, monkeypatch)


@pytest.mark.promise(
    "reassignment",
    "A topic that is created again never shows the leaders and in-sync replicas of the deleted topic of "
    "the same name",
)
@pytest.mark.parametrize("how", ["watch", "catch_up"])
def test_a_topic_that_was_created_again_is_not_announced_with_the_states_of_the_former_one(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events come one by one, and by another way than answers: those of the states may be late."""
    topic, state = "/brokers/topics/t", "/brokers/topics/t:state:0"

    async def run(server: Server, mirror: Mirror) -> None:
        server.put(topic, b"former")
        server.put(state, b"led by 1")
        await mirror.shows("/brokers/topics/t", b"former")
        assert mirror.store.nodes["/brokers/topics/t/state/0"][0] == b"led by 1"

        server.late.add(state)
        if how == "catch_up":
            server.late |= {topic, "/brokers/topics"}
        server.remove(topic)
        server.remove(state)
        server.put(topic, b"new")
        if how == "catch_up":
            # Read before it was created again, as the topic was read after it.
            get = server.get_async
            stale = iter([Answer((b"led by 1", SimpleNamespace(version=0, czxid=2)))])
            server.put(state, b"led by 2")
            monkeypatch.setattr(
                server,
                "get_async",
                lambda path, watch=None: (
                    next(stale, None) if path == state and watch is None else get(path, watch)
                ),
            )
            await mirror.store.catch_up()
        else:
            server.put(state, b"led by 2")
        await mirror.shows("/brokers/topics/t", b"new")
        assert mirror.store.nodes["/brokers/topics/t/state/0"][0] == b"led by 2"

    with_mirror(run, monkeypatch)


@pytest.mark.promise(
    "reassignment",
    "A broker follows a change in ZooKeeper even if ZooKeeper does not respond to the read: the broker "
    "retries until it succeeds",
)
def test_a_connection_that_is_lost_while_the_tree_is_read_first_does_not_leave_the_mirror_deaf(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Reconnecting(Server):
        """Its connection is replaced once, right before the last answer."""

        handler = SimpleNamespace(timeout_exception=TimeoutError)
        chroot = ""

        def add_listener(self, listener: Callable[[str], None]) -> None:
            self.listeners = [listener]

        def start(self, timeout: float) -> None:
            pass

        def ensure_path(self, path: str) -> None:
            pass

        def exists(self, path: str) -> None:
            """Of an older version there is nothing here."""

        def exists_async(self, path: str) -> Answer:
            while self.listeners:
                listener = self.listeners.pop()
                self.reconnect()
                listener(KazooState.SUSPENDED)
                listener(KazooState.CONNECTED)
            return super().exists_async(path)

    async def run() -> None:
        server = Reconnecting()
        server.nodes["/brokers/topics/first"] = (b"1", 0)
        monkeypatch.setattr("penstock.metadata.zookeeper.KazooClient", lambda hosts, **options: server)
        store = ZooKeeperStore("127.0.0.1:1", connection_timeout_ms=50)
        await store.open()
        mirror = Mirror(store)
        await store.watch("/", mirror.changed)
        try:
            assert store.state is SessionState.CONNECTED
            server.put("/brokers/topics/first", b"2")
            async with asyncio.timeout(5):
                await mirror.shows("/brokers/topics/first", b"2")
        finally:
            await store.close()

    asyncio.run(run())


def test_a_watcher_that_fails_after_a_reconnection_does_not_keep_the_session_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever waits for CONNECTED registers the broker again."""

    async def run(server: Server, mirror: Mirror) -> None:
        connected = asyncio.Event()
        store = mirror.store
        store.on_session(lambda state: connected.set() if state is SessionState.CONNECTED else None)
        failures = [ValueError("a node that cannot be read")]

        def fail(paths: frozenset[str]) -> None:
            if failures:
                raise failures.pop()

        await store.watch("/brokers/topics", fail)
        store._changed_session(KazooState.SUSPENDED)
        server.reconnect()
        server.nodes["/brokers/topics/first"] = (b"2", 1)
        store._changed_session(KazooState.CONNECTED)
        async with asyncio.timeout(5):
            await connected.wait()
        assert not failures
        assert store.state is SessionState.CONNECTED

    with_mirror(run, monkeypatch)
