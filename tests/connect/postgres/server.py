"""A real PostgreSQL of this machine, on a free port, in a directory of its own.

`initdb` and `postgres` refuse to run as root: root starts them as the user `postgres`, or `nobody`.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extensions

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "shared_buffers": "16MB",
    "fsync": "off",
    "logical_decoding_work_mem": "64kB",
    "autovacuum": "off",
    # Not what the connector wants: it must set its own.
    "datestyle": "German",
    "intervalstyle": "iso_8601",
    "bytea_output": "escape",
    "timezone": "America/New_York",
    "extra_float_digits": "0",
}


def binaries() -> Path | None:
    """Where the server's programs are; None where PostgreSQL is not installed."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(Path(path).parent.name))
    for directory in [*reversed(found), *os.environ["PATH"].split(":")]:
        if (Path(directory) / "initdb").exists():
            return Path(directory)
    return None


def _other_user() -> str | None:
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class PostgresServer:
    """Use `start` and `close`; `stop`, `kill` and `start` again in between as the test likes."""

    def __init__(self) -> None:
        bin_directory = binaries()
        assert bin_directory is not None
        self._bin = bin_directory
        self._user = _other_user()
        # Not pytest's directory: the other user may not enter it.
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        if self._user:
            shutil.chown(self._directory, self._user)
        self.data = self._directory / "data"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._run(
            "initdb", "-D", str(self.data), "-U", "penstock", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"
        )

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._bin / program, *arguments],
            user=self._user,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    def start(self) -> None:
        """On the same port as before, so that a client finds it again."""
        for _ in range(5):
            port = self.port or free_port()
            options = [f"-c{name}={value}" for name, value in SETTINGS.items()]
            with open(self._directory / "log", "ab") as log:
                command = [self._bin / "postgres", "-D", self.data, "-p", str(port), "-k", self._directory]
                self._process = subprocess.Popen(
                    [*command, *options], user=self._user, cwd="/", stdout=log, stderr=log
                )
            deadline = time.monotonic() + 60
            while self._process.poll() is None:
                try:
                    psycopg2.connect(host="127.0.0.1", port=port, user="penstock", dbname="postgres").close()
                    self.port = port
                    return
                except psycopg2.OperationalError:
                    assert time.monotonic() < deadline, "PostgreSQL does not accept connections"
                    time.sleep(0.05)
        raise AssertionError((self._directory / "log").read_text())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT is PostgreSQL's fast shutdown, SIGQUIT its crash: the next start recovers."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(60)
        self._process = None

    def close(self) -> None:
        if self._process is not None:
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self._directory, ignore_errors=True)

    def create_database(self, name: str) -> Database:
        Database(self, "postgres").execute(f'CREATE DATABASE "{name}"')
        return Database(self, name)

    def connect(self, database: str, **options: Any) -> psycopg2.extensions.connection:
        connection = psycopg2.connect(
            host="127.0.0.1", port=self.port, user="penstock", dbname=database, **options
        )
        if "connection_factory" not in options:  # one for replication has no transactions
            connection.autocommit = True
        return connection


class Database:
    """One database of the server: each test has its own."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server, self.name = server, name

    def connect(self, **options: Any) -> psycopg2.extensions.connection:
        return self.server.connect(self.name, **options)

    def execute(self, *statements: str) -> None:
        """Each statement in a transaction of its own."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        finally:
            connection.close()

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall()
        finally:
            connection.close()

    def drop(self) -> None:
        for slot, pid in self.query(
            f"SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = '{self.name}'"
        ):
            if pid is not None:
                self.query(f"SELECT pg_terminate_backend({pid}, 10000)")
            self.query(f"SELECT pg_drop_replication_slot('{slot}')")
        Database(self.server, "postgres").execute(f'DROP DATABASE "{self.name}" WITH (FORCE)')
