"""ZooKeeper for simulated brokers, below the real ZooKeeperStore: a client in the place of kazoo's.

The ensemble is one log of commits. Each session reads from a server of its own, which applies that log late;
what the session has written, and what was there before a sync, it has. Answers come in the order of their
requests. Watches fire once, when that server applies the change, and come by another way: before or after
answers that were sent with them. A connection that is lost takes all watches and answers with it; the session
goes on where it is found in time, or is over. While ZooKeeper is slow, answers come later than anybody waits.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent

from penstock.metadata.store import BadVersion, Check, Create, Delete, NodeExists, NoNode, Op, Set, Versioned
from penstock.metadata.zookeeper_names import DIRECTORIES, UNWATCHED, directory_of, here, is_below, there
from tests.sim.brokers.loop import PROCESS, WORLD, SimLoop, in_process
from tests.sim.cluster_store import Tree

Watch = Callable[[WatchedEvent], None]

_REFUSALS = {NodeExists: NodeExistsError, NoNode: NoNodeError, BadVersion: BadVersionError}


def _ours(path: str) -> str:
    """The path of the tree for one of ZooKeeper."""
    directory, _, child = path.rpartition("/")
    ours = here(directory or "/", child)
    assert ours is not None
    return ours


class _Server:
    """What the server of one session has applied, and the watches that the session has there."""

    def __init__(self, ensemble: Ensemble, fire: Callable[[Watch, WatchedEvent], None]) -> None:
        self._ensemble = ensemble
        self._fire = fire
        self.nodes: dict[str, Versioned] = dict(ensemble.tree.nodes)
        self.versions = dict(ensemble.versions)  # of the lists of children
        self.created = dict(ensemble.created)  # with which commit each node was
        self._applied = len(ensemble.commits)
        self.watches: dict[str, list[Watch]] = {}

    def catch_up(self, until: int | None = None) -> None:
        commits = self._ensemble.commits
        while self._applied < (len(commits) if until is None else until):
            changed = commits[self._applied]
            self._applied += 1
            for path, node in changed.items():
                self._change(path, node)

    def _change(self, path: str, node: Versioned | None) -> None:
        known = self.nodes.get(path)
        directory = directory_of(path)
        if node is None:
            self.nodes.pop(path, None)
        else:
            self.nodes[path] = node
            if known is None:
                self.created[path] = self._applied
        if (known is None) != (node is None):
            self.versions[directory] = self.versions.get(directory, 0) + 1
            self._fired(directory, EventType.CHILD)
        if known is not None:
            self._fired(path, EventType.DELETED if node is None else EventType.CHANGED)

    def _fired(self, path: str, kind: str) -> None:
        for watch in self.watches.pop(path, []):
            self._fire(watch, WatchedEvent(kind, KeeperState.CONNECTED, path))

    def children(self, path: str) -> tuple[list[str], SimpleNamespace]:
        found = [there(one).rpartition("/")[2] for one in self.nodes if is_below(one, path)]
        return found, SimpleNamespace(cversion=self.versions.get(path, 0))


class Session:
    """As the ensemble has it, with the ephemeral nodes that it owns."""

    def __init__(self, ensemble: Ensemble, name: str) -> None:
        self._ensemble = ensemble
        self._name = name
        self.is_open = True
        self.behind: dict[str, None] = {}  # of no use here: a Tree wants it
        self._expiry: asyncio.TimerHandle | None = None

    def expire_after(self, seconds: float) -> None:
        if self.is_open and self._expiry is None:
            self._expiry = self._ensemble.later(seconds, self.expire)

    def is_found(self) -> bool:
        """Its client is back. Whether it is still there."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        return self.is_open

    def expire(self) -> None:
        if self.is_open:
            self._ensemble.note(f"session of {self._name} expires")
            self._ensemble.tree.expire(self)  # type: ignore[arg-type]


