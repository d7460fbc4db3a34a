"""A broker whose clock jumps and whose disk is slow or full, as a file says.

`python -m tests.cluster.strained_broker` takes the arguments of `penstock.broker`. The environment's
PENSTOCK_STRAIN names the file, JSON with any of `clock_ms` (added to wall time), `fsync_s` and `write_s`
(longer) and `full` (no byte is written). A thread reads it again and again, so that a test can change it
while the broker runs.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time
from dataclasses import dataclass, fields
from pathlib import Path

from penstock.broker.main import main
from penstock.clock import SystemClock
from penstock.fs import Data, Fs

VARIABLE = "PENSTOCK_STRAIN"
LOOK_S = 0.02


@dataclass
class Strain:
    clock_ms: int = 0
    fsync_s: float = 0.0
    write_s: float = 0.0
    full: bool = False

    def look(self, file: Path) -> None:
        try:
            found = json.loads(file.read_text())
        except FileNotFoundError:
            found = {}
        for field in fields(self):
            setattr(self, field.name, found.get(field.name, field.default))


def put_on(strain: Strain) -> None:
    """From here on all of this process has this clock and this disk."""
    now_ms, fsync, write, pwrite, open_file = SystemClock.now_ms, Fs.fsync, Fs.write, Fs.pwrite, Fs.open

    def strained_now(self: SystemClock) -> int:
        return now_ms(self) + strain.clock_ms

    def strained_fsync(self: Fs, fd: int) -> None:
        time.sleep(strain.fsync_s)
        fsync(self, fd)

    def admit() -> None:
        if strain.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if strain.write_s:
            time.sleep(strain.write_s)

    def strained_write(self: Fs, fd: int, data: Data) -> int:
        admit()
        return write(self, fd, data)

    def strained_pwrite(self: Fs, fd: int, data: Data, offset: int) -> int:
        admit()
        return pwrite(self, fd, data, offset)

    def strained_open(self: Fs, path: str, flags: int, mode: int = 0o644) -> int:
        if flags & os.O_CREAT and strain.full and not os.path.exists(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return open_file(self, path, flags, mode)

    for owner, name, method in (
        (SystemClock, "now_ms", strained_now),
        (Fs, "fsync", strained_fsync),
        (Fs, "write", strained_write),
        (Fs, "pwrite", strained_pwrite),
        (Fs, "open", strained_open),
    ):
        setattr(owner, name, method)


def run() -> int:
    strain, file = Strain(), Path(os.environ[VARIABLE])
    strain.look(file)

    def look() -> None:
        while True:
            strain.look(file)
            time.sleep(LOOK_S)

    threading.Thread(target=look, name="strain", daemon=True).start()
    put_on(strain)
    return main()


if __name__ == "__main__":
    sys.exit(run())
