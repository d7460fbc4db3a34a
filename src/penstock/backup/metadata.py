"""Back up the metadata of a broker or a cluster to one JSON file, and restore it to an empty store.

Saves everything that survives a restart: topics with ids, replicas, leaders and in-sync replicas, settings,
ACLs, quotas, SCRAM credentials, delegation tokens, the next producer id. Broker registrations and the current
controller are not saved.

A restored store may be older than the logs. So leader epochs and producer ids continue far above the saved
ones: no epoch and no id is used twice.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from penstock import __version__
from penstock.backup.errors import BackupError, TargetNotEmpty
from penstock.backup.manifest import read_versioned, utc
from penstock.broker.broker import METADATA_FILE
from penstock.broker.data_directory import DirectoryLocks
from penstock.clock import Clock
from penstock.config import BrokerConfig
from penstock.fs import REAL_FS
from penstock.metadata import layout
from penstock.metadata.local import LocalStore
from penstock.metadata.store import Create, Delete, MetadataStore, Op

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FORMAT, VERSION = "penstock-metadata-backup", 1
LEADER_EPOCHS, PRODUCER_IDS = 1_000, 1_000_000
"""How far above the saved values a restored store continues."""

_SAVED = ("/brokers/topics/", "/cluster/", "/config/", "/deleted/", "/acls/", "/quotas/", "/credentials/")
_MOMENTARY = ("/cluster/leaving/", "/cluster/broken/")
_ATTEMPTS = 10
_MOST_OPS, _MOST_BYTES = 500, 256 << 10  # of one transaction; ZooKeeper takes 1 MiB

T = TypeVar("T")
Nodes = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class MetadataBackup:
    """The number of objects that were saved or restored."""

    cluster_id: str
    topics: int
    partitions: int
    acls: int
    quotas: int
    users: int
    configs: int

    @classmethod
    def of(cls, nodes: Nodes) -> MetadataBackup:
        def count(prefix: str) -> int:
            return sum(path.startswith(prefix) for path in nodes)

        topics = [path for path in nodes if layout.is_topic_path(path)]
        return cls(
            cluster_id=nodes[layout.CLUSTER_ID].decode(),
            topics=len(topics),
            partitions=sum(len(layout.decode(nodes[path])["replicas"]) for path in topics),
            acls=count("/acls/"),
            quotas=count("/quotas/"),
            users=count("/credentials/scram/"),
            configs=count("/config/"),
        )


def back_up_metadata(config: BrokerConfig, file: str, clock: Clock) -> MetadataBackup:
    """Save the store that a broker with these settings uses to the new file."""
    if os.path.exists(file):
        raise TargetNotEmpty(file, "it exists", "name a new file")
    nodes = asyncio.run(_read(config))
    write_metadata(file, nodes, clock)
    return MetadataBackup.of(nodes)


def restore_metadata(config: BrokerConfig, file: str, *, replace: bool = False) -> MetadataBackup:
    """Restore a backup's metadata to the store that a broker with these settings will use. `replace` empties
    it.
    """
    nodes = {path: _continued(path, value) for path, value in read_metadata(file).items()}
    asyncio.run(_write(config, nodes, replace))
    return MetadataBackup.of(nodes)


# The file


def write_metadata(file: str, nodes: Nodes, clock: Clock) -> None:
    document = {
        "format": FORMAT,
        "version": VERSION,
        "penstock": __version__,
        "time": utc(clock.now_ms()),
        "nodes": {path: _as_json(nodes[path]) for path in sorted(nodes)},
    }
    # It contains credentials: only the owner may read it.
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        REAL_FS.write_all(descriptor, (json.dumps(document, indent=1) + "\n").encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    REAL_FS.fsync_dir(os.path.dirname(os.path.abspath(file)))


def read_metadata(file: str) -> dict[str, bytes]:
    values = read_versioned(REAL_FS.read_bytes(file), file, FORMAT, VERSION)
    try:
        nodes = {path: _from_json(value) for path, value in values["nodes"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BackupError(f"{file} is damaged: {error!r}") from error
    if layout.CLUSTER_ID not in nodes:
        raise BackupError(f"{file} is damaged: it has no {layout.CLUSTER_ID}")
    return nodes


def _as_json(value: bytes) -> Any:
    """Values are JSON, except the cluster's id and the key for salts."""
    with suppress(ValueError):
        read = json.loads(value)
        if layout.encode(read) == value:
            return {"json": read}
    return {"base64": base64.b64encode(value).decode()}


def _from_json(value: Mapping[str, Any]) -> bytes:
    if "json" in value:
        return layout.encode(value["json"])
    return base64.b64decode(value["base64"], validate=True)


# From and to stores


