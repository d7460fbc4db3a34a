"""A real MariaDB of this machine, on a free port, in a directory of its own.

Root starts it as the user `mysql`, or `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pymysql

from tests.connect.postgres.server import free_port


def binaries() -> tuple[str, str] | None:
    """mariadbd and mariadb-install-db; None where MariaDB is not installed."""
    path = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
    server, install = shutil.which("mariadbd", path=path), shutil.which("mariadb-install-db", path=path)
    return (server, install) if server and install else None


class MariaDb:
    """`options` are mariadbd's, such as `--log-bin`; they may be changed between two starts."""

    def __init__(self, *options: str) -> None:
        self.options = options
        found = binaries()
        assert found is not None
        self._server, install = found
        names = {entry.pw_name for entry in pwd.getpwall()}
        self._user = None if os.getuid() else ("mysql" if "mysql" in names else "nobody")
        # Not pytest's directory: the other user may not enter it.
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-mariadb-"))
        if self._user:
            shutil.chown(self._directory, self._user)
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        done = subprocess.run(
            [install, "--no-defaults", f"--datadir={self._directory}/data",
             "--auth-root-authentication-method=normal",
             "--skip-test-db", "--skip-name-resolve"],
            user=self._user, cwd=self._directory, capture_output=True, text=True, timeout=90,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """On the same port as before, so that a client finds it again."""
        for _ in range(5):
            port = self.port or free_port()
            with open(self._directory / "log", "ab") as log:
                self._process = subprocess.Popen(
                    [self._server, "--no-defaults", f"--datadir={self._directory}/data", f"--port={port}",
                     f"--socket={self._directory}/socket", f"--pid-file={self._directory}/pid",
                     f"--tmpdir={self._directory}",
                     "--bind-address=127.0.0.1", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0",
                     "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=16M", *self.options],
                    user=self._user, cwd=self._directory, stdout=log, stderr=log,
                )  # fmt: skip
            deadline = time.monotonic() + 60
            while self._process.poll() is None:
                try:
                    self.port = port
                    self.connect().close()
                    return
                except pymysql.err.OperationalError:
                    assert time.monotonic() < deadline, "MariaDB does not accept connections"
                    time.sleep(0.05)
            self.port = 0
        raise AssertionError((self._directory / "log").read_text())

    def connect(self, database: str | None = None) -> pymysql.Connection:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True
        )

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(60)
        self._process = None

    def close(self) -> None:
        if self._process is not None:
            self.stop(signal.SIGKILL)
        shutil.rmtree(self._directory, ignore_errors=True)
