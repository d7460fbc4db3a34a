"""Writes rows of Arrow batches as records of topics, with librdkafka's producer, in a task of the sink.

`split` is pure: it divides a batch into runs of rows with one topic and partition, in their order.
`TaskProducer` sends them, keeps a bounded number in flight, and reports failures. The caller (`writers.py`)
decides whether they are part of a transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.client.errors import BadClientSetting
from penstock.client.librdkafka import with_login
from penstock.client.librdkafka_names import translate
from penstock.client.partitioning import KEY_PARTITIONER
from penstock.spark.errors import BadOption, BadRow, Fenced, NotDelivered, SparkError

BY_KEY = -1
"""No partition was asked for: the hash of the key decides, as in Kafka's Java clients, or else chance."""

_MOST_RECORDS_HELD = 200_000
_RECORDS_AT_ONCE = 10_000
_DEFAULT_MEMORY = 128 << 20
_DEFAULT_BLOCK_MS = 60_000
_DEFAULT_DELIVERY_MS = 120_000
_DEFAULT_TRANSACTION_MS = 300_000
_SLICE_S = 0.5
_FENCED = frozenset({
    KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
})  # fmt: skip
_NO_ANSWER = frozenset({
    KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._MSG_TIMED_OUT, KafkaError._ALL_BROKERS_DOWN,
})  # fmt: skip
_HOPELESS = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED})


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of the sink's columns in the DataFrame, and the topic of the option."""

    value: int
    key: int | None = None
    topic: int | None = None
    partition: int | None = None
    headers: int | None = None
    timestamp: int | None = None
    fixed_topic: str | None = None


class RowsIdentity(NamedTuple):
    """A checksum of rows: numbers that can be added."""

    by_key: int
    """Over topic, partition and key; over the value for rows without a key."""
    whole: int
    """Over all columns."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one topic and partition, in their order."""

    topic: str
    partition: int
    keys: list[bytes | None] | None
    values: list[bytes | None]
    headers: list[list[tuple[str, str | bytes | None]]] | None
    timestamps: list[int | None] | None
    """Milliseconds since 1970; None: the time of sending."""
    largest: int
    """The maximum size of a record."""
    key_bytes: int

    def identity(self) -> RowsIdentity:
        """Distinguishes these rows from others, independently of their order."""
        seed = crc32(f"{self.topic}/{self.partition}".encode())
        values = keys = _hashes(self.values, seed)
        if self.keys is not None:
            keys = _hashes(self.keys, ~seed & 0xFFFFFFFF)
            keys = np.where(keys == _NULL, values, keys)
        # A CRC is linear: sums of CRCs are the same for rows that only swapped parts of their values.
        # Products of odd numbers are not.
        whole = (2 * keys + 1) * (2 * values + 1) * (2 * values + 1)
        if self.headers is not None:
            whole *= 2 * _hashes([repr(each).encode() for each in self.headers], seed) + 1
        if self.timestamps is not None:
            moments = (0 if each is None else 2 * each + 2 for each in self.timestamps)
            whole *= np.fromiter(moments, np.int64, len(values)).view(np.uint64) + 1
        return RowsIdentity(int(keys.sum()), int(whole.sum()) * (seed | 1) & _64_BITS)


_NULL = 1 << 32
_64_BITS = (1 << 64) - 1


