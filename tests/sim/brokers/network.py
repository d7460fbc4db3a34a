"""A network in memory. Each connection keeps its order; between connections there is none.

What is sent arrives late, sometimes by seconds. A connection that is cut ends for its two sides at
different times, and what is on the way may still arrive: so a request may be handled after its sender has
given up on it and sent it again by another connection.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from penstock.broker.net.server import Server
from penstock.broker.security.authentication.listener import ListenerSecurity
from penstock.log.files import FileSlice
from tests.sim.brokers.loop import PROCESS, WORLD, Process, SimLoop, in_process

_FIRST_FD = 1_000_000
_TOO_LONG = 60.0


class Endpoint:
    """A listening address."""

    def __init__(self, network: Network, host: str, port: int) -> None:
        self.network = network
        self.address = (host, port)
        self.factory: Callable[[], asyncio.BaseProtocol] | None = None
        self.context: contextvars.Context | None = None
        self.process = PROCESS.get()

    def close(self) -> None:
        if self.network.endpoints.get(self.address) is self:
            del self.network.endpoints[self.address]


class _InOrder(dict[Any, None]):
    """A set whose order is that of its making, not that of addresses in memory."""

    def add(self, one: Any) -> None:
        self[one] = None

    def discard(self, one: Any) -> None:
        self.pop(one, None)


class SimServer(Server):
    """The broker's server, which binds to addresses of the simulated network."""

    network: Network

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.connections = _InOrder()  # type: ignore[assignment]

    def bind(self, host: str, port: int, listener: ListenerSecurity) -> int:
        endpoint = Endpoint(self.network, host, port)
        self._bound.append((listener, endpoint))  # type: ignore[arg-type]
        return port


class _Socket:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd


class SimTransport(asyncio.Transport):
    """One side of a connection."""

    def __init__(self, network: Network, process: Process, context: contextvars.Context, fd: int) -> None:
        super().__init__()
        self._network = network
        self._loop = network.loop
        self.process = process
        self._context = context
        self._protocol: Any = None
        self.other: SimTransport
        self.fd = fd
        self.closing = False  # by this side
        self.ended = False  # this side knows that it is over
        self._reading = True
        self._inbox: deque[bytes | None] = deque()  # None: the end
        self.last_arrival = 0.0  # of what was sent to this side
        self.address = ("10.0.0.1", fd)

    # the protocol's side

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol  # type: ignore[no-any-return]

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return _Socket(self.fd)
        return self.other.address if name == "peername" else default

    @property
    def client_id(self) -> str:
        """What the one who made the connection calls itself."""
        return str(getattr(self._protocol, "_client_id", b""), "utf-8")

    def is_closing(self) -> bool:
        return self.closing or self.ended

    def write(self, data: Any) -> None:
        if not self.is_closing() and data:
            self._network.send(self, bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self._inbox:
            self._loop.call_soon(self._drain, context=self._context)

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.closing:
            self.closing = True
            self._network.ended_by(self)
            self._loop.call_soon(self._end, None, context=self._context)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    # the network's side

    def arrived(self, data: bytes | None) -> None:
        if not self.ended:
            self._inbox.append(data)
            self._drain()

    def _drain(self) -> None:
        inbox = self._inbox
        while inbox and not self.ended:
            if inbox[0] is None:
                self._end(ConnectionResetError("the connection was reset"))
                return
            if not self._reading or self.closing:
                return
            data = inbox.popleft()
            assert data is not None
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)
            return
        view = memoryview(data)
        while view and not self.ended:
            buffer = protocol.get_buffer(len(view))
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            protocol.buffer_updated(count)
            view = view[count:]
            if view and not self._reading:
                self._inbox.appendleft(bytes(view))
                return

    def _end(self, error: Exception | None) -> None:
        if not self.ended:
            self.ended = self.closing = True
            self._inbox.clear()
            self._network.transports.pop(self.fd, None)
            self._protocol.connection_lost(error)


class SimWriter:
    """The broker's writer to a socket, here to a transport of the simulated network."""

    network: Network
    waiting = False

    def __init__(
        self, loop: object, fd: int, on_room: Callable[[], None], on_lost: Callable[[str], None]
    ) -> None:
        self._transport: SimTransport | None = self.network.transports[fd]
        self._queue: list[Any] = []
        self._on_lost = on_lost
        self.unsent = 0

    def put(self, chunk: Any) -> None:
        self._queue.append(chunk)

    def put_all(self, chunks: Iterable[Any]) -> None:
        self._queue.extend(chunks)

    def flush(self) -> None:
        queue, self._queue = self._queue, []
        if not queue or self._transport is None:
            return
        try:
            data = b"".join(chunk.read() if isinstance(chunk, FileSlice) else chunk for chunk in queue)
        except OSError as failure:
            self._on_lost(str(failure))
            return
        self._transport.write(data)

    def close(self) -> None:
        self._queue.clear()
        self._transport = None