class Ensemble:
    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.tree = Tree()
        self.commits: list[dict[str, Versioned | None]] = []
        self.versions: dict[str, int] = {}
        self.created: dict[str, int] = {}
        self.servers: list[_Server] = []
        self.note: Callable[[str], None] = lambda text: None
        self._world = in_process(WORLD)
        self.tree.on_commit = self._committed

    def later(self, delay: float, work: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        return self.loop.call_later(delay, work, *args, context=self._world)

    def delay(self) -> float:
        rng = self.loop.rng
        return rng.random() * (0.2 if rng.random() < 0.03 else 0.004)

    def _committed(self, session: object, ops: Sequence[Op]) -> None:
        changed = {op.path: self.tree.nodes.get(op.path) for op in ops if not isinstance(op, Check)}
        for path, node in changed.items():
            directory = directory_of(path)
            if node is None or node[1] == 0:
                self.versions[directory] = self.versions.get(directory, 0) + 1
            if node is not None and node[1] == 0:
                self.created[path] = len(self.commits) + 1
        self.commits.append(changed)
        for server in self.servers:
            self.later(self.delay(), server.catch_up, len(self.commits))


class _Answer:
    """kazoo's AsyncResult, as far as it is used."""

    def __init__(self) -> None:
        self.value: Any = None
        self.exception: Exception | None = None
        self._callback: Callable[[_Answer], None] | None = None
        self._done = False

    def rawlink(self, callback: Callable[[_Answer], None]) -> None:
        self._callback = callback
        if self._done:
            callback(self)

    def set(self, value: Any, exception: Exception | None = None) -> None:
        if not self._done:
            self._done, self.value, self.exception = True, value, exception
            if self._callback is not None:
                self._callback(self)


class _Transaction:
    def __init__(self, client: SimKazoo) -> None:
        self._client = client
        self._ops: list[Op] = []

    def create(self, path: str, value: bytes, ephemeral: bool = False) -> None:
        self._ops.append(Create(_ours(path), value, ephemeral))

    def set_data(self, path: str, value: bytes, version: int) -> None:
        self._ops.append(Set(_ours(path), value, version))

    def delete(self, path: str, version: int) -> None:
        self._ops.append(Delete(_ours(path), version))

    def check(self, path: str, version: int) -> None:
        self._ops.append(Check(_ours(path), version))

    def commit_async(self) -> _Answer:
        return self._client.request(lambda server: self._client.commit(self._ops))


class SimKazoo:
    """In the place of KazooClient."""

    ensemble: Ensemble
    handler = SimpleNamespace(timeout_exception=KazooTimeoutError)
    chroot = ""

    def __init__(self, hosts: str, *, timeout: float, **_options: object) -> None:
        self.loop = self.ensemble.loop
        self.process = PROCESS.get()
        self._timeout = timeout
        self._listeners: list[Callable[[str], None]] = []
        self._context = contextvars.copy_context()
        self._session: Session | None = None
        self._server: _Server | None = None
        self._under_way: dict[_Answer, None] = {}
        self._last_request = 0.0
        self._last_answer = 0.0
        self._last_watch = 0.0
        self.slow_until = 0.0
        self.away = False
        self._stopped = False

    @property
    def connected(self) -> bool:
        return self._server is not None

    # as kazoo's

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def start(self, timeout: float) -> None:
        if self.away:
            raise KazooTimeoutError("Connection time-out")
        self._session = Session(self.ensemble, str(self.process))
        self._connect()

    def ensure_path(self, path: str) -> None:
        assert path in (*DIRECTORIES, *UNWATCHED)

    def exists(self, path: str) -> None:
        """Of an older version there is nothing here."""

    def stop(self) -> None:
        self._stopped = True
        if self._session is not None:
            self._session.expire()
        self._disconnect(SessionExpiredError())

    def close(self) -> None:
        pass

    def transaction(self) -> _Transaction:
        return _Transaction(self)

    def sync_async(self, path: str) -> _Answer:
        return self.request(lambda server: server.catch_up())

    def get_async(self, path: str, watch: Watch | None = None) -> _Answer:
        ours = _ours(path)

        def get(server: _Server) -> tuple[bytes, SimpleNamespace]:
            node = server.nodes.get(ours)
            if node is None:
                raise NoNodeError
            if watch is not None:
                server.watches.setdefault(ours, []).append(watch)
            return node[0], SimpleNamespace(version=node[1], czxid=server.created[ours])

        return self.request(get)

    def get_children_async(
        self, path: str, watch: Watch | None = None, include_data: bool = False
    ) -> _Answer:
        def get(server: _Server) -> Any:
            if watch is not None:
                server.watches.setdefault(path, []).append(watch)
            found = server.children(path)
            return found if include_data else found[0]

        return self.request(get)

    def exists_async(self, path: str) -> _Answer:
        return self.request(lambda server: server.children(path)[1])

    def set_async(self, path: str, value: bytes, version: int) -> _Answer:
        def put(server: _Server) -> Any:
            [result] = self.commit([Set(_ours(path), value, version)])
            if isinstance(result, Exception):
                raise result
            return result

        return self.request(put)

    # requests and what comes back

    def request(self, work: Callable[[_Server], Any]) -> _Answer:
        answer = _Answer()
        server, session = self._server, self._session
        if server is None or session is None:
            # kazoo queues it until there is a connection; nobody waits that long.
            self.loop.call_soon(answer.set, None, ConnectionLoss(), context=self._context)
            return answer
        self._under_way[answer] = None

        def apply() -> None:
            if server is not self._server or not session.is_open:
                return
            try:
                result = work(server)
            except KazooException as error:
                self._send(server, answer, None, error)
            else:
                self._send(server, answer, result, None)

        self._last_request = max(self._last_request, self.loop.now + self.ensemble.delay())
        self.loop.call_at(self._last_request, apply, context=in_process(WORLD))
        return answer

    def _send(self, server: _Server, answer: _Answer, value: Any, error: Exception | None) -> None:
        def arrive() -> None:
            if server is self._server:
                self._under_way.pop(answer, None)
                answer.set(value, error)

        when = max(self._last_answer, self.loop.now + self.ensemble.delay(), self.slow_until)
        self._last_answer = when
        self.loop.call_at(when, arrive, context=self._context)

    def _watched(self, server: _Server, watch: Watch, event: WatchedEvent) -> None:
        """Through another thread than answers; those of one connection in their order."""

        def arrive() -> None:
            if server is self._server:
                watch(event)

        self._last_watch = max(self._last_watch, self.loop.now + self.ensemble.delay(), self.slow_until)
        self.loop.call_at(self._last_watch, arrive, context=self._context)

    def commit(self, ops: Sequence[Op]) -> list[Any]:
        assert self._server is not None
        try:
            changed = self.ensemble.tree.commit(self._session, ops)  # type: ignore[arg-type]
        except (NodeExists, NoNode, BadVersion) as error:
            failed = next(index for index, op in enumerate(ops) if op.path == error.path)
            return [_REFUSALS[type(error)]() if n == failed else RolledBackError() for n in range(len(ops))]
        self._server.catch_up()
        last = {op.path: index for index, op in enumerate(ops)}
        return [
            SimpleNamespace(version=changed[op.path][1])  # type: ignore[index]
            if isinstance(op, Set) and last[op.path] == index
            else None
            for index, op in enumerate(ops)
        ]

    # the connection

    def _connect(self) -> None:
        server = self._server = _Server(
            self.ensemble, lambda watch, event: self._watched(server, watch, event)
        )
        self.ensemble.servers.append(server)

    def _disconnect(self, error: KazooException) -> None:
        if self._server is not None:
            self.ensemble.servers.remove(self._server)
            self._server = None
        self.slow_until = 0.0
        under_way, self._under_way = self._under_way, {}
        for answer in under_way:
            answer.set(None, error)

    def _tell(self, state: str) -> None:
        for listener in self._listeners:
            listener(state)

    def disconnect(self) -> None:
        """The process cannot reach ZooKeeper."""
        if self.away or self._stopped or self._session is None:
            return
        self.away = True
        self._session.expire_after(self._timeout)
        self.loop.call_soon(self._lost, context=self._context)

    def _lost(self) -> None:
        self._disconnect(ConnectionLoss())
        self._tell(KazooState.SUSPENDED)

    def reconnect(self) -> None:
        session = self._session
        if session is None or not self.away:
            return
        self.away = False
        if not self._stopped and self.process.alive:
            self.loop.call_soon(self._found, session.is_found(), context=self._context)

    def _found(self, same: bool) -> None:
        if self.away or self._stopped:
            return
        if not same:
            self._tell(KazooState.LOST)
            self._session = Session(self.ensemble, str(self.process))
        self._connect()
        self._tell(KazooState.CONNECTED)

    def slow(self, seconds: float) -> None:
        """No answer arrives before."""
        self.slow_until = max(self.slow_until, self.loop.now + seconds)

    def killed(self) -> None:
        """The process is no more: its session ends with its timeout."""
        if self._server is not None:
            self.ensemble.servers.remove(self._server)
            self._server = None
        if self._session is not None:
            self._session.expire_after(self._timeout)
