"""The state topic: one thread reads it into the state, and the leader writes to it in transactions.

Reading: a separate `read_committed` consumer reads from the beginning and hands batches to the event loop,
which alone changes the state. `applied(offset)` waits until the state includes that record. The state defines
what the records mean: a registry's schemas, or the catalog of SQL.

Writing: all servers of a group use the same transactional id, so `take_over` (init_transactions) fences the
previous writer: from then on the cluster rejects all its writes, including those in flight. Then the new
leader reads up to the topic's current end, so that it knows everything that was ever written. This is what
makes an id unique, not the clock and not the group's view of who leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from penstock.client.librdkafka import PROMPT_FETCH, with_login
from penstock.client.partitioning import KEY_PARTITIONER
from penstock.elected.errors import CannotStart, NoLongerLeader, RecordTooLarge, StoreUncertain

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer

log = logging.getLogger(__name__)
librdkafka_log = logging.getLogger("penstock.elected.librdkafka")
librdkafka_log.setLevel(logging.WARNING)
_SAY_AGAIN_SECONDS = 60.0
_Work = tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]

Encoded = tuple[bytes, bytes | None]
"""The key and the value of a record; None deletes the key."""

_FENCED = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING")


class _SayOnce(logging.Filter):
    """librdkafka reports each failed connection attempt, many times a second. This logs one of them now and
    then.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.getMessage().partition(" ")[0]  # FAIL, ERROR, …, from whichever client
        now = time.monotonic()
        if now - self._said.get(kind, -_SAY_AGAIN_SECONDS) < _SAY_AGAIN_SECONDS:
            return False
        self._said[kind] = now
        return True


librdkafka_log.addFilter(_SayOnce())


class Image(Protocol):
    """The state that records are read into."""

    offset: int
    """The offset of the last applied record; -1 before the first one."""

    @property
    def leader(self) -> str | None:
        """The URL that the last server to take over the topic wrote into it; None if it wrote none."""

    def apply(self, key: bytes | None, value: bytes | None, offset: int, timestamp: int | None) -> None: ...


