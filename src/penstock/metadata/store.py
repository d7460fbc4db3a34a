"""The interface of a metadata store: a small tree of versioned values.

Paths look like /topics/a. The version of a node is 0 when it is created, and increases by one with every set.
The methods are grouped by their guarantees. `local.py` keeps the tree in one SQLite file, `zookeeper.py` in
ZooKeeper. The semantics are those of ZooKeeper, except that a store creates missing parents.
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
    """An operation on one path has failed; nothing was changed."""

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
    """The node was changed by others since it was read."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "has another version")


class StoreUnavailable(StoreError):
    """The store is not available for reads or writes."""


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
    """Changes nothing; the transaction fails unless the node has this version."""

    path: str
    version: int


Op = Create | Set | Delete | Check


class MetadataStore(Protocol):
    # Reads: return what was committed when the call started, or something newer.

    async def get(self, path: str) -> Versioned | None: ...

    async def read(self, paths: Collection[str]) -> dict[str, Versioned]:
        """The nodes with these paths, if they exist."""
        ...

    async def list(self, prefix: str) -> dict[str, Versioned]:
        """All nodes below the prefix, at any depth, without the prefix itself."""
        ...

    # Writes: durable when the call returns; NodeExists, NoNode or BadVersion mean that nothing was changed.

    async def create(self, path: str, value: bytes, ephemeral: bool = False) -> None:
        """Creates a node. An ephemeral node is deleted when the session of the store ends."""
        ...

    async def compare_and_set(self, path: str, value: bytes, version: int) -> int:
        """Sets the value if the node has this version (or ANY_VERSION); returns the new version."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    # Transactions: all operations or none; the error names the first operation that failed.

    async def multi(self, ops: Sequence[Op]) -> None: ...

    # Notifications: at least one after a change, on the caller's event loop; one may cover several changes.

    async def watch(self, prefix: str, callback: WatchCallback) -> None:
        """Calls `callback` with the changed paths at or below the prefix, until the store is closed."""
        ...

    async def close(self) -> None: ...
