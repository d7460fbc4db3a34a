"""`penstock-backup.json` in a backup of data directories: written last, so one without it is not complete."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from penstock import __version__
from penstock.backup.errors import BackupError
from penstock.fs import Fs

MANIFEST = "penstock-backup.json"
FORMAT, VERSION = "penstock-data-backup", 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """`directories` are the copies' names inside the backup, in the order of log.dirs.

    `point_in_time` is when the broker was stopped for a moment, or when the copy began.
    """

    cluster_id: str | None
    node_id: str | None
    running: bool
    point_in_time: str
    directories: Sequence[str]
    partitions: int
    bytes: int
    stopped_ms: float = 0.0
    format: str = FORMAT
    version: int = VERSION
    penstock: str = field(default=__version__)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def write_manifest(directory: str, manifest: Manifest, fs: Fs) -> None:
    text = json.dumps(manifest.as_json(), indent=2) + "\n"
    fs.write_atomic(os.path.join(directory, MANIFEST), text.encode())


def read_manifest(directory: str, fs: Fs) -> Manifest:
    path = os.path.join(directory, MANIFEST)
    if not fs.exists(path):
        raise BackupError(f"{directory} is not a complete backup: it has no {MANIFEST}")
    values = read_versioned(fs.read_bytes(path), path, FORMAT, VERSION)
    try:
        return Manifest(**values)
    except TypeError as error:
        raise BackupError(f"{path}: {error}") from error


def read_versioned(data: bytes, path: str, format: str, version: int) -> dict[str, Any]:
    """The JSON object of a backup's file, if its format and version are supported."""
    try:
        values = json.loads(data)
    except ValueError as error:
        raise BackupError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict) or values.get("format") != format:
        raise BackupError(f"{path} is not of the format {format}")
    if not isinstance(values.get("version"), int) or values["version"] > version:
        raise BackupError(
            f"{path} has version {values.get('version')} of the format {format}, and this Penstock "
            f"({__version__}) knows versions up to {version}; restore it with version "
            f"{values.get('penstock')} of Penstock"
        )
    return values
