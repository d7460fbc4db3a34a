"""The writer and bytes that are not in memory: a thread reads them, and the loop never waits for the disk."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.broker.net.writer import Writer
from penstock.fs import REAL_FS
from penstock.log import residency
from penstock.log.files import FileSlice, LogFile

SIZE = 5 << 20


def log_file(path: Path, size: int = SIZE) -> tuple[LogFile, bytes]:
    data = os.urandom(size)
    (path / "a.log").write_bytes(data)
    return LogFile(str(path / "a.log"), REAL_FS, size), data


class Connection:
    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.setblocking(False)
        self.lost: list[str] = []
        self.rooms = 0
        self.writer = Writer(asyncio.get_running_loop(), self.near.fileno(), self._room, self.lost.append)

    def _room(self) -> None:
        self.rooms += 1

    async def receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            received += await asyncio.get_running_loop().sock_recv(self.far, 1 << 20)
        return bytes(received)

    def close(self) -> None:
        self.writer.close()
        self.near.close()
        self.far.close()


def run(scenario: Callable[[Connection], object]) -> None:
    async def main() -> None:
        connection = Connection()
        try:
            await scenario(connection)  # type: ignore[misc]
        finally:
            connection.close()

    asyncio.run(main())


@pytest.mark.promise(
    "log", "Bytes that are not in the page cache are read by a thread before they are sent to a consumer"
)
@pytest.mark.parametrize("memory", ["never holds anything", "holds what was read"])
def test_bytes_that_are_not_in_memory_are_read_by_a_thread_before_they_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str
) -> None:
    file, data = log_file(tmp_path)
    threads = []
    fetched = [0]
    prefetch = LogFile.prefetch

    def noted(file: LogFile, position: int, length: int) -> None:
        threads.append(threading.current_thread())
        prefetch(file, position, length)
        fetched[0] = max(fetched[0], position + length)

    def is_resident(fd: int, position: int, length: int) -> bool:
        return memory == "holds what was read" and position + length <= fetched[0]

    monkeypatch.setattr(LogFile, "prefetch", noted)
    monkeypatch.setattr(residency, "is_resident", is_resident)

    async def scenario(connection: Connection) -> None:
        writer = connection.writer
        writer.put(b"header")
        writer.put(FileSlice(file, 0, SIZE))
        writer.put(b"trailer")
        writer.flush()
        assert writer.waiting
        assert await connection.receive(SIZE + 13) == b"header" + data + b"trailer"
        assert not connection.lost
        assert connection.rooms
        assert not writer.waiting
        assert writer.unsent == 0
        assert len(threads) >= 5
        assert threading.main_thread() not in threads

    run(scenario)


def test_bytes_in_memory_are_sent_at_once(tmp_path: Path) -> None:
    file, data = log_file(tmp_path, 10_000)

    async def scenario(connection: Connection) -> None:
        connection.writer.put(FileSlice(file, 100, 9_000))
        connection.writer.flush()
        assert connection.writer.unsent == 0
        assert await connection.receive(9_000) == data[100:9_100]

    run(scenario)


@pytest.mark.promise(
    "log", "Bytes that are not in the page cache are read by a thread before they are sent to a consumer"
)
def test_a_connection_that_is_closed_during_a_prefetch_sends_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = log_file(tmp_path)
    go_on, done = threading.Event(), threading.Event()

    def slow(file: LogFile, position: int, length: int) -> None:
        go_on.wait()
        done.set()

    monkeypatch.setattr(LogFile, "prefetch", slow)
    monkeypatch.setattr(residency, "is_resident", lambda *_: False)

    async def scenario(connection: Connection) -> None:
        connection.writer.put(FileSlice(file, 0, SIZE))
        connection.writer.flush()
        connection.writer.close()
        go_on.set()
        await asyncio.get_running_loop().run_in_executor(None, done.wait)
        await asyncio.sleep(0)
        assert connection.rooms == 0
        assert not connection.lost

    run(scenario)


def test_a_file_that_cannot_be_read_costs_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = log_file(tmp_path)

    def fails(file: LogFile, position: int, length: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(LogFile, "prefetch", fails)
    monkeypatch.setattr(residency, "is_resident", lambda *_: False)

    async def scenario(connection: Connection) -> None:
        connection.writer.put(FileSlice(file, 0, SIZE))
        connection.writer.flush()
        while not connection.lost:
            await asyncio.sleep(0)
        assert "Input/output error" in connection.lost[0]

    run(scenario)


def test_residency_sees_what_the_kernel_has_dropped(tmp_path: Path) -> None:
    file, _ = log_file(tmp_path)
    handle = file.open()
    os.fsync(handle.fd)
    assert residency.is_resident(handle.fd, 0, SIZE)
    os.posix_fadvise(handle.fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if residency.is_resident(handle.fd, 0, 1):
        pytest.skip("this file system keeps pages that are no longer needed")
    assert not residency.is_resident(handle.fd, 0, SIZE)
    file.prefetch(0, SIZE)
    assert residency.is_resident(handle.fd, 0, SIZE)


def test_a_small_slice_goes_out_together_with_the_bytes_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, data = log_file(tmp_path)
    calls: list[str] = []
    for name in ("write", "sendfile"):
        original = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *args, name=name, original=original: (calls.append(name), original(*args))[1]
        )

    async def scenario(connection: Connection) -> None:
        chunks = [b"head", FileSlice(file, 100, 1000), b"between", FileSlice(file, 5000, 16 << 10), b"tail"]
        connection.writer.put_all(chunks)
        connection.writer.flush()
        expected = b"head" + data[100:1100] + b"between" + data[5000 : 5000 + (16 << 10)] + b"tail"
        assert await connection.receive(len(expected)) == expected
        assert (calls, connection.writer.unsent) == (["write"], 0)

    run(scenario)


def test_a_small_slice_of_a_file_that_is_cut_short_ends_the_connection(tmp_path: Path) -> None:
    file, _ = log_file(tmp_path, 1000)
    os.truncate(tmp_path / "a.log", 500)

    async def scenario(connection: Connection) -> None:
        connection.writer.put_all([b"head", FileSlice(file, 0, 1000)])
        connection.writer.flush()
        assert connection.lost

    run(scenario)
