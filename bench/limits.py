"""What this machine allows: the same bytes without a broker, one Python thread at each end.

In: through a loopback socket into a file (recv_into, write). Out: from the file to a socket with
sendfile. The far end is a process of its own, as the broker is: `python -m bench.limits in|out ...`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.wire import RECEIVE_BYTES, discard


@contextmanager
def _far_end(way: str, path: Path, total: int) -> Iterator[socket.socket]:
    command = [sys.executable, "-m", "bench.limits", way, str(path), str(total)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection
    process.stdout.close()
    if process.wait(30) != 0:
        raise RuntimeError(f"the far end of the {way} limit failed")


def seconds_in(path: Path, message: bytes, repeat: int) -> float:
    with _far_end("in", path, len(message) * repeat) as connection:
        start = time.perf_counter()
        for _ in range(repeat):
            connection.sendall(message)
        if connection.recv(1) != b"k":
            raise RuntimeError("the far end closed before it had everything")
        return time.perf_counter() - start


def seconds_out(path: Path, total: int) -> float:
    with _far_end("out", path, total) as connection:
        view = memoryview(bytearray(RECEIVE_BYTES))
        start = time.perf_counter()
        connection.sendall(b"g")
        discard(connection, total, view)
        return time.perf_counter() - start


def _receive_into_file(connection: socket.socket, path: str, total: int) -> None:
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    while total:
        got = connection.recv_into(buffer)
        if not got:
            raise ConnectionError("closed early")
        os.write(file, buffer[:got])
        total -= got
    connection.sendall(b"k")
    os.close(file)


def _send_file(connection: socket.socket, path: str, total: int) -> None:
    file = os.open(path, os.O_RDONLY)
    connection.recv(1)
    position = 0
    while position < total:
        position += os.sendfile(connection.fileno(), file, position, min(total - position, 8 << 20))
    os.close(file)


def main(way: str, path: str, total: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        connection, _ = server.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        (_receive_into_file if way == "in" else _send_file)(connection, path, int(total))


if __name__ == "__main__":
    main(*sys.argv[1:])
