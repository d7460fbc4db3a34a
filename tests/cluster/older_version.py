"""The source of an older version of Penstock, from this repository's history."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FIRST_IN_ONE_CLUSTER = "5074016903fb1d880376ebd89aac03eabda92923"
"""2026-11-18: the oldest version whose brokers can be in one cluster with those of today. Older ones keep the
metadata in ZooKeeper under other names."""
SINGLE_BROKER = "b153b63eabc2eab0853041c7ddd45a4d81eb28aa"
"""2026-11-16: before the names in the metadata changed."""


def source_of(commit: str, directory: Path) -> Path:
    """The `src` of that version, below `directory`: for PYTHONPATH. Skips where its history is not here."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", commit, "src/penstock"]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("git is not installed: no older version to run")
    if done.returncode != 0:
        pytest.skip(f"the history of this checkout does not have the older version {commit[:7]}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(directory, filter="data")
    source = directory / "src"
    where = subprocess.run(
        [sys.executable, "-c", "import penstock.broker; print(penstock.__file__)"],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert Path(where.strip()).is_relative_to(source), where
    return source
