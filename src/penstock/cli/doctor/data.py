"""The checks of a data directory: its files, and the room on its disk. A broker may run meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from penstock.admin.doctor.finding import Finding
from penstock.admin.words import human_bytes
from penstock.log.tools.verify import verify

CHECKS = ("files", "disk")


def files(directory: str) -> Iterator[Finding]:
    """Raises NotALogDirectory if it is not a log directory."""
    for problem in verify(directory).all_problems:
        where = problem.path if problem.position is None else f"{problem.path} at position {problem.position}"
        yield Finding("files", where, problem.what, problem.remedy, problem.severity)


def disk(directory: str, least_percent: float) -> Iterator[Finding]:
    room = shutil.disk_usage(directory)
    percent = 100 * room.free / room.total
    if percent < least_percent:
        yield Finding(
            "disk",
            directory,
            f"its disk is nearly full: {human_bytes(room.free)} of {human_bytes(room.total)} are free "
            f"({percent:.1f} %, less than {least_percent:g} %)",
            "lower retention.ms or retention.bytes of the largest topics, move partitions to other brokers "
            "(`penstock cluster rebalance`), or enlarge the disk: a broker that cannot write stops",
        )
