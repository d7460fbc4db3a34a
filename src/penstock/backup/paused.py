"""Pauses a broker for a moment, so that all its files show one point in time.

SIGSTOP takes effect between two system calls of the event loop, which is the only one that appends: every
write to a log is in its file completely, or not at all. A child process watches: whatever happens to this
process, the broker is resumed after at most `MOST_SECONDS`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.backup.errors import BackupError

MOST_SECONDS = 10.0
_STOP_SECONDS = 5.0

_WATCHER = """
import select, signal, sys
select.select([0], [], [], float(sys.argv[2]))
try:
    signal.pidfd_send_signal(int(sys.argv[1]), signal.SIGCONT)
except OSError:
    pass
"""


def holder_of(lock: str) -> int | None:
    """The process that holds this lock file; None if the system does not report it."""
    stat = os.stat(lock)
    wanted = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 1234 08:01:4567 0 EOF; a process of another container has 0 or -1
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == wanted and int(words[4]) > 0:
            return int(words[4])
    return None


@contextlib.contextmanager
def paused(pid: int) -> Iterator[None]:
    """Pauses the process while the block runs. Raises BackupError if that is not possible."""
    if pid == 1:
        # The kernel ignores SIGSTOP for the first process of a container.
        raise BackupError(
            "the broker is the first process of its container, which cannot be stopped for a moment: start "
            "the container with an init (docker run --init; in Kubernetes shareProcessNamespace: true), or "
            "stop the broker"
        )
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        raise BackupError(f"cannot stop the broker (process {pid}) for a moment: {error.strerror}") from error
    try:
        with _watched(descriptor):
            end = time.monotonic() + MOST_SECONDS
            try:
                signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
            except PermissionError:
                raise BackupError(
                    f"cannot stop the broker (process {pid}) for a moment: it runs as another user. "
                    "Run this command as that user, or stop the broker"
                ) from None
            _wait_until_stopped(pid)
            yield
            if time.monotonic() > end or not _is_stopped(pid):
                raise BackupError(
                    f"the broker (process {pid}) was continued before all of its files were found: they are "
                    f"too many for {MOST_SECONDS:.0f} s. Stop the broker to back up this directory"
                )
    finally:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(descriptor, signal.SIGCONT)
        os.close(descriptor)


@contextlib.contextmanager
def _watched(descriptor: int) -> Iterator[None]:
    """If this process ends, or is stopped itself, a child resumes the broker."""
    # In its own session, so that Ctrl-C does not end it first.
    child = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _WATCHER, str(descriptor), str(MOST_SECONDS)],
        stdin=subprocess.PIPE,
        pass_fds=(descriptor,),
        start_new_session=True,
    )
    try:
        yield
    finally:
        child.communicate()


def _wait_until_stopped(pid: int) -> None:
    end = time.monotonic() + _STOP_SECONDS
    while not _is_stopped(pid):
        if time.monotonic() > end:
            raise BackupError(
                f"the broker (process {pid}) did not stop within {_STOP_SECONDS:.0f} s: its disk is slow. "
                "Try again, or stop the broker"
            )
        time.sleep(0.001)


def _is_stopped(pid: int) -> bool:
    """Whether the event loop is stopped, and every other thread is stopped or waits for the disk in an
    fsync.
    """
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            stat = Path(f"/proc/{pid}/task/{task}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state = stat.rpartition(")")[2].split()[0]
        if state not in ("T" if int(task) == pid else "TDXZ"):
            return False
    return True
