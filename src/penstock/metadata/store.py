"""What Penstock asks of the place where the cluster's metadata lives: a small tree of versioned values.

Paths look like /topics/a; a node's version is 0 when it is created and grows by one with every set. The
methods are grouped by the guarantee they give. `local.py` keeps the tree in one SQLite file; the semantics
are those of ZooKeeper, except that a store makes missing parents itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import PenstockError

ANY_VERSION = -1

Versioned = tuple[bytes, int]
WatchCallback = Callable[[frozenset[str]], None]


class StoreError(PenstockError):
    """Something about one path went wrong; nothing was changed."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class NodeExists(StoreError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "exists already")


class NoNode(StoreError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "does not exist")


class BadVersion(StoreError):
    """Somebody else has changed the node since it was read."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "has another version")


class StoreUnavailable(StoreError):
    """The store cannot be reached, read or written now."""


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    value: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    path: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Changes nothing; fails the transaction unless the node has this version."""

    path: str
    version: int


Op = Create | Set | Delete | Check


class MetadataStore(Protocol):
    # Reads: what was committed when the call began, or newer.

    async def get(self, path: str) -> Versioned | None: ...

    async def read(self, paths: Collection[str]) -> dict[str, Versioned]:
        """Those of these nodes that exist."""
        ...

    async def list(self, prefix: str) -> dict[str, Versioned]:
        """Every node below the prefix, at any depth, without the prefix itself."""
        ...

    # Writes: durable when the call returns; NodeExists, NoNode or BadVersion mean that nothing was changed.

    async def create(self, path: str, value: bytes, ephemeral: bool = False) -> None:
        """An ephemeral node goes away with the store's session."""
        ...

    async def compare_and_set(self, path: str, value: bytes, version: int) -> int:
        """Sets the value if the node has this version (or ANY_VERSION); returns the new version."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    # Atomic: all of it or nothing; the error names the first operation that failed.

    async def multi(self, ops: Sequence[Op]) -> None: ...

    # Notification: at least once after a change, on the caller's event loop, maybe for several changes.

    async def watch(self, prefix: str, callback: WatchCallback) -> None:
        """Calls back with the changed paths at or below the prefix, until the store is closed."""
        ...

    async def close(self) -> None: ...
