"""Requests from one broker to another."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.cluster.peers import PeerConnection, Peers
from penstock.errors import PeerUnavailable
from penstock.wire.api_keys import ApiKey


class Connection:
    is_open = True

    def __init__(self) -> None:
        self.sent: asyncio.Event = asyncio.Event()

    def send(self, api: ApiKey, version: int, body: bytes, timeout: float) -> asyncio.Future[bytearray]:
        self.answer: asyncio.Future[bytearray] = asyncio.get_running_loop().create_future()
        self.sent.set()
        return self.answer


@pytest.mark.promise(
    "reassignment", "A broker that stops ends all its fetches and writes to no log that it has closed"
)
def test_a_cancellation_counts_when_it_comes_together_with_the_answer() -> None:
    """A broker that stops waits for its fetchers: one that forgot that it was cancelled never ended."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        config = SimpleNamespace(replica_socket_timeout_ms=30_000)
        broker: Any = SimpleNamespace(loop=loop, config=config)
        peers, connection = Peers(broker), Connection()

        async def connect(broker_id: int, purpose: str) -> Any:
            return connection

        peers._connect = connect  # type: ignore[method-assign]
        task = loop.create_task(peers.exchange(1, ApiKey.FETCH, 12, b""))
        await connection.sent.wait()
        connection.answer.set_result(bytearray(8))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


class Transport:
    """What is written goes nowhere; `receive` is what the other side sends."""

    def __init__(self) -> None:
        self.connection = PeerConnection(1, "broker-2-test", asyncio.get_running_loop())
        self.connection.connection_made(self)  # type: ignore[arg-type]
        self.reads = 0
        self.aborted = False

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True

    def ask(self, timeout: float = 60) -> asyncio.Future[bytearray]:
        return self.connection.send(ApiKey.FETCH, 17, b"", timeout)

    def receive(self, data: bytes, most: int = 1 << 30) -> None:
        while data:
            buffer = self.connection.get_buffer(-1)
            count = min(len(buffer), len(data), most)
            buffer[:count] = data[:count]
            self.reads += 1
            self.connection.buffer_updated(count)
            data = data[count:]


def answer(correlation_id: int, size: int) -> bytes:
    body = correlation_id.to_bytes(4, "big") + bytes(i % 251 for i in range(size))
    return len(body).to_bytes(4, "big") + body


def test_small_answers_that_come_together_take_one_read() -> None:
    async def main() -> None:
        wire = Transport()
        waiting = [wire.ask() for _ in range(3)]
        wire.receive(b"".join(answer(number, 100 * number) for number in (1, 2, 3)))
        assert wire.reads == 1
        assert [bytes(one.result()) for one in waiting] == [answer(n, 100 * n)[4:] for n in (1, 2, 3)]

    asyncio.run(main())


@pytest.mark.promise(
    "reassignment",
    "A request to another broker that gets no response closes the connection for all requests on it; "
    "pipelined responses are matched to their requests",
)
@pytest.mark.parametrize("most", [1, 3, 5, 1000, 1 << 14, 1 << 30])
def test_answers_of_any_size_are_whole_however_they_come(most: int) -> None:
    async def main() -> None:
        wire = Transport()
        sizes = (0, 20_000, 3, (1 << 14) - 8, 40_000, 7)
        waiting = [wire.ask() for _ in sizes]
        wire.receive(b"".join(answer(number, size) for number, size in enumerate(sizes, 1)), most)
        for number, (one, size) in enumerate(zip(waiting, sizes, strict=True), 1):
            assert bytes(one.result()) == answer(number, size)[4:]

    asyncio.run(main())


@pytest.mark.promise(
    "reassignment",
    "A request to another broker that gets no response closes the connection for all requests on it; "
    "pipelined responses are matched to their requests",
)
def test_an_answer_that_is_late_ends_the_connection_for_all_that_wait() -> None:
    async def main() -> None:
        wire = Transport()
        patient, late = wire.ask(), wire.ask(0.01)
        for one in (late, patient):
            with pytest.raises(PeerUnavailable, match=r"no answer to FETCH in 0\.01 s") as raised:
                await one
            assert raised.value.sent
        assert wire.aborted
        assert not wire.connection.is_open

    asyncio.run(main())


def test_a_request_that_is_answered_does_not_end_those_after_it() -> None:
    """Their deadlines are later than the timer that was set for the first."""

    async def main() -> None:
        wire = Transport()
        wire.ask(0.01)
        wire.receive(answer(1, 8))
        second = wire.ask(60)
        wire.connection._expire()  # the timer of the first
        wire.receive(answer(2, 8))
        assert second.done()

    asyncio.run(main())
