"""Sends chunks to a non-blocking socket: bytes with one send, file slices with sendfile.

Bytes of a file that are not in the page cache are read by a thread first, so that the disk does not block the
event loop.

The transport owns the descriptor. The writer writes to it directly, and duplicates it only to wait for room
(an event loop can watch a descriptor only once) or to send slices. So an idle connection needs only one
descriptor.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable

from penstock.log.files import FileSlice

Chunk = bytes | memoryview | FileSlice

# A chunk of at least this size is sent separately instead of being joined with its neighbours.
LARGE = 64 * 1024
# How many bytes one connection may send in one iteration of the event loop while others wait.
_TURN = 8 * 1024 * 1024
# A slice up to this size is sent in one call with the bytes around it; with sendfile it would take three.
_SMALL = 16 * 1024
# How many bytes a thread reads ahead if they are not in the page cache.
_PREFETCH = 1024 * 1024
# The memory that an unsent slice counts as.
SLICE_COST = 512


class Writer:
    """The send queue of one connection. `unsent` counts the memory that it holds, not the bytes of slices."""

    __slots__ = (
        "_duplicate", "_fd", "_loop", "_on_lost", "_on_room", "_prefetching", "_queue", "_waiting", "unsent",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        on_room: Callable[[], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._on_room = on_room
        self._on_lost = on_lost
        self._queue: deque[Chunk] = deque()
        self._duplicate: socket.socket | None = None
        self._waiting = False
        self._prefetching = False
        self.unsent = 0

    def put(self, chunk: Chunk) -> None:
        self._queue.append(chunk)
        self.unsent += SLICE_COST if type(chunk) is FileSlice else len(chunk)

    def put_all(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self.put(chunk)

    @property
    def waiting(self) -> bool:
        """Whether sending has to wait for the peer or for the disk."""
        return self._waiting or self._prefetching

    def flush(self) -> None:
        """Send what the socket accepts; the rest is sent when the socket has room again."""
        if self._waiting or self._prefetching or not self._queue:
            return
        try:
            if not self._send() and not self._prefetching:
                self._wait()
        except OSError as failure:
            self._queue.clear()
            self._on_lost(failure.strerror or str(failure))

    def close(self) -> None:
        self._queue.clear()
        self._fd = -1
        duplicate, self._duplicate = self._duplicate, None
        if duplicate is not None:
            if self._waiting:
                self._loop.remove_writer(duplicate.fileno())
            duplicate.close()
        self._waiting = False

    def _send(self) -> bool:
        """True if everything is sent. Otherwise the socket has no room, or a prefetch has started."""
        queue = self._queue
        turn = _TURN
        try:
            while queue:
                if turn <= 0:
                    return False
                head = queue[0]
                if type(head) is FileSlice:
                    if head.position >= head.resident and not self._look(head):
                        return False
                    turn -= self._send_slice(head)
                else:
                    sent, complete = self._send_bytes()
                    turn -= sent
                    if not complete:
                        return False
        except BlockingIOError:
            return False
        return True

    def _send_bytes(self) -> tuple[int, bool]:
        queue = self._queue
        data = queue.popleft()
        if queue and len(data) < LARGE:
            run = [data]
            size = len(data)
            while queue and size < LARGE:
                if type(queue[0]) is FileSlice and not self._take_small(queue[0]):
                    break
                data = queue.popleft()
                run.append(data)
                size += len(data)
            if len(run) > 1:
                data = b"".join(run)  # type: ignore[arg-type]
        try:
            if queue and type(queue[0]) is FileSlice:
                # MSG_MORE: send the header in one TCP segment with the records that follow.
                sent = self._socket().send(data, socket.MSG_MORE)  # type: ignore[arg-type]
            else:
                sent = os.write(self._fd, data)  # type: ignore[arg-type]
        except BlockingIOError:
            queue.appendleft(data)
            raise
        self.unsent -= sent
        if sent < len(data):
            queue.appendleft(memoryview(data)[sent:])  # type: ignore[arg-type]
            return sent, False
        return sent, True

    def _take_small(self, piece: FileSlice) -> bool:
        """Replaces the slice at the head with its bytes, if they are few and in the page cache."""
        if piece.length > _SMALL or not piece.file.is_resident(piece.position, piece.length):
            return False
        data = piece.read()
        if len(data) < piece.length:
            raise _cut_short(piece)
        self._queue[0] = data
        self.unsent += len(data) - SLICE_COST
        return True

    def _send_slice(self, piece: FileSlice) -> int:
        handle = piece.file.open()
        length = min(piece.length, piece.resident - piece.position)
        sent = os.sendfile(self._socket().fileno(), handle.fd, piece.position, length)
        if sent == 0:
            raise _cut_short(piece)
        piece.position += sent
        piece.length -= sent
        if piece.length == 0:
            self._queue.popleft()
            self.unsent -= SLICE_COST
        return sent

    def _look(self, piece: FileSlice) -> bool:
        """Whether the next bytes are in the page cache. If not, a thread reads some of them. They are then
        sent even if the page cache has evicted them again, so that sending makes progress under any memory
        pressure."""
        length = min(piece.length, _TURN)
        if piece.file.is_resident(piece.position, length):
            piece.resident = piece.position + length
            return True
        length = min(length, _PREFETCH)
        self._prefetching = True
        work = self._loop.run_in_executor(None, piece.file.prefetch, piece.position, length)
        work.add_done_callback(lambda done: self._prefetched(done, piece, length))
        return False

    def _prefetched(self, done: asyncio.Future[None], piece: FileSlice, length: int) -> None:
        self._prefetching = False
        if self._fd < 0:
            return  # closed meanwhile
        failure = None if done.cancelled() else done.exception()
        if failure is not None:
            self._queue.clear()
            self._on_lost(str(failure))
            return
        piece.resident = piece.position + length
        if self._waiting:
            return
        try:
            if not self._send() and not self._prefetching:
                self._wait()
        except OSError as error:
            self._queue.clear()
            self._on_lost(error.strerror or str(error))
            return
        self._on_room()

    def _socket(self) -> socket.socket:
        if self._duplicate is None:
            self._duplicate = socket.socket(
                socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=os.dup(self._fd)
            )
        return self._duplicate

    def _wait(self) -> None:
        self._loop.add_writer(self._socket().fileno(), self._room)
        self._waiting = True

    def _room(self) -> None:
        assert self._duplicate is not None
        try:
            if not self._send() and not self._prefetching:
                self._on_room()
                return
        except OSError as failure:
            self._on_lost(failure.strerror or str(failure))
            return
        self._loop.remove_writer(self._duplicate.fileno())
        self._waiting = False
        self._on_room()


def _cut_short(piece: FileSlice) -> OSError:
    """The header has already announced the length, so without these bytes the stream cannot continue."""
    return OSError(f"{piece.file.path} ends before byte {piece.position + piece.length}")
