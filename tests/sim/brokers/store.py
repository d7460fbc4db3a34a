"""ZooKeeper for simulated brokers: sessions over a network that delays, ephemeral nodes, watches that
lag.

The tree is that of `tests.sim.cluster_store`. What a session is answered, and what it hears of other
sessions' changes, comes in the order in which ZooKeeper sent it. A session whose broker cannot reach
ZooKeeper ends there after its timeout; the broker hears of it when it is connected again.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from penstock.metadata.store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Op,
    Set,
    StoreUnavailable,
    Versioned,
    WatchCallback,
)
from penstock.metadata.zookeeper import SessionCallback, SessionState
from tests.sim.brokers.loop import PROCESS, WORLD, SimLoop, in_process
from tests.sim.cluster_store import Tree

T = TypeVar("T")


class _Changes(dict[str, None]):
    """What Tree.commit tells a view of."""

    def __init__(self, session: _Session) -> None:
        self._session = session

    def update(self, paths: Iterable[str]) -> None:  # type: ignore[override]
        self._session.changed(list(paths))


class _Session:
    """As ZooKeeper has it: what a view of the tree is there."""

    def __init__(self, store: SimStore) -> None:
        self.store = store
        self.is_open = True
        self.behind = _Changes(self)
        self.expiry: asyncio.TimerHandle | None = None
        store.tree.views.append(self)  # type: ignore[arg-type]

    def changed(self, paths: list[str]) -> None:
        self.store.heard_of(self, paths)

    def expire(self) -> None:
        if self.is_open:
            self.store.ensemble.note(f"session of {self.store.process} expires")
            self.store.tree.expire(self)  # type: ignore[arg-type]


class Ensemble:
    """The ZooKeeper servers."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.tree = Tree()
        self.note: Callable[[str], None] = lambda text: None
        self._world = in_process(WORLD)

    def later(self, delay: float, work: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        return self.loop.call_later(delay, work, *args, context=self._world)


class SimStore:
    """In the place of ZooKeeperStore."""

    ensemble: Ensemble

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 18_000,
        **_security: object,  # nobody listens in a simulation
    ) -> None:
        self.tree = self.ensemble.tree
        self.loop = self.ensemble.loop
        self.process = PROCESS.get()
        self._session_timeout = session_timeout_ms / 1000
        self._connection_timeout = connection_timeout_ms / 1000
        self.nodes: dict[str, Versioned] = {}
        self.state = SessionState.SUSPENDED
        self._watches: list[tuple[str, WatchCallback]] = []
        self._on_session: list[SessionCallback] = []
        self._last_arrival = 0.0
        self._last_request = 0.0
        self._session: _Session | None = None
        self._closed = False
        self.away = False
        self._context = contextvars.copy_context()

    async def open(self) -> None:
        self._session = _Session(self)
        await self._ask(lambda: dict(self.tree.nodes), self._show)
        self.state = SessionState.CONNECTED

    async def close(self) -> None:
        self._closed = True
        self._watches.clear()
        self._on_session.clear()
        if self._session is not None:
            self._session.expire()

    # both directions

    def _delay(self) -> float:
        rng = self.loop.rng
        return rng.random() * (0.2 if rng.random() < 0.03 else 0.004)

    def _send(self, deliver: Callable[[], None], session: _Session | None) -> None:
        """ZooKeeper sends this to the broker, after all that it sent before."""

        def arrive() -> None:
            if not self.away and self._session is session and not self._closed:
                deliver()

        self._last_arrival = max(self._last_arrival, self.loop.now + self._delay())
        self.loop.call_at(self._last_arrival, arrive, context=self._context)

    async def _ask(self, work: Callable[[], T], take: Callable[[T], None] = lambda answer: None) -> T:
        """Have the ensemble do this; its answer, or StoreUnavailable when none comes in time. `take` sees the
        answer as it comes in, before all that ZooKeeper sends after it."""
        if self._closed:
            raise StoreUnavailable("/", "is closed")
        answer: asyncio.Future[T] = self.loop.create_future()
        session = self._session

        def apply() -> None:
            if self.away or session is not self._session or session is None or not session.is_open:
                return
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - the answer of the store, whatever it is
                refusal = error
                self._send(lambda: None if answer.done() else answer.set_exception(refusal), session)
            else:
                self._send(lambda: arrived(result), session)

        def arrived(result: T) -> None:
            take(result)
            if not answer.done():
                answer.set_result(result)

        self._last_request = max(self._last_request, self.loop.now + self._delay())
        if not self.away:
            self.loop.call_at(self._last_request, apply, context=in_process(WORLD))
        try:
            async with asyncio.timeout(self._connection_timeout):
                return await answer
        except TimeoutError:
            raise StoreUnavailable("/", "ZooKeeper does not answer") from None

    # writes

    async def multi(self, ops: Sequence[Op]) -> None:
        if not ops:
            return
        session = self._session

        def commit() -> dict[str, Versioned | None]:
            return self.tree.commit(session, ops)  # type: ignore[arg-type]

        await self._ask(commit, self._take)
        self._notify([op.path for op in ops if not isinstance(op, Check)])

    async def create(self, path: str, value: bytes, ephemeral: bool = False) -> None:
        await self.multi([Create(path, value, ephemeral)])

    async def compare_and_set(self, path: str, value: bytes, version: int) -> int:
        session = self._session

        def commit() -> int:
            node = self.tree.commit(session, [Set(path, value, version)])[path]  # type: ignore[arg-type]
            assert node is not None
            return node[1]

        new = await self._ask(commit, lambda new: self._take({path: (value, new)}))
        self._notify([path])
        return new

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    # reads

    async def get(self, path: str) -> Versioned | None:
        return await self._ask(lambda: self.tree.nodes.get(path))

    async def list(self, prefix: str) -> dict[str, Versioned]:
        start = prefix.rstrip("/") + "/"
        return await self._ask(
            lambda: {path: node for path, node in self.tree.nodes.items() if path.startswith(start)}
        )

    async def catch_up(self) -> None:
        await self._ask(lambda: dict(self.tree.nodes), self._show)

    # the mirror

    def _mirror(self) -> None:
        self._show(dict(self.tree.nodes))

    def _show(self, nodes: dict[str, Versioned]) -> None:
        paths = [path for path in [*self.nodes, *nodes] if self.nodes.get(path) != nodes.get(path)]
        self._take({path: nodes.get(path) for path in paths})
        self._notify(list(dict.fromkeys(paths)))

    def _take(self, changed: dict[str, Versioned | None]) -> None:
        for path, node in changed.items():
            if node is None:
                self.nodes.pop(path, None)
            else:
                self.nodes[path] = node

    def heard_of(self, session: _Session, paths: list[str]) -> None:
        """A watch has fired: the nodes are read again, each as it is then."""

        def reread() -> None:
            changed = {path: self.tree.nodes.get(path) for path in paths}
            self._send(lambda: self._reread(changed), session)

        self._send(lambda: self.ensemble.later(self._delay(), reread) and None, session)

    def _reread(self, nodes: dict[str, Versioned | None]) -> None:
        changed = {path: node for path, node in nodes.items() if self.nodes.get(path) != node}
        self._take(changed)
        self._notify(list(changed))

    async def watch(self, prefix: str, callback: WatchCallback) -> None:
        self._watches.append((prefix.rstrip("/"), callback))

    def _notify(self, paths: Sequence[str]) -> None:
        if not paths or self._closed:
            return
        for prefix, callback in list(self._watches):
            changed = frozenset(path for path in paths if path == prefix or path.startswith(prefix + "/"))
            if changed:
                callback(changed)

    # the session

    def on_session(self, callback: SessionCallback) -> None:
        self._on_session.append(callback)

    def _tell(self, state: SessionState) -> None:
        if self._closed or self.state is state:
            return
        self.state = state
        for callback in list(self._on_session):
            callback(state)

    def disconnect(self) -> None:
        """The broker cannot reach ZooKeeper, for its process the connection is lost."""
        session = self._session
        if session is None or self.away or self._closed:
            return
        self.away = True
        session.expiry = self.ensemble.later(self._session_timeout, session.expire)
        self.loop.call_soon(self._tell, SessionState.SUSPENDED, context=self._context)

    def reconnect(self) -> None:
        session = self._session
        if session is None or not self.away:
            return
        self.away = False
        if session.expiry is not None:
            session.expiry.cancel()
        if self._closed or not self.process.alive:
            return
        self.loop.call_soon(self._reconnected, session.is_open, context=self._context)

    def _reconnected(self, same: bool) -> None:
        if not same:
            self._tell(SessionState.LOST)
            self._session = _Session(self)

        def connected() -> None:
            self._mirror()
            self._tell(SessionState.CONNECTED)

        self._send(connected, self._session)

    def killed(self) -> None:
        """The process is no more: its session ends with its timeout."""
        session = self._session
        if session is not None and session.is_open and session.expiry is None:
            session.expiry = self.ensemble.later(self._session_timeout, session.expire)
