"""`penstock up --secure` as a process, for tests: what its ready file says, and a check of its ports."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

_STOP_SECONDS = 60


class SecureUp:
    """Running. `start` again after `stop` goes on with the same data."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "up.log"
        self._options = options
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "penstock", "up", "--secure", "--json", "--port", "0"]
        command += ["--data", str(self.data), "--ready-file", str(self.directory / "ready.json")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, *self._options], stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.ready: dict[str, Any] = json.loads(line)
        assert json.loads((self.directory / "ready.json").read_text()) == self.ready

    @property
    def client(self) -> dict[str, str]:
        """The client's file as an application reads it."""
        lines = Path(self.ready["client_config"]).read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def penstock(self, *arguments: str, input: str = "", ok: bool = True) -> str:
        """A command; its standard output, or all that it said where it must fail."""
        command = [sys.executable, "-m", "penstock", *arguments]
        done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=120)
        assert (done.returncode == 0) is ok, (arguments, done.stdout, done.stderr)
        return done.stdout if ok else done.stdout + done.stderr

    def processes(self) -> list[int]:
        """This one and those below it."""
        found = [self.process.pid]
        for pid in found:
            found += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return found

    def ports(self) -> set[tuple[str, int]]:
        """All addresses on which one of the processes listens."""
        inodes = set()
        for pid in self.processes():
            for link in Path(f"/proc/{pid}/fd").iterdir():
                try:
                    inodes.add(str(link.readlink()))
                except FileNotFoundError:
                    continue
        found = set()
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                host, port = fields[1].split(":")
                found.add((socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16)))
        return found

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ready["ca"])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(_STOP_SECONDS) == 0, self.log.read_text()[-2000:]
        self.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def answer(address: tuple[str, int], data: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """What a server says to a stranger who sends this; nothing where it hangs up."""
    try:
        with socket.create_connection(address, timeout=10) as plain:
            connection = plain if tls is None else tls.wrap_socket(plain, server_hostname=address[0])
            connection.sendall(data)
            if tls is None:
                with suppress(OSError):  # the server has hung up already
                    connection.shutdown(socket.SHUT_WR)
            found = b""
            while part := connection.recv(65536):
                found += part
                if len(found) > 1 << 16:
                    break
            return found
    except (ConnectionError, ssl.SSLError, TimeoutError):
        return b""
