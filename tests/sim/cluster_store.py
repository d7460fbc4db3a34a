"""ZooKeeper for the simulator: one tree with versions, sessions with ephemeral nodes, mirrors that lag.

A call of a client stops twice: before it is applied and before its answer is heard. At both places the world
may let others go first, or end the process for good.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from typing import Any

from penstock.errors import PenstockError
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


class Pause:
    """Where a coroutine of the simulated processes can be held."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __await__(self) -> Generator[Pause, None, None]:
        yield self


class Tree:
    """What is stored. `on_commit` hears of every transaction, and `views` of every changed path."""

    def __init__(self) -> None:
        self.nodes: dict[str, Versioned] = {}
        self.owners: dict[str, View] = {}
        self.views: list[View] = []
        self.on_commit: Callable[[View | None, Sequence[Op]], None] = lambda view, ops: None

    def commit(self, view: View | None, ops: Sequence[Op]) -> dict[str, Versioned | None]:
        """All or nothing; what the paths hold afterwards."""
        changed: dict[str, Versioned | None] = {}

        def at(path: str) -> Versioned | None:
            return changed[path] if path in changed else self.nodes.get(path)

        for op in ops:
            found = at(op.path)
            if isinstance(op, Create):
                if found is not None:
                    raise NodeExists(op.path)
                changed[op.path] = (op.value, 0)
                continue
            if found is None:
                raise NoNode(op.path)
            if op.version not in (ANY_VERSION, found[1]):
                raise BadVersion(op.path)
            if isinstance(op, Set):
                changed[op.path] = (op.value, found[1] + 1)
            elif isinstance(op, Delete):
                changed[op.path] = None
        for path, node in changed.items():
            if node is None:
                self.nodes.pop(path, None)
                self.owners.pop(path, None)
            else:
                self.nodes[path] = node
        for op in ops:
            if isinstance(op, Create) and op.ephemeral and view is not None:
                self.owners[op.path] = view
        self.on_commit(view, ops)
        for other in self.views:
            if other is not view:
                other.behind.update(dict.fromkeys(changed))
        return changed

    def expire(self, view: View) -> None:
        """The session is over, and its ephemeral nodes go."""
        view.is_open = False
        if view in self.views:
            self.views.remove(view)
        gone = [path for path, owner in self.owners.items() if owner is view]
        if gone:
            self.commit(None, [Delete(path) for path in gone])


class View:
    """One session, with its mirror of the tree: the store that a broker of the simulation has."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.nodes: dict[str, Versioned] = dict(tree.nodes)
        self.unannounced: set[str] = set()
        self.behind: dict[str, None] = {}  # paths that have changed and were not read again, in order
        self.is_open = True
        self._watches: list[WatchCallback] = []
        tree.views.append(self)

    def hear(self, count: int | None = None) -> None:
        """Watches fire and the nodes are read again, as they are by now."""
        paths = list(self.behind)[:count]
        for path in paths:
            del self.behind[path]
        changed = list(self.unannounced)
        self.unannounced.clear()
        for path in paths:
            node = self.tree.nodes.get(path)
            if self.nodes.get(path) != node:
                changed.append(path)
                if node is None:
                    self.nodes.pop(path, None)
                else:
                    self.nodes[path] = node
        self._notify(changed)

    def read_ahead(self) -> None:
        """What has changed is read, and announced only when `hear` has read the rest."""
        paths, self.behind = list(self.behind), {}
        for path in paths:
            node = self.tree.nodes.get(path)
            if self.nodes.get(path) != node:
                self.unannounced.add(path)
                if node is None:
                    self.nodes.pop(path, None)
                else:
                    self.nodes[path] = node

    def _notify(self, paths: Sequence[str]) -> None:
        if paths:
            for callback in self._watches:
                callback(frozenset(paths))

    # The store as brokers use it

    async def multi(self, ops: Sequence[Op]) -> None:
        await Pause("write")
        if not self.is_open:
            raise StoreUnavailable("/", "the session is over")
        try:
            changed = self.tree.commit(self, ops)
        except (NodeExists, NoNode, BadVersion):
            await Pause("refused")
            raise
        await Pause("written")
        for path, node in changed.items():
            self.behind.pop(path, None)
            if node is None:
                self.nodes.pop(path, None)
            else:
                self.nodes[path] = node
        self._notify([op.path for op in ops if not isinstance(op, Check)])
        # Another may have been quicker: its change is read as any other.
        for path, node in changed.items():
            if self.tree.nodes.get(path) != node:
                self.behind[path] = None

    async def get(self, path: str) -> Versioned | None:
        await Pause("read")
        return self.tree.nodes.get(path)

    async def read(self, paths: Collection[str]) -> dict[str, Versioned]:
        await Pause("read")
        return {path: self.tree.nodes[path] for path in paths if path in self.tree.nodes}

    async def list(self, prefix: str) -> dict[str, Versioned]:
        await Pause("read")
        return dict(self.tree.nodes)

    async def create(self, path: str, value: bytes, ephemeral: bool = False) -> None:
        await self.multi([Create(path, value, ephemeral)])

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def compare_and_set(self, path: str, value: bytes, version: int) -> int:
        await self.multi([Set(path, value, version)])
        return self.nodes[path][1]

    async def watch(self, prefix: str, callback: WatchCallback) -> None:
        self._watches.append(callback)

    async def catch_up(self) -> None:
        await Pause("read")
        if not self.is_open:
            raise StoreUnavailable("/", "the session is over")
        self.hear()

    async def close(self) -> None:
        self.tree.expire(self)


class StepLock:
    """asyncio.Lock without a loop: who has to wait is held like at any other pause."""

    def __init__(self) -> None:
        self._held = False

    async def __aenter__(self) -> None:
        while self._held:
            await Pause("lock")
        self._held = True

    async def __aexit__(self, *exception: object) -> None:
        self._held = False


class Task:
    """A coroutine that goes from pause to pause when it is told to."""

    def __init__(self, name: str, work: Awaitable[Any], on_end: Callable[[Any], None]) -> None:
        self.name = name
        self.is_done = False
        self.at = "start"
        self._work = work
        self._steps = work.__await__()
        self.on_end = on_end

    def end(self) -> None:
        """Its process is no more."""
        self._steps.close()  # type: ignore[attr-defined]
        self._work.close()  # type: ignore[attr-defined]

    def step(self) -> None:
        """To the next pause, or to the end: `on_end` gets the result or the error."""
        try:
            self.at = next(self._steps).what
        except StopIteration as end:
            self.is_done = True
            self.on_end(end.value)
        except PenstockError as error:  # the world decides which are expected
            self.is_done = True
            self.on_end(error)