class Store:
    """The state topic, for one server process. Used from its event loop."""

    def __init__(
        self,
        settings: dict[str, str],
        topic: str,
        transactional_id: str,
        state: Image,
        what: str = "registry",
    ) -> None:
        self.topic = topic
        self._settings = settings
        self._transactional_id = transactional_id
        self._what = what
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.on_applied: Callable[[], None] = lambda: None
        """Called when more records have been applied to the state."""
        self._position = 0
        """The next offset to read; past the last record if transaction markers follow it."""
        self._questions: SimpleQueue[tuple[asyncio.Future[int], float]] = SimpleQueue()
        self._caught_up = self._loop.create_future()
        self._stopping = threading.Event()
        self._reader = threading.Thread(target=self._read, name=f"{what}-reader", daemon=True)
        self._writer: Producer | None = None
        self._work: SimpleQueue[tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]] = (
            SimpleQueue()
        )
        # A daemon thread, unlike an executor's: the process must not wait for an unreachable cluster when it
        # ends.
        threading.Thread(target=self._write_all, name=f"{what}-writer", daemon=True).start()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        """Gets an exception when the topic can no longer be read."""

    @property
    def leader(self) -> str | None:
        return self._state.leader

    @property
    def empty(self) -> bool:
        """Whether nothing has been read from the topic: no server has taken it over yet."""
        return self._state.offset < 0

    # Reading

    async def load(self, timeout: float) -> None:
        """Start reading; return when the topic has been read to its end."""
        self._reader.start()
        done, _ = await asyncio.wait(
            [self._caught_up, self.failed], timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        if self.failed in done:
            self.failed.result()
        if not done:
            raise CannotStart(f"the topic {self.topic} could not be read to its end in {timeout:g} s")

    async def applied(self, offset: int, timeout: float) -> None:
        """Wait until the state includes the record at `offset`. Raises StoreUncertain if that takes too
        long.
        """
        if self._position > offset:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((offset, waiter))
        try:
            await asyncio.wait_for(waiter, timeout)
        except TimeoutError:
            raise StoreUncertain(f"offset {offset} was not read back in {timeout:g} s") from None

    async def read_to_end(self, timeout: float) -> None:
        """Wait until the state includes everything that is in the topic now."""
        asked: asyncio.Future[int] = self._loop.create_future()
        self._questions.put((asked, timeout))
        try:
            end = await asyncio.wait_for(asked, timeout + 1)
        except TimeoutError:
            raise StoreUncertain(f"no end offset of {self.topic} within {timeout:g} s") from None
        await self.applied(end - 1, timeout)

    def _tell_end(self, consumer: Consumer) -> None:
        """Answer those who wait for the end offset. In the reader's thread: librdkafka's consumers are for
        one thread.
        """
        from confluent_kafka import KafkaException, TopicPartition

        while not self._questions.empty():
            asked, timeout = self._questions.get()
            try:
                found = consumer.get_watermark_offsets(TopicPartition(self.topic, 0), timeout, cached=False)
            except KafkaException as error:
                self._call(_fail, asked, StoreUncertain(f"the end of {self.topic} is not known: {error}"))
                continue
            if found is None:
                self._call(_fail, asked, StoreUncertain(f"the end of {self.topic} is not known"))
            else:
                self._call(_succeed, asked, found[1])

    def _read(self) -> None:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer = None
        try:
            consumer = Consumer(
                with_login(
                    {
                        **self._settings,
                        # librdkafka requires one; no group is joined and nothing is committed.
                        "group.id": f"penstock-{self._what}",
                        "enable.auto.commit": False,
                        "auto.offset.reset": "earliest",
                        "isolation.level": "read_committed",
                        "reconnect.backoff.max.ms": 1000,
                        "enable.partition.eof": True,
                        "fetch.wait.max.ms": 100,
                        "fetch.error.backoff.ms": 50,
                        **PROMPT_FETCH,
                        "error_cb": _note,
                    }
                ),
                logger=librdkafka_log,
            )
            # By number: librdkafka needs half a second longer to look up the beginning.
            consumer.assign([TopicPartition(self.topic, 0, 0)])
            while not self._stopping.is_set():
                self._read_some(consumer)
                self._tell_end(consumer)
        except (KafkaException, RuntimeError) as error:
            self._call(self._fail, error)
        finally:
            if consumer is not None:
                consumer.close()

    def _read_some(self, consumer: Consumer) -> None:
        from confluent_kafka import KafkaError

        # Wait for one record; `consume` alone would wait until it has the maximum number.
        first = consumer.poll(0.05)
        if first is None:
            return
        messages = [first, *consumer.consume(1000, 0)]
        records, at_end = [], -1
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end = message.offset() or 0
            elif error.fatal() or error.code() in (
                KafkaError.UNKNOWN_TOPIC_OR_PART,
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
            ):
                log.error("reading %s: %s", self.topic, error.str())
            else:
                log.warning("reading %s: %s", self.topic, error.str())
        if records or at_end >= 0:
            self._call(self._take_in, records, at_end)

    def _call(self, function: Any, *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(function, *arguments)

    def _take_in(self, records: list[Message], at_end: int) -> None:
        for record in records:
            offset = record.offset()
            assert offset is not None
            kind, timestamp = record.timestamp()
            key, value = record.key(), record.value()
            self._state.apply(_bytes(key), _bytes(value), offset, timestamp if kind else None)
        self._position = max(self._position, self._state.offset + 1, at_end)
        if at_end >= 0 and not self._caught_up.done():
            self._caught_up.set_result(None)
        if records:
            self.on_applied()
        if self._waiting:
            for offset, waiter in self._waiting:
                if offset < self._position and not waiter.done():
                    waiter.set_result(None)
            self._waiting = [pair for pair in self._waiting if not pair[1].done()]

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(CannotStart(f"the topic {self.topic} cannot be read: {error}"))

    # Writing

    async def take_over(self, timeout: float) -> None:
        """Become the only writer: fence the others, and read everything that they wrote."""
        await self._in_writer(self._new_writer, timeout)
        await self.read_to_end(timeout)

    async def step_down(self) -> None:
        """Stop writing. A write in flight is rejected if another server has taken over."""
        await self._in_writer(self._drop_writer)

    async def write(self, records: Sequence[Encoded], timeout: float) -> int:
        """Write records in one transaction. Returns the last offset when the state includes them."""
        offset: int = await self._in_writer(self._transact, records, timeout)
        await self.applied(offset, timeout)
        return offset

    async def _in_writer(self, function: Any, *arguments: Any) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._work.put((future, function, arguments))
        return await future

    def _write_all(self) -> None:
        """The writer's thread: executes one task after the other."""
        while True:
            future, function, arguments = self._work.get()
            try:
                result = function(*arguments)
            except Exception as error:  # noqa: BLE001 - raised again where it is waited for
                self._call(_fail, future, error)
            else:
                self._call(_succeed, future, result)

    def _new_writer(self, timeout: float) -> None:
        from confluent_kafka import KafkaException, Producer

        self._drop_writer()
        writer = Producer(
            with_login(
                {
                    **self._settings,
                    "transactional.id": self._transactional_id,
                    "partitioner": KEY_PARTITIONER,
                    "transaction.timeout.ms": max(1000, int(timeout * 1000)),
                    "acks": "all",
                    "linger.ms": 0,
                    "compression.type": "none",
                    "message.max.bytes": 64 << 20,  # the broker reports records that are too large
                    "retry.backoff.ms": 20,
                    "retry.backoff.max.ms": 200,
                    "reconnect.backoff.max.ms": 1000,
                    "error_cb": _note,
                }
            ),
            logger=librdkafka_log,
        )
        try:
            writer.init_transactions(timeout)
        except KafkaException as error:
            raise _as_error(error, "taking over as the leader") from error
        self._writer = writer

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.purge()

    def _transact(self, encoded: Sequence[Encoded], timeout: float) -> int:
        from confluent_kafka import KafkaException

        writer = self._writer
        if writer is None:
            raise NoLongerLeader(f"this {self._what} is not the leader")
        offsets: list[int] = []
        trouble: list[Any] = []

        def delivered(error: Any, message: Message) -> None:
            if error is not None:
                trouble.append(error)
            else:
                offsets.append(message.offset() or 0)

        try:
            writer.begin_transaction()
            for key, value in encoded:
                writer.produce(self.topic, value, key, partition=0, on_delivery=delivered)
            writer.flush(timeout)
            if trouble or len(offsets) < len(encoded):
                raise self._refused(writer, trouble)
            writer.commit_transaction(timeout)
        except SystemError as error:
            # How confluent-kafka raises a fatal error from `flush` even if a delivery report is due.
            self._writer = None
            raise NoLongerLeader(f"writing: {error.__cause__ or error}") from error
        except KafkaException as error:
            failure = _as_error(error, "writing")
            if not isinstance(failure, NoLongerLeader):
                self._abort(writer)
            raise failure from error
        return max(offsets)

    def _refused(self, writer: Producer, trouble: list[Any]) -> Exception:
        error = trouble[0] if trouble else None
        self._abort(writer)
        if error is None:
            return StoreUncertain("the cluster did not acknowledge the record in time; nothing was written")
        if error.name() in ("MSG_SIZE_TOO_LARGE", "_MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"):
            return RecordTooLarge(error.str())
        if error.name() in _FENCED:
            return NoLongerLeader(error.str())
        return StoreUncertain(f"the cluster refused the record: {error.str()}")

    def _abort(self, writer: Producer) -> None:
        """Abort the transaction. If even that fails, the next write starts with a new writer."""
        from confluent_kafka import KafkaException

        try:
            writer.purge()
            writer.abort_transaction(10)
        except KafkaException as error:
            log.warning("the transaction could not be aborted: %s", error)
            self._writer = None

    async def close(self) -> None:
        self._stopping.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.step_down(), 2)
        if self._reader.is_alive():
            await self._loop.run_in_executor(None, self._reader.join, 5)


def _note(error: Any) -> None:
    """Receives librdkafka's errors outside of a call. Without this callback a fatal error is raised in any
    call.
    """
    log.debug("librdkafka: %s", error.str())


def _succeed(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _as_error(error: Any, doing: str) -> Exception:
    reason = error.args[0]
    if reason.name() in _FENCED or reason.fatal():
        return NoLongerLeader(f"{doing}: {reason.str()}")
    if reason.name() in ("MSG_SIZE_TOO_LARGE", "_MSG_SIZE_TOO_LARGE"):
        return RecordTooLarge(reason.str())
    return StoreUncertain(f"{doing}: {reason.str()}")