@asynccontextmanager
async def _cluster_store(config: BrokerConfig) -> AsyncIterator[MetadataStore]:
    from penstock.broker.cluster.membership import zookeeper_store

    store = zookeeper_store(config)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def _copied_store(path: str) -> AsyncIterator[MetadataStore]:
    """A copy of the file, because a broker may be using it: opening a store ends its sessions."""
    if not os.path.exists(path):
        raise BackupError(
            f"there is no {path}; name the log.dirs of a single broker, or the zookeeper.connect of a cluster"
        )
    with tempfile.TemporaryDirectory(prefix="penstock-backup-") as scratch:
        copy = os.path.join(scratch, METADATA_FILE)
        with (
            closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as live,
            closing(sqlite3.connect(copy)) as target,
        ):
            live.backup(target)
        store = LocalStore(copy)
        try:
            yield store
        finally:
            await store.close()


@asynccontextmanager
async def _own_store(directory: str) -> AsyncIterator[MetadataStore]:
    """The file itself, which no broker uses meanwhile."""
    locks = DirectoryLocks()
    locks.acquire([directory])
    try:
        store = LocalStore(os.path.join(directory, METADATA_FILE))
        try:
            yield store
        finally:
            await store.close()
    finally:
        locks.release()


async def _read(config: BrokerConfig) -> dict[str, bytes]:
    directory = os.path.abspath(config.log_dirs[0])
    is_cluster = bool(config.zookeeper_connect)
    opened = _cluster_store(config) if is_cluster else _copied_store(os.path.join(directory, METADATA_FILE))
    async with opened as store:
        nodes = await _unchanged(lambda: store.list("/"))
    saved = {
        path: value
        for path, (value, _) in nodes.items()
        if path.startswith(_SAVED) and not path.startswith(_MOMENTARY)
    }
    if layout.CLUSTER_ID not in saved:
        raise BackupError(f"{config.zookeeper_connect or config.log_dirs[0]} has no metadata of a cluster")
    return saved


async def _unchanged(read: Callable[[], Awaitable[T]]) -> T:
    """Values that two consecutive reads agree on: ZooKeeper's nodes are read one by one."""
    found = await read()
    for _ in range(_ATTEMPTS):
        before, found = found, await read()
        if found == before:
            return found
    raise BackupError(f"the metadata changed each of {_ATTEMPTS} times that it was read; try again")


async def _write(config: BrokerConfig, nodes: Nodes, replace: bool) -> None:
    directory = os.path.abspath(config.log_dirs[0])
    where = config.zookeeper_connect or os.path.join(directory, METADATA_FILE)
    async with _cluster_store(config) if config.zookeeper_connect else _own_store(directory) as store:
        there = await store.list("/")
        if registered := [path for path in there if path.startswith("/brokers/ids/")]:
            ids = ", ".join(sorted(path.rpartition("/")[2] for path in registered))
            raise BackupError(f"{where} is in use by brokers ({ids}); stop them first")
        if there and not replace:
            raise TargetNotEmpty(
                where, f"{len(there)} nodes", "name an empty one, or use --replace to delete what is there"
            )
        # ZooKeeper's list leaves these out.
        known_ids = {
            layout.id_path(layout.topic_id(value))
            for path, (value, _) in there.items()
            if layout.is_topic_path(path)
        }
        removed: list[Op] = [Delete(path) for path in {*there, *known_ids}]
        # Brokers identify the cluster by its id: it is deleted first and restored last, so half a store is
        # never used.
        removed.sort(key=lambda op: op.path != layout.CLUSTER_ID)
        created: list[Op] = [Create(path, value) for path, value in nodes.items()]
        created += [
            Create(layout.id_path(layout.topic_id(value)), b"")
            for path, value in nodes.items()
            if layout.is_topic_path(path)
        ]
        created.sort(key=lambda op: op.path == layout.CLUSTER_ID)
        for batch in (*_batches(removed), *_batches(created)):
            await store.multi(batch)


def _batches(ops: list[Op]) -> Iterator[list[Op]]:
    batch: list[Op] = []
    size = 0
    for op in ops:
        added = len(op.path) + (len(op.value) if isinstance(op, Create) else 0)
        if batch and (len(batch) == _MOST_OPS or size + added > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(op)
        size += added
    if batch:
        yield batch


def _continued(path: str, value: bytes) -> bytes:
    if path == layout.PRODUCER_IDS:
        return layout.encode({"next": layout.decode(value)["next"] + PRODUCER_IDS})
    is_state = path.startswith(layout.TOPICS + "/") and not layout.is_topic_path(path)
    if is_state or path.startswith("/deleted/"):
        state = layout.decode(value)
        state["leader_epoch"] += LEADER_EPOCHS
        return layout.encode(state)
    return value
