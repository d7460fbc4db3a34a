"""`penstock produce`: lines of a file or of stdin become records; every delivery is checked."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

from penstock.admin.cluster import Cluster, choose_partitions, topic_infos
from penstock.admin.words import human_bytes, plural
from penstock.cli.failure import CommandFailed, UnknownTopic, reason
from penstock.cli.options.properties import key_values
from penstock.cli.options.shared import cluster_options, json_option, topic_argument
from penstock.cli.output import Progress, emit_json, note, progress
from penstock.cli.records.formats import FORMATS, BadRecord, Headers, OutgoingRecord, line_decoder, unescape
from penstock.cli.records.schemas import PartSchema, record_encoder, write_options
from penstock.cli.schemas.registry_options import RegistryAt

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_LONGEST_LINE = 1_000_000_000
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class Deliveries:
    """What became of the records that were sent."""

    def __init__(self) -> None:
        self.delivered = 0
        self.failed = 0
        self.bytes = 0
        self.first_error: KafkaError | None = None

    def report(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered += 1
            self.bytes += len(message)
        else:
            self.fail(error)

    def fail(self, error: KafkaError) -> None:
        self.failed += 1
        if self.first_error is None:
            self.first_error = error


@click.command()
@topic_argument
@click.option(
    "--file",
    "-f",
    "path",
    type=click.Path(exists=True, dir_okay=False),
    help="Read records from FILE, not stdin.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Form of a line. json is an object with key, value, headers, partition, timestamp.",
)
@click.option(
    "--key-separator", "-k", metavar="SEP", help=r"A line is KEY SEP VALUE. \t is a tab. Without it, no key."
)
@click.option("--null-value", metavar="MARK", help="A value equal to MARK is written as null, a tombstone.")
@click.option(
    "--header", "-H", "headers", metavar="KEY=VALUE", multiple=True, help="A header for every record."
)
@click.option(
    "--partition", "-p", metavar="N", type=click.IntRange(min=0), help="Write to this partition only."
)
@click.option(
    "--compression",
    "-z",
    type=click.Choice(COMPRESSIONS),
    default="none",
    show_default=True,
    help="The codec that compresses batches.",
)
@click.option(
    "--acks",
    type=click.Choice(("all", "1", "0")),
    default="all",
    show_default=True,
    help="Which replicas must have a record before it is acknowledged; all also makes retries idempotent.",
)
@write_options
@json_option
@cluster_options
def produce(
    topic: str,
    path: str | None,
    form: str,
    key_separator: str | None,
    null_value: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    compression: str,
    acks: str,
    as_json: bool,
    cluster: Cluster,
    parts: list[PartSchema],
    register: bool,
    registry: RegistryAt,
) -> None:
    """Write records to a topic.

    Each line of stdin or of a file is one record. Every delivery is checked: the exit code is 1 if any
    failed, and the first error is shown.

    \b
      echo hello | penstock produce greetings
      penstock produce users --file users.tsv --key-separator '\\t' --null-value NULL
      echo '{"key":"k","value":{"a":1},"headers":{"h":"x"}}' | penstock produce t --format json
      echo '{"id": 1}' | penstock produce orders --value-format avro --value-schema order.avsc
    """
    if form == "json" and (key_separator is not None or null_value is not None):
        raise click.UsageError("--key-separator and --null-value are for lines that are not json")
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    decode = line_decoder(
        form,
        key_separator=None if key_separator is None else unescape(key_separator),
        null_value=None if null_value is None else os.fsencode(null_value),
        json_parts=frozenset(part.part for part in parts if part.form is not None),
    )
    common = [(name, os.fsencode(value)) for name, value in key_values(headers, "--header").items()]
    producer = cluster.producer(
        {
            "acks": acks,
            "enable.idempotence": acks == "all",
            "compression.type": compression,
            "message.timeout.ms": max(1000, int(cluster.timeout * 1000)),
            "message.max.bytes": _LONGEST_LINE,  # the broker's and the topic's limits are the ones that count
        }
    )
    _check_target(cluster, producer, topic, partition)
    with ExitStack() as stack:
        decode = record_encoder(stack, registry, topic, parts, decode, register=register)
        _write(producer, topic, partition, path, decode, common, as_json)


def _write(
    producer: Producer,
    topic: str,
    partition: int | None,
    path: str | None,
    decode: Callable[[bytes], OutgoingRecord],
    common: Headers,
    as_json: bool,
) -> None:
    """Sends all records, waits for each, and shows what became of them."""
    deliveries = Deliveries()
    bad_line: str | None = None
    interrupted = False
    try:
        with (
            _source(path) as (stream, size),
            progress(f"to {topic}", size, unit="bytes", show=size is not None) as bar,
        ):
            try:
                for record in _decoded(stream, decode, bar):
                    _send(producer, topic, partition, record, common, deliveries)
            except BadRecord as error:
                bad_line = str(error)
            except KeyboardInterrupt:
                interrupted = True
            _drain(producer)
    finally:
        _tell(topic, deliveries, as_json)
    if interrupted:
        raise KeyboardInterrupt
    if deliveries.first_error is not None:
        first = deliveries.first_error
        total = deliveries.failed + deliveries.delivered
        raise CommandFailed(
            f"{deliveries.failed:,} of {plural(total, 'record')} not written to '{topic}'; "
            f"the first error: {reason(first)} ({first.name().lstrip('_')})."
        )
    if bad_line is not None:
        raise CommandFailed(f"{path or 'stdin'}, {bad_line}. Nothing after it was sent.")


@contextmanager
def _source(path: str | None) -> Iterator[tuple[IO[bytes], int | None]]:
    """The input and its size if it is a regular file."""
    if path is not None:
        with open(path, "rb") as stream:
            yield stream, os.fstat(stream.fileno()).st_size
        return
    size: int | None = None
    if sys.stdin is None:
        raise CommandFailed("stdin is closed: give the records there, or name a file with --file.")
    if sys.stdin.isatty():
        note("One record on each line; Ctrl-D ends.")
    elif hasattr(sys.stdin, "fileno"):
        try:
            status = os.fstat(sys.stdin.fileno())
        except OSError:
            pass  # a stand-in for stdin that has no descriptor: its size is unknown
        else:
            size = status.st_size if stat.S_ISREG(status.st_mode) else None
    yield sys.stdin.buffer, size


def _decoded(stream: IO[bytes], decode: Any, bar: Progress) -> Iterator[OutgoingRecord]:
    done = 0
    for number, line in enumerate(iter(lambda: stream.readline(_LONGEST_LINE), b""), 1):
        done += len(line)
        if len(line) == _LONGEST_LINE:
            raise BadRecord(f"line {number}: exceeds the limit of {_LONGEST_LINE:,} bytes for a line")
        try:
            yield decode(line.removesuffix(b"\n"))
        except BadRecord as error:
            raise BadRecord(f"line {number}: {error}") from error
        if number % 1000 == 0:
            bar.update(done)
    bar.update(done)


def _check_target(cluster: Cluster, producer: Producer, topic: str, partition: int | None) -> None:
    """Ask for the topic first: the broker makes it now, if it creates topics automatically, or says no.

    librdkafka alone would keep the records for a long time before it gives an unknown topic up.
    """
    from confluent_kafka import KafkaError

    metadata = cluster.metadata(producer, f"cannot look up topic '{topic}'", topic)
    problem: KafkaError | None = metadata.topics[topic].error
    if problem is not None:
        if problem.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise UnknownTopic(topic, cluster.topics())
        if problem.code() != KafkaError.LEADER_NOT_AVAILABLE:  # being created just now
            raise cluster.failure(problem, f"cannot write to topic '{topic}'")
    if partition is not None:
        info = topic_infos(metadata).get(topic) or cluster.topic(topic)
        choose_partitions(info, [partition])


def _send(
    producer: Producer,
    topic: str,
    partition: int | None,
    record: OutgoingRecord,
    common: Headers,
    deliveries: Deliveries,
) -> None:
    from confluent_kafka import KafkaException

    target = record.partition if record.partition is not None else partition
    options: dict[str, Any] = {}
    if common or record.headers:
        options["headers"] = [*common, *record.headers]
    if record.timestamp is not None:
        options["timestamp"] = record.timestamp
    while True:
        try:
            producer.produce(
                topic,
                record.value,
                record.key,
                -1 if target is None else target,
                on_delivery=deliveries.report,
                **options,
            )
            break
        except BufferError:
            producer.poll(0.2)
        except KafkaException as error:
            deliveries.fail(error.args[0])
            break
    producer.poll(0)


def _drain(producer: Producer) -> None:
    """Wait until every record is delivered or has failed; message.timeout.ms bounds it."""
    while producer.flush(0.2):
        pass


def _tell(topic: str, deliveries: Deliveries, as_json: bool) -> None:
    if as_json:
        emit_json(
            {
                "topic": topic,
                "delivered": deliveries.delivered,
                "failed": deliveries.failed,
                "bytes": deliveries.bytes,
            }
        )
    else:
        count, size = plural(deliveries.delivered, "record"), human_bytes(deliveries.bytes)
        note(f"{count} ({size}) written to '{topic}'.")
