"""A TLS connection: encrypts and decrypts in memory, and otherwise works like any other connection.

Handshakes run in a thread, because a signature takes milliseconds, and have a time limit. After the
handshake, bytes are decrypted into the buffer into which a plaintext connection would read. File slices
cannot be sent with sendfile: they are read and encrypted. If they are not in the page cache, a thread reads
them first.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import TYPE_CHECKING

from penstock.broker.net.connection import Connection
from penstock.broker.net.writer import LARGE, SLICE_COST, Writer
from penstock.broker.security.authentication.listener import ListenerSecurity
from penstock.log.files import FileSlice

if TYPE_CHECKING:
    from penstock.broker.net.server import Server

# How many bytes are encrypted at once, and by one connection in one iteration of the event loop.
_PIECE = 128 * 1024
_TURN = 1024 * 1024


class TlsConnection(Connection):
    __slots__ = ("_handshaken", "_incoming", "_outgoing", "_shaking", "_tls", "_tls_writer")

    def __init__(self, server: Server, listener: ListenerSecurity) -> None:
        super().__init__(server, listener)
        assert listener.tls is not None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = listener.tls.server.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._handshaken = False
        self._shaking = False

    def _make_writer(self, descriptor: int) -> Writer:
        self._tls_writer = TlsWriter(
            self._server.loop, descriptor, self._changed, self._lost, self._tls, self._outgoing
        )
        return self._tls_writer

    @property
    def is_authenticated(self) -> bool:
        return self._handshaken and super().is_authenticated

    # -- called by the transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.ciphertext

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._server.monotonic()
        self._incoming.write(self._server.ciphertext[:nbytes])
        if self._handshaken:
            self._decrypt()
        elif not self._shaking:
            self._shake()

    # -- the handshake

    def _shake(self) -> None:
        self._shaking = True
        self._transport.pause_reading()
        step = self._server.loop.run_in_executor(self._server.handshakes, self._step)
        step.add_done_callback(self._stepped)

    def _step(self) -> bool:
        """Runs in a thread. Returns whether the handshake is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def _stepped(self, step: asyncio.Future[bool]) -> None:
        self._shaking = False
        if self.closed or step.cancelled():
            return
        failure = step.exception()
        self._tls_writer.push()
        if failure is not None:
            reason = getattr(failure, "verify_message", None) or getattr(failure, "reason", None) or failure
            self._listener.on_failure(self.session, "TLS")
            self.close(f"TLS handshake failed: {reason}")
            return
        if self.closed:
            return
        if step.result():
            try:
                self.session.principal = self._listener.principal(self._tls)
            except ValueError as error:
                self._listener.on_failure(self.session, "TLS")
                self.close(f"TLS client not accepted: {error}")
                return
            self._handshaken = True
            if self.is_authenticated:
                self._server.places.authenticated(self)
        self._transport.resume_reading()
        if self._handshaken:
            self._decrypt()
        elif self._incoming.pending:
            self._shake()

    # -- after the handshake

    def _decrypt(self) -> None:
        """Decrypt received bytes and pass them on, while the connection has room for them."""
        read = self._tls.read
        more = True
        while more and not self.closed and not self._paused:
            view = super().get_buffer(-1)
            room, filled, over = len(view), 0, False
            try:
                while filled < room:
                    got: int = read(room - filled, view[filled:])  # type: ignore[assignment]
                    if not got:
                        over, more = True, False
                        break
                    filled += got
            except ssl.SSLWantReadError:
                more = False
            except ssl.SSLError as error:
                self.close(f"TLS failed: {error.reason}")
                return
            if filled:
                super().buffer_updated(filled)
            if over:
                self.close(None)
                return
        if self._outgoing.pending and not self.closed:
            self._tls_writer.push()

    def _resume(self) -> None:
        super()._resume()
        # Bytes that are already in memory do not trigger another read event.
        self._server.loop.call_soon(self._resumed)

    def _resumed(self) -> None:
        if self._handshaken and not self.closed and not self._paused:
            self._decrypt()

    def close(self, reason: str | None) -> None:
        if not self.closed and self._handshaken:
            self._tls_writer.say_goodbye()
        super().close(reason)


class TlsWriter(Writer):
    """Encrypts the queue piece by piece, as fast as the socket accepts it."""

    __slots__ = ("_cipher", "_outgoing", "_plain_size", "_tls")

    def __init__(self, loop, fd, on_room, on_lost, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO) -> None:  # type: ignore[no-untyped-def]
        super().__init__(loop, fd, on_room, on_lost)
        self._tls = tls
        self._outgoing = outgoing
        self._cipher = memoryview(b"")  # encrypted, but not yet sent
        self._plain_size = 0  # how much `unsent` counts for it

    def push(self) -> None:
        """Send the messages of the TLS library itself: handshakes, key updates, alerts."""
        if self._waiting or self._prefetching:
            return  # sent with the next piece
        try:
            if not self._send() and not self._prefetching:
                self._wait()
        except OSError as failure:
            self._queue.clear()
            self._on_lost(failure.strerror or str(failure))

    def say_goodbye(self) -> None:
        """Send a close_notify, if that is possible without waiting."""
        if self._cipher or self._waiting or self._fd < 0:
            return
        try:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # it would also wait for the close_notify of the peer
            os.write(self._fd, self._outgoing.read())
        except OSError:
            pass

    def _send(self) -> bool:
        turn = _TURN
        try:
            while True:
                while self._cipher:
                    sent = os.write(self._fd, self._cipher)
                    self._cipher = self._cipher[sent:]
                self.unsent -= self._plain_size
                self._plain_size = 0
                if self._outgoing.pending:
                    self._cipher = memoryview(self._outgoing.read())
                    continue
                if not self._queue:
                    return True
                if turn <= 0:
                    return False
                plain = self._next_piece()
                if plain is None:
                    return False
                turn -= len(plain)
                if plain:
                    self._tls.write(plain)
        except BlockingIOError:
            return False
        except ssl.SSLError as error:
            raise OSError(f"TLS failed: {error.reason}") from error

    def _next_piece(self) -> bytes | memoryview | None:
        """The next piece to encrypt; None while a thread reads it from disk."""
        queue = self._queue
        head = queue[0]
        if type(head) is FileSlice:
            if head.position >= head.resident and not self._look(head):
                return None
            length = min(head.length, head.resident - head.position, _PIECE)
            data = os.pread(head.file.open().fd, length, head.position)
            if not data:
                raise OSError(f"{head.file.path} ends before byte {head.position + head.length}")
            head.position += len(data)
            head.length -= len(data)
            if head.length == 0:
                queue.popleft()
                self._plain_size = SLICE_COST
            return data
        run: list[bytes | memoryview] = []
        size = 0
        while queue and size < LARGE and type(queue[0]) is not FileSlice:
            piece: bytes | memoryview = queue.popleft()  # type: ignore[assignment]
            run.append(piece)
            size += len(piece)
        plain = run[0] if len(run) == 1 else b"".join(run)
        if len(plain) > _PIECE:
            plain = memoryview(plain)
            queue.appendleft(plain[_PIECE:])
            plain = plain[:_PIECE]
        self._plain_size = len(plain)
        return plain
