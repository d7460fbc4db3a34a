"""What a broker keeps in a data directory besides its logs: the lock, and `meta.properties`.

The lock keeps a second broker out, including one of Apache Kafka. `meta.properties` has Kafka's format and
the node and cluster id, so that neither system opens a directory of another node or cluster.
"""

from __future__ import annotations

import base64
import fcntl
import os
import uuid
from collections.abc import Iterable, Mapping

from penstock.errors import PenstockError
from penstock.fs import Fs

META_PROPERTIES = "meta.properties"
_LOCK = ".lock"


class DataDirectoryError(PenstockError):
    """A data directory that this broker must not use; the message says which, and what to do."""


class DirectoryLocks:
    """Exclusive locks on the data directories, held until `release` or the end of the process."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []

    def acquire(self, directories: Iterable[str]) -> None:
        try:
            for directory in directories:
                self._lock(directory)
        except (DataDirectoryError, OSError):
            self.release()
            raise

    def _lock(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        descriptor = os.open(os.path.join(directory, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the same lock that Apache Kafka takes
        except (BlockingIOError, PermissionError):
            raise DataDirectoryError(
                f"{directory} is in use by another broker; stop it, or set log.dirs to another directory"
            ) from None

    def release(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()


def read_properties(directory: str, fs: Fs) -> dict[str, str] | None:
    path = os.path.join(directory, META_PROPERTIES)
    if not fs.exists(path):
        return None
    properties = {}
    for line in fs.read_bytes(path).decode("utf-8", "replace").splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            properties[name.strip()] = value.strip()
    return properties


def known_cluster_id(directories: Iterable[str], fs: Fs) -> str | None:
    """The cluster id in the directories' `meta.properties`, if any."""
    for directory in directories:
        properties = read_properties(directory, fs)
        if properties and properties.get("cluster.id"):
            return properties["cluster.id"]
    return None


def claim(directories: Iterable[str], node_id: int, cluster_id: str, fs: Fs) -> None:
    """Write `meta.properties` if it is missing; reject a directory of another node or cluster."""
    for directory in directories:
        properties = read_properties(directory, fs)
        if properties is None:
            _write(directory, node_id, cluster_id, fs)
        else:
            _check(directory, properties, node_id, cluster_id)


def _check(directory: str, properties: Mapping[str, str], node_id: int, cluster_id: str) -> None:
    path = os.path.join(directory, META_PROPERTIES)
    owner = properties.get("node.id") or properties.get("broker.id")
    if owner is not None and owner != str(node_id):
        raise DataDirectoryError(f"{path} says node.id={owner}, this broker has node.id={node_id}")
    cluster = properties.get("cluster.id")
    if cluster is not None and cluster != cluster_id:
        raise DataDirectoryError(f"{path} says cluster.id={cluster}, the metadata store says {cluster_id}")


def _write(directory: str, node_id: int, cluster_id: str, fs: Fs) -> None:
    directory_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    text = f"#\ncluster.id={cluster_id}\ndirectory.id={directory_id}\nnode.id={node_id}\nversion=1\n"
    fs.write_atomic(os.path.join(directory, META_PROPERTIES), text.encode())