class Network:
    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.rng = loop.rng
        self.endpoints: dict[tuple[str, int], Endpoint] = {}
        self.transports: dict[int, SimTransport] = {}
        self._next_fd = _FIRST_FD
        self._apart: dict[frozenset[str], float] = {}  # pairs of processes, and until when
        self._slow: dict[int, float] = {}
        self.calm = False
        self.note: Callable[[str], None] = lambda text: None
        self.on_send: Callable[[SimTransport, bytes], None] = lambda transport, data: None

    # what processes call

    def listen(self, factory: Callable[[], asyncio.BaseProtocol], endpoint: Endpoint) -> Endpoint:
        endpoint.factory = factory
        endpoint.context = contextvars.copy_context()
        endpoint.process = PROCESS.get()
        self.endpoints[endpoint.address] = endpoint
        return endpoint

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[SimTransport, Any]:
        process = PROCESS.get()
        await asyncio.sleep(self._latency())
        endpoint = self.endpoints.get((host, port))
        if endpoint is None or not endpoint.process.alive or endpoint.factory is None:
            raise ConnectionRefusedError(f"nobody listens at {host}:{port}")
        held = self._held(process, endpoint.process)
        if held > 0:
            await asyncio.sleep(min(held, _TOO_LONG))
            raise TimeoutError(f"{host}:{port} cannot be reached")
        here = self._transport(process, contextvars.copy_context())
        there = self._transport(endpoint.process, endpoint.context)
        here.other, there.other = there, here
        protocol = factory()
        here.set_protocol(protocol)
        there.set_protocol(endpoint.factory())
        self.loop.call_soon(there._protocol.connection_made, there, context=there._context)
        protocol.connection_made(here)
        return here, protocol

    def _transport(self, process: Process, context: contextvars.Context | None) -> SimTransport:
        self._next_fd += 1
        assert context is not None
        transport = SimTransport(self, process, context, self._next_fd)
        self.transports[self._next_fd] = transport
        return transport

    def send(self, sender: SimTransport, data: bytes) -> None:
        self.on_send(sender, data)
        self._deliver(
            sender.other, data, self._latency(sender) + self._held(sender.process, sender.other.process)
        )

    def ended_by(self, side: SimTransport) -> None:
        """One side has closed it; the other hears of it after what was sent before."""
        self._deliver(side.other, None, self._latency() + self._held(side.process, side.other.process))

    def _deliver(self, receiver: SimTransport, data: bytes | None, delay: float) -> None:
        when = max(self.loop.now + delay, receiver.last_arrival)
        receiver.last_arrival = when
        self.loop.call_at(when, receiver.arrived, data, context=receiver._context)

    def _latency(self, transport: SimTransport | None = None) -> float:
        rng = self.rng
        if transport is not None and self.loop.now < self._slow.get(transport.fd, 0.0):
            return rng.random() * 1.5
        if not self.calm and rng.random() < 0.01:
            return rng.random() * 0.3
        return 0.0002 + rng.random() * 0.002

    def _held(self, one: Process, other: Process) -> float:
        until = self._apart.get(frozenset((one.name, other.name)), 0.0)
        return max(0.0, until - self.loop.now)

    # faults

    def between(self, one: Process, other: Process | None = None) -> list[SimTransport]:
        """The client's side of connections of a process, those to another one alone if it is named."""
        return [
            side
            for side in list(self.transports.values())
            if side.process is one and not side.is_closing() and other in (None, side.other.process)
        ]

    def cut(self, side: SimTransport, latest: float) -> None:
        """The connection is gone; each side hears of it some time, maybe after what was on the way."""
        self.note(f"cut {side.process}-{side.other.process}")
        for one in (side, side.other):
            if not one.ended:
                self._deliver(one, None, self.rng.random() * latest)

    def slow(self, side: SimTransport, seconds: float) -> None:
        self.note(f"slow {side.process}-{side.other.process} for {seconds:.2f} s")
        self._slow[side.fd] = self._slow[side.other.fd] = self.loop.now + seconds

    def stall(self, side: SimTransport, seconds: float) -> None:
        """Nothing passes, in either direction, and nobody notices."""
        for one in (side, side.other):
            one.last_arrival = max(one.last_arrival, self.loop.now + seconds)

    def strand(self, side: SimTransport, after: float, late: float) -> None:
        """What this side sends from now on arrives late, and it loses the connection before that: it sends
        the same again by another one, and the first arrives all the same. No answer comes back."""
        self.note(f"strand {side.process}-{side.other.process} for {late:.2f} s")
        there = side.other
        there.last_arrival = max(there.last_arrival, self.loop.now + late)
        self._deliver(side, None, after)
        self.loop.call_later(late, self._deliver, there, None, 0.0)

    def part(self, one: str, other: str, seconds: float) -> None:
        self._apart[frozenset((one, other))] = self.loop.now + seconds

    def killed(self, process: Process) -> None:
        """The kernel of the machine resets what the process had open."""
        for endpoint in list(self.endpoints.values()):
            if endpoint.process is process:
                endpoint.close()
        for side in list(self.transports.values()):
            if side.process is process:
                del self.transports[side.fd]
                side.ended = True
                other = side.other
                if not other.ended:
                    in_process(WORLD).run(self._deliver, other, None, self._latency())

    def heal(self) -> None:
        self._apart.clear()
        self._slow.clear()
        self.calm = True
