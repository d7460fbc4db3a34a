"""One client connection: reads requests and sends the responses in the order of the requests.

Complete frames in the server's shared receive buffer are handled in place. If a frame is incomplete, the
connection borrows the buffer and continues to read into it; if too many buffers are lent, or the frame is
larger, the part moves to a buffer of the connection. A connection stops reading while it has too much to
send, too many requests in flight, a request that must finish before the next one starts, or no memory for its
next frame. Bytes that a request keeps while it waits for its response count as memory too (`Pending.held`).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import struct
from collections import deque
from typing import TYPE_CHECKING

from penstock.broker.net.dispatch import Answer, CloseConnection, Pending
from penstock.broker.net.session import Session
from penstock.broker.net.writer import Writer
from penstock.broker.security.authentication.listener import ListenerSecurity
from penstock.errors import WireError

if TYPE_CHECKING:
    from penstock.broker.net.server import ReceiveBuffer, Server

log = logging.getLogger(__name__)

_LENGTH = struct.Struct(">i").unpack_from

# With more unsent response bytes than this, no further request is handled.
MAX_UNSENT = 256 * 1024
# With more requests in flight (long polls) than this, no further request is handled.
MAX_PENDING = 64
# A request up to this size is handled even if others wait and the memory budget is spent.
_SMALL_FRAME = 4 * 1024
# The initial buffer of a partial frame; it grows with the bytes received, not with the announced size.
_FIRST_BUFFER = 64 * 1024
# With less room than this for the next read, the data in a borrowed buffer moves to its beginning.
_LEAST_READ = 64 * 1024
# Responses of up to this many bytes are sent together.
_FLUSH_SIZE = 64 * 1024
# After this many seconds, further buffered requests wait for the next iteration of the event loop, so that
# other connections get their turn.
_TURN_S = 0.05
# For a partial frame: how many seconds may pass without a byte, and in total.
FRAME_STALL_S = 30.0
_FRAME_TOTAL_S = 60.0
_FRAME_MIN_RATE = 16 * 1024
# IPv4 clients of a socket that listens on [::].
_MAPPED = "::ffff:"


class Slot:
    """The position of one response in the order of requests; it is ready if `pending` is None."""

    __slots__ = ("answer", "pending")

    def __init__(self, pending: Pending | None, answer: Answer = None) -> None:
        self.pending = pending
        self.answer = answer


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_borrowed", "_borrowed_from", "_charged", "_exclusive", "_filled", "_frame_size", "_frame_started",
        "_hungry", "_kept", "_listener", "_muted", "_partial", "_paused", "_resting", "_server", "_slots",
        "_starved", "_timer", "_transport", "_unsent_charged", "_writer", "closed", "last_active", "peer",
        "session",
    )  # fmt: skip

    def __init__(self, server: Server, listener: ListenerSecurity) -> None:
        self._server = server
        self._listener = listener
        self._timer: asyncio.TimerHandle | None = None  # the authentication timeout
        self.session = Session(listener=listener.name)
        if listener.sasl is not None:
            listener.sasl.admit(self.session)
        self._borrowed: ReceiveBuffer | None = None  # the beginning of a frame is in it, at _borrowed_from
        self._borrowed_from = 0
        self._partial: bytearray | None = None  # the incomplete frame
        self._filled = 0
        self._frame_size = 0  # including the length field; 0 while that is incomplete
        self._frame_started = 0.0
        self._hungry = False  # the frame needs more memory than there is
        self._starved = False  # its requests in flight hold memory, and there is none for another one
        self._kept: bytearray | None = None  # received frames that must wait
        self._charged = 0
        self._unsent_charged = 0
        self._slots: deque[Slot] = deque()
        self._exclusive = False
        self._resting = False  # its time slice is over; it continues in the next loop iteration
        self._muted: asyncio.TimerHandle | None = None  # muted because of a quota, until the timer fires
        self._paused = False
        self.closed = False
        self.last_active = 0.0
        self.peer = "?"

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        server = self._server
        address = transport.get_extra_info("peername")
        self.peer = self.session.peer = f"{_host(address[0])}:{address[1]}" if address else "?"
        self.last_active = server.monotonic()
        descriptor = transport.get_extra_info("socket").fileno()
        self._writer = self._make_writer(descriptor)
        if self._listener.timeout_s is not None:
            self._timer = server.loop.call_later(self._listener.timeout_s, self._timed_out)
        server.opened(self)

    def _make_writer(self, descriptor: int) -> Writer:
        return Writer(self._server.loop, descriptor, self._changed, self._lost)

    @property
    def listener_name(self) -> str:
        return self._listener.name

    @property
    def address(self) -> str:
        return self.peer.rpartition(":")[0]

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has completed the authentication that the listener requires."""
        return self.session.login is None or self.session.login.is_done

    def _timed_out(self) -> None:
        if not self.is_authenticated:
            self.close("not authenticated in time (penstock.authentication.timeout.ms)")

    def get_buffer(self, sizehint: int) -> memoryview:
        partial = self._partial
        if partial is not None:
            return memoryview(partial)[self._filled :]
        borrowed = self._borrowed
        if borrowed is not None:
            return borrowed.view[self._filled :]
        server = self._server
        return server.receiving.small_view if server.budget.spent else server.receiving.view

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._server.monotonic()
        partial = self._partial
        if self._borrowed is not None:
            self._filled += nbytes
            self._continue(self._borrowed)
        elif partial is None:
            self._consume(self._server.receiving.data, 0, nbytes)
        else:
            self._filled += nbytes
            if self._filled < len(partial):
                return
            if self._frame_size == 0:
                size = _LENGTH(partial, 0)[0]
                if not 0 < size <= (self.session.max_frame or self._server.max_frame):
                    self._consume(partial, 0, 4)
                    return
                self._frame_size = 4 + size
            if self._filled < self._frame_size:
                self._grow(partial)
            else:
                self._partial = None
                self._consume(partial, 0, self._filled)
                self._release(len(partial))  # only now, when its new holder is charged for it
                if self._kept is None:
                    self._server.budget.finished(self)
        if not self.closed:
            self._pace()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._muted is not None:
            self._muted.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._writer.close()
        self._release(self._charged)
        self._charge_unsent(0)
        self._give_back()
        self._server.budget.forget(self)
        for slot in self._slots:
            if slot.pending is not None:
                slot.pending.abandon()
        self._slots.clear()
        self._server.lost(self)

    # -- frames

    def _consume(self, buf: bytearray, pos: int, end: int) -> None:
        """Handle the frames in buf[pos:end], send their responses, and keep the remaining bytes."""
        session = self.session
        dispatch, max_frame = self._server.dispatch, self._server.max_frame
        if session.gate is not None:
            dispatch = functools.partial(session.gate, dispatch)
            max_frame = session.max_frame or max_frame
        writer = self._writer
        slots = self._slots
        ready: list[bytes] = []
        ready_size = 0
        waiting = False
        monotonic = self._server.monotonic
        turn_ends = monotonic() + _TURN_S
        try:
            while end - pos >= 4:
                size = _LENGTH(buf, pos)[0]
                if not 0 < size <= max_frame:
                    raise WireError(f"a request of {size} bytes; socket.request.max.bytes is {max_frame}")
                start = pos + 4
                if end - start < size:
                    break
                if (slots or writer.unsent or self._muted) and self._must_wait():
                    waiting = True
                    break
                if slots and size > _SMALL_FRAME and self._server.budget.spent:
                    self._starve()
                    waiting = True
                    break
                if monotonic() > turn_ends:
                    self._rest()
                    waiting = True
                    break
                pos = start + size
                response = dispatch(session, buf, start, pos)
                if session.mute_ms:
                    self.mute(session.mute_ms)
                if type(response) is bytes and not slots:
                    ready.append(response)
                    ready_size += len(response)
                    if ready_size < _FLUSH_SIZE:
                        continue
                if ready:
                    writer.put(b"".join(ready))
                    writer.flush()
                    ready.clear()
                    ready_size = 0
                    if self.closed:
                        return
                if response is not None and (slots or type(response) is not bytes):
                    self._queue(response)
        except (WireError, CloseConnection) as reason:
            if ready:
                writer.put(b"".join(ready))
            writer.flush()
            self.close(str(reason))
            return
        if ready:
            writer.put(b"".join(ready))
        if self.closed:
            return
        if waiting:
            self._keep(buf, pos, end)
        elif pos < end:
            self._collect(buf, pos, end)
        else:
            self._filled = 0
        writer.flush()
        if writer.waiting or self._unsent_charged:
            self._charge_unsent(writer.unsent if writer.waiting else 0)

    def _must_wait(self) -> bool:
        """Whether the next request has to wait for another response, or for the peer to read one."""
        if self._exclusive or self._resting or self._muted or len(self._slots) >= MAX_PENDING:
            return True
        if self._starved:
            if self._slots and self._server.budget.spent:
                return True
            self._starved = False
        writer = self._writer
        if writer.unsent > MAX_UNSENT:
            writer.flush()
            return self.closed or writer.unsent > MAX_UNSENT
        return writer.waiting and self._server.budget.spent

    def _keep(self, buf: bytearray, pos: int, end: int) -> None:
        """Keep complete frames that must wait."""
        if pos == 0 and not self._is_shared(buf):
            self._kept = buf
        else:
            self._kept = bytearray(memoryview(buf)[pos:end])
        self._charge(len(self._kept))

    def _is_shared(self, buf: bytearray) -> bool:
        borrowed = self._borrowed
        return buf is self._server.receiving.data or (borrowed is not None and buf is borrowed.data)

    def _collect(self, buf: bytearray, pos: int, end: int) -> None:
        """Keep the beginning of a frame in a buffer that has room for the rest."""
        rest = end - pos
        size = 4 + _LENGTH(buf, pos)[0] if rest >= 4 else 0
        self._frame_size = size
        self._filled = end
        borrowed = self._borrowed
        if borrowed is None and size <= len(buf) and buf is self._server.receiving.data:
            self._borrowed = borrowed = self._server.lend()
            self._borrowed_from = -1
        if borrowed is not None and buf is borrowed.data and size <= len(buf):
            if pos != self._borrowed_from:
                self._frame_started = self.last_active
            if pos + max(size, rest + _LEAST_READ) > len(buf):
                borrowed.view[:rest] = borrowed.view[pos:end]
                pos, self._filled = 0, rest
            self._borrowed_from = pos
            return
        room = min(size, max(_FIRST_BUFFER, 4 * rest)) if size else 4
        if not self._server.budget.request(self):
            self._hungry = True
            room = rest
        partial = bytearray(room)
        partial[:rest] = memoryview(buf)[pos:end]
        self._partial = partial
        self._filled = rest
        self._frame_started = self.last_active
        self._charge(room)

    def _continue(self, borrowed: ReceiveBuffer) -> None:
        """More bytes were received into the borrowed buffer."""
        self._consume(borrowed.data, self._borrowed_from, self._filled)
        if self._partial is not None or self._kept is not None or self._filled == 0:
            self._give_back()

    def _give_back(self) -> None:
        borrowed, self._borrowed = self._borrowed, None
        if borrowed is not None:
            self._server.give_back(borrowed)

    def _grow(self, partial: bytearray) -> None:
        """Enlarge the buffer of a frame that has filled it."""
        self._hungry = not self._server.budget.request(self)
        if self._hungry:
            return
        size = self._frame_size
        larger = bytearray(min(size, max(_FIRST_BUFFER, 4 * self._filled)) if size else 4)
        larger[: self._filled] = memoryview(partial)[: self._filled]
        self._partial = larger
        self._charge(len(larger) - len(partial))

    def granted(self) -> None:
        """There is memory again for the incomplete frame, or for a kept one."""
        if self.closed:
            return
        self.last_active = self._server.monotonic()
        if self._partial is not None and self._hungry:
            self._grow(self._partial)
        if self._starved:
            self._changed()
        else:
            self._pace()

    # -- responses

    def _queue(self, response: Pending | Answer) -> None:
        if isinstance(response, Pending):
            slot = Slot(response)
            self._slots.append(slot)
            if response.held:
                response.hold(self._server.budget)
                self._server.budget.hand_on(self, response)
            if response.exclusive:
                self._exclusive = True
                response.on_begun = self._begun
            response.when_done(lambda answer: self._completed(slot, answer))
        elif self._slots:
            self._slots.append(Slot(None, response))
        else:
            self._put(response)

    def _put(self, answer: Answer) -> None:
        if isinstance(answer, bytes):
            self._writer.put(answer)
        elif answer is not None:
            self._writer.put_all(answer)

    def _completed(self, slot: Slot, answer: Answer | CloseConnection) -> None:
        if self.closed:
            return
        if isinstance(answer, CloseConnection):
            self._put(answer.answer)
            self._writer.flush()
            self.close(str(answer))
            return
        if self.session.mute_ms:
            self.mute(self.session.mute_ms)
        if slot.pending is not None and slot.pending.exclusive:
            self._exclusive = False
        slot.pending = None
        slot.answer = answer
        slots = self._slots
        while slots and slots[0].pending is None:
            self._put(slots.popleft().answer)
        self._writer.flush()
        self._changed()

    def _begun(self) -> None:
        """The exclusive request turned out to be one that later requests need not wait for."""
        self._exclusive = False
        if not self.closed:
            self._changed()

    # -- flow control

    def mute(self, wait_ms: int) -> None:
        """Read no further requests for `wait_ms`; requests in flight still get their responses."""
        self.session.mute_ms = 0
        loop = self._server.loop
        if self._muted is not None:
            if self._muted.when() >= loop.time() + wait_ms / 1000:
                return
            self._muted.cancel()
        self._muted = loop.call_later(wait_ms / 1000, self._unmute)
        self._pace()

    def _unmute(self) -> None:
        self._muted = None
        if not self.closed:
            self._changed()

    def _starve(self) -> None:
        self._starved = True
        self._server.budget.await_room(self)

    def _rest(self) -> None:
        self._resting = True
        self._server.loop.call_soon(self._rested)

    def _rested(self) -> None:
        self._resting = False
        if not self.closed:
            self._changed()

    def _changed(self) -> None:
        """Check whether the connection can continue, because what made it wait may be over."""
        self.last_active = self._server.monotonic()
        self._charge_unsent(self._writer.unsent if self._writer.waiting else 0)
        while self._kept is not None and not self.closed and not self._must_wait():
            kept, self._kept = self._kept, None
            self._consume(kept, 0, len(kept))
            self._release(len(kept))
            if self._kept is None:
                self._server.budget.finished(self)
        if not self.closed:
            self._pace()

    def _pace(self) -> None:
        """Pause reading while there is no room for more requests; resume it when there is."""
        if self._kept is not None or self._hungry or self._must_wait():
            if not self._paused and not self.closed:
                self._paused = True
                self._transport.pause_reading()
        elif self._paused:
            self._paused = False
            self._resume()

    def _resume(self) -> None:
        self._transport.resume_reading()

    # -- memory

    def _charge(self, amount: int) -> None:
        self._charged += amount
        self._server.budget.charge(amount)

    def _release(self, amount: int) -> None:
        if amount:
            self._charged -= amount
            self._server.budget.release(amount)

    def _charge_unsent(self, amount: int) -> None:
        change = amount - self._unsent_charged
        self._unsent_charged = amount
        if change > 0:
            self._server.budget.charge(change)
        elif change < 0:
            self._server.budget.release(-change)

    # -- the end

    def stalled(self, now: float) -> bool:
        """Whether the rest of an incomplete frame does not arrive, or far too slowly."""
        if (self._partial is None and self._borrowed is None) or self._paused:
            return False
        if now - self.last_active > FRAME_STALL_S:
            return True
        return now - self._frame_started > _FRAME_TOTAL_S + self._frame_size / _FRAME_MIN_RATE

    @property
    def idle(self) -> bool:
        """Whether no request is in flight."""
        return not self._slots

    def _lost(self, reason: str) -> None:
        log.debug("%s: %s", self.peer, reason)
        self.close(None)

    def close(self, reason: str | None) -> None:
        """Close now; if there is a reason, it is logged."""
        if self.closed:
            return
        self.closed = True
        if reason:
            self._server.complain(self.peer, reason)
        self._transport.abort()


def _host(address: str) -> str:
    """The address as ACLs and quotas name it: an IPv4 client of an IPv6 socket has its IPv4 address, as in
    Java.
    """
    return address.removeprefix(_MAPPED) if "." in address else address