def _hashes(items: Sequence[bytes | None], seed: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    try:
        return np.fromiter(map(crc32, items, repeat(seed)), np.uint64, len(items))  # type: ignore[arg-type]
    except TypeError:
        each_one = (_NULL if each is None else crc32(each, seed) for each in items)
        return np.fromiter(each_one, np.uint64, len(items))


def split(batch: pa.RecordBatch, layout: Layout) -> Iterator[Rows]:
    """The rows of a batch by topic and partition; BadRow for a null topic or a negative partition."""
    partitions = _partitions(batch, layout)
    if layout.fixed_topic is not None:
        topics: pa.DictionaryArray | None = None
        names = [layout.fixed_topic]
    else:
        column = batch.column(layout.topic)
        if column.null_count:
            raise BadRow(
                "null topic present in the data: use the option topic for setting one topic for all rows, or"
                " fill the column"
            )
        topics = column.dictionary_encode()
        names = topics.dictionary.to_pylist()
    if len(names) == 1 and partitions is None:
        yield _rows(batch, layout, names[0], BY_KEY)
        return
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    if topics is not None:
        codes += topics.indices.to_numpy(zero_copy_only=False).astype(np.int64) << 32
    if partitions is not None:
        codes += partitions + 1
    order = np.argsort(codes, kind="stable")
    ends = np.flatnonzero(np.diff(codes[order])) + 1
    taken = batch.take(pa.array(order)) if len(ends) else batch
    for start, end in zip([0, *ends.tolist()], [*ends.tolist(), batch.num_rows]):
        code = int(codes[order[start]])
        yield _rows(taken.slice(start, end - start), layout, names[code >> 32], (code & 0xFFFFFFFF) - 1)


def _partitions(batch: pa.RecordBatch, layout: Layout) -> np.ndarray[Any, Any] | None:
    if layout.partition is None:
        return None
    column = batch.column(layout.partition)
    if column.null_count == batch.num_rows:
        return None
    numbers: np.ndarray[Any, Any] = column.fill_null(BY_KEY).to_numpy(zero_copy_only=False).astype(np.int64)
    negative = pc.min(column).as_py()
    if negative < 0:
        raise BadRow(f"partition {negative} in the data: partitions begin at 0; null lets the key decide")
    return numbers


def _rows(batch: pa.RecordBatch, layout: Layout, topic: str, partition: int) -> Rows:
    values = _binary(batch.column(layout.value))
    largest, key_bytes = _longest(values), 0
    keys = None
    if layout.key is not None:
        column = _binary(batch.column(layout.key))
        if column.null_count < len(column):
            keys = column.to_pylist()
            largest += _longest(column)
            key_bytes = pc.sum(pc.binary_length(column)).as_py() or 0
    headers = None
    if layout.headers is not None:
        column = batch.column(layout.headers)
        if pc.max(pc.list_value_length(column)).as_py():
            headers = [
                [(header["key"], header["value"]) for header in row if header is not None] if row else []
                for row in column.to_pylist()
            ]
            if any(key is None for row in headers for key, _ in row):
                raise BadRow("a header without a key in the data: only the value of a header may be null")
            largest += max(sum(4 * len(k) + len(v or b"") for k, v in row) for row in headers)
    timestamps = None
    if layout.timestamp is not None:
        moments = batch.column(layout.timestamp)
        if moments.null_count < len(moments):
            micros = moments.cast(pa.int64()).to_pylist()
            timestamps = [None if each is None else each // 1000 for each in micros]
    return Rows(topic, partition, keys, values.to_pylist(), headers, timestamps, largest, key_bytes)


def _binary(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    if pa.types.is_large_string(column.type):
        return column.view(pa.large_binary())
    return column


def _longest(column: pa.Array) -> int:
    return pc.max(pc.binary_length(column)).as_py() or 0


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The settings of the producer from `kafka.*` options."""

    librdkafka: Mapping[str, str]
    bootstrap: str
    memory: int
    block_s: float
    transaction_s: float

    @classmethod
    def from_kafka(cls, kafka: Mapping[str, str], *, transactional: bool) -> ProducerSettings:
        """Translates Java's names. Raises BadOption for a missing or invalid setting, and for one that breaks
        exactly once.
        """
        if not kafka.get("bootstrap.servers", "").strip():
            raise BadOption(
                "Option 'kafka.bootstrap.servers' must be specified: addresses of brokers, as host:port"
            )
        for name in ("queue.buffering.max.messages", "queue.buffering.max.kbytes"):
            if name in kafka:
                raise BadOption(f"kafka.{name} is the sink's own: set kafka.buffer.memory (bytes)")
        try:
            given = translate(kafka)
        except BadClientSetting as error:
            raise BadOption(str(error)) from error
        memory = _number(kafka, "buffer.memory", _DEFAULT_MEMORY)
        transaction_ms = _number(kafka, "transaction.timeout.ms", _DEFAULT_TRANSACTION_MS)
        delivery_ms = _number(kafka, "delivery.timeout.ms", _DEFAULT_DELIVERY_MS)
        block_ms = _number(kafka, "max.block.ms", _number(kafka, "default.api.timeout.ms", _DEFAULT_BLOCK_MS))
        settings = {
            "client.id": "penstock-spark",
            "partitioner": KEY_PARTITIONER,
            "enable.idempotence": "true",
            # librdkafka also waits this long after its first connection, to the bootstrap address.
            "reconnect.backoff.ms": "10",
            "reconnect.backoff.max.ms": "1000",
            "log_level": "2",  # connections that fail are reported in our errors
            **given,
            "message.timeout.ms": str(delivery_ms),
            "queue.buffering.max.messages": str(2 * _MOST_RECORDS_HELD),
            "queue.buffering.max.kbytes": str(min(2 * memory // 1024 + 1024, 2_097_151)),
        }
        if transactional:
            settings["transaction.timeout.ms"] = str(transaction_ms)
            settings["message.timeout.ms"] = str(min(delivery_ms, transaction_ms))
            if (
                given.get("acks", "all") not in ("all", "-1")
                or settings["enable.idempotence"].lower() == "false"
            ):
                raise BadOption(
                    "delivery=exactly_once needs kafka.acks=all and kafka.enable.idempotence=true;"
                    " delivery=at_least_once does not"
                )
        else:
            settings.pop("transaction.timeout.ms", None)
            if given.get("acks", "all") not in ("all", "-1") and "enable.idempotence" not in given:
                settings["enable.idempotence"] = "false"
        return cls(settings, kafka["bootstrap.servers"], memory, block_ms / 1000, transaction_ms / 1000)


def _number(kafka: Mapping[str, str], name: str, default: int) -> int:
    text = kafka.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or int(text) == 0:
        raise BadOption(f"kafka.{name}={text}: must be a whole number above 0")
    return int(text)


class TaskProducer:
    """A producer for the rows of a task. It starts to connect when it is created. For one thread."""

    def __init__(self, settings: ProducerSettings, transactional_id: str | None = None) -> None:
        self._settings = settings
        self.transactional_id = transactional_id
        self._largest = 1
        self._refused: tuple[KafkaError, str] | None = None
        self._connection: KafkaError | None = None
        configuration: dict[str, Any] = {
            **settings.librdkafka,
            "error_cb": self._on_error,
            "delivery.report.only.error": True,  # a call for each record would cost as much as sending it
        }
        if transactional_id is not None:
            configuration["transactional.id"] = transactional_id
        try:
            self._producer = Producer(with_login(configuration))
        except KafkaException as error:
            raise BadOption(
                f"{error.args[0].str()} (of the options that begin with kafka.: Java's names or librdkafka's)"
            ) from None

    # ---- transactions ----

    def take_over(self) -> None:
        """Ends the transaction of an earlier attempt, and fences it; then begins a transaction."""
        deadline = time.monotonic() + self._settings.block_s
        while True:
            try:
                self._producer.init_transactions(_SLICE_S)
                self._producer.begin_transaction()
                return
            except KafkaException as error:
                why: KafkaError = error.args[0]
                self._serve()
                self._check_hopeless()
                if not why.retriable() or time.monotonic() > deadline:
                    raise self._failure(why, f"transactional id {self.transactional_id}") from None

    def commit(self) -> None:
        """Commits the transaction. After an error it may be committed nevertheless: only the mark shows."""
        self.flush()
        deadline = time.monotonic() + self._settings.block_s
        while True:
            try:
                self._producer.commit_transaction(_SLICE_S)
                return
            except KafkaException as error:
                why: KafkaError = error.args[0]
                self._serve()
                if not why.retriable() or time.monotonic() > deadline:
                    raise self._failure(why, f"transactional id {self.transactional_id}") from None

    def abandon(self) -> None:
        """Aborts the transaction, if that is possible quickly; otherwise the next attempt ends it."""
        try:
            self._producer.purge()
            self._producer.abort_transaction(5.0)
        except KafkaException:
            pass

    # ---- records ----

    def reach(self, topic: str) -> None:
        """Raises NotDelivered if no broker responds; otherwise only the first record's timeout would
        show it.
        """
        deadline = time.monotonic() + self._settings.block_s
        while True:
            try:
                self._producer.list_topics(topic, timeout=_SLICE_S)
                return
            except KafkaException as error:
                self._serve()
                self._check_hopeless()
                if time.monotonic() > deadline:
                    raise self._failure(error.args[0], f"topic {topic}") from None

    def send(self, rows: Rows) -> None:
        """Queues the rows, and waits while too many are in flight: a slow cluster slows the task down."""
        self._largest = max(self._largest, rows.largest)
        room = max(1, min(_MOST_RECORDS_HELD, self._settings.memory // self._largest))
        step = min(room, _RECORDS_AT_ONCE)
        for start in range(0, len(rows.values), step):
            end = min(start + step, len(rows.values))
            while len(self._producer) + end - start > room:
                self._serve(0.005)
                self._check_refused()
            self._queue(rows, start, end)
            self._serve()
            self._check_refused()

    def _queue(self, rows: Rows, start: int, end: int) -> None:
        # One by one: produce_batch takes no headers and timestamps, and is slower, because it needs dicts.
        produce, topic, partition, refused = (
            self._producer.produce, rows.topic, rows.partition, self._on_refused,
        )  # fmt: skip
        values = rows.values[start:end]
        keys: Iterable[bytes | None] = repeat(None) if rows.keys is None else rows.keys[start:end]
        times: Iterable[int | None] = repeat(0) if rows.timestamps is None else rows.timestamps[start:end]
        try:
            if rows.headers is None:
                for key, value, moment in zip(keys, values, times):
                    produce(topic, value, key, partition, refused, refused, moment or 0)
            else:
                for key, value, moment, headers in zip(keys, values, times, rows.headers[start:end]):
                    produce(topic, value, key, partition, refused, refused, moment or 0, headers)
        except KafkaException as error:
            raise self._failure(error.args[0], self._place(topic, partition)) from None

    def send_mark(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        self._producer.produce(topic, value, key=key, partition=partition, on_delivery=self._on_refused)

    def flush(self) -> None:
        """Waits until all sent records are acknowledged, at most `delivery.timeout.ms`."""
        while self._flush():
            self._check_refused()
        self._check_refused()

    def _flush(self) -> int:
        try:
            return self._producer.flush(_SLICE_S)
        except KafkaException as error:
            raise self._failure(error.args[0], f"transactional id {self.transactional_id}") from None

    # ---- failures ----

    def _serve(self, seconds: float = 0) -> None:
        """Lets librdkafka report failures."""
        try:
            self._producer.poll(seconds)
        except KafkaException as error:  # fatal errors are raised here, too
            if self._refused is None:
                self._refused = (error.args[0], f"transactional id {self.transactional_id}")

    def _on_error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._connection is None:
            self._connection = error

    def _on_refused(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._refused is None:
            partition = message.partition()
            self._refused = (
                error,
                self._place(message.topic() or "", BY_KEY if partition is None else partition),
            )

    def _check_refused(self) -> None:
        if self._refused is not None:
            raise self._failure(*self._refused)

    def _check_hopeless(self) -> None:
        if self._connection is not None and self._connection.code() in _HOPELESS:
            raise NotDelivered(f"{self._settings.bootstrap}: {self._connection.str()}")

    @staticmethod
    def _place(topic: str, partition: int) -> str:
        return f"topic {topic}" if partition < 0 else f"partition {partition} of topic {topic}"

    def _failure(self, error: KafkaError, what: str) -> SparkError:
        """The failure, with what to do."""
        code, text = error.code(), error.str()
        if code in _FENCED or (error.fatal() and "fenced" in text.lower()):
            return Fenced(
                f"{what}: another task has taken it over, so nothing that this one wrote in its transaction"
                " counts. A speculative or left-over attempt may end so. If the query itself fails by it, two"
                " runs share one checkpoint (stop one of them), or the task took longer than"
                f" kafka.transaction.timeout.ms ({self._settings.transaction_s:.0f} s: raise it) [{text}]"
            )
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART or code == KafkaError._UNKNOWN_TOPIC:
            return NotDelivered(
                f"{what} does not exist: create it, for example with `penstock topics create`"
            )
        if code == KafkaError._UNKNOWN_PARTITION:
            return NotDelivered(f"{what} does not exist: the column partition asks for one more than it has")
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            return NotDelivered(
                f"{what}: a record is too large [{text}]: raise kafka.max.request.size, and max.message.bytes"
                " of the topic"
            )
        if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return NotDelivered(
                f"{what}: the brokers allow no transaction of {self._settings.transaction_s:.0f} s: lower"
                " kafka.transaction.timeout.ms to their transaction.max.timeout.ms at most"
            )
        if code in _NO_ANSWER:
            last = f": {self._connection.str()}" if self._connection is not None else ""
            return NotDelivered(
                f"{what}: no answer in time from the brokers at {self._settings.bootstrap}{last}. Check that"
                " they run and that kafka.bootstrap.servers and kafka.security.protocol are right"
            )
        return NotDelivered(f"{what}: {text} ({error.name()})")
