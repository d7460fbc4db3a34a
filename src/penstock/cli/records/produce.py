"""`penstock produce`: lines of a file or of stdin become records; every delivery is checked."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import click

from penstock.admin.cluster import Cluster
from penstock.admin.records.outgoing import BadRecord, OutgoingRecord
from penstock.admin.records.sending import COMPRESSIONS, LONGEST, Deliveries, Sender
from penstock.admin.words import human_bytes, plural
from penstock.cli.failure import CommandFailed
from penstock.cli.options.properties import key_values
from penstock.cli.options.shared import cluster_options, json_option, topic_argument
from penstock.cli.output import Progress, emit_json, note, progress
from penstock.cli.records.formats import FORMATS, line_decoder, unescape
from penstock.cli.records.schemas import PartSchema, record_encoder, write_options
from penstock.cli.schemas.registry_options import RegistryAt

_LONGEST_LINE = LONGEST


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
    sender = Sender(cluster, topic, partition=partition, common=common, acks=acks, compression=compression)
    with ExitStack() as stack:
        decode = record_encoder(stack, registry, topic, parts, decode, register=register)
        _write(sender, topic, path, decode, as_json)


def _write(
    sender: Sender, topic: str, path: str | None, decode: Callable[[bytes], OutgoingRecord], as_json: bool
) -> None:
    """Sends all records, waits for each, and shows what became of them."""
    bad_line: str | None = None
    interrupted = False
    try:
        with (
            _source(path) as (stream, size),
            progress(f"to {topic}", size, unit="bytes", show=size is not None) as bar,
        ):
            try:
                for record in _decoded(stream, decode, bar):
                    sender.send(record)
            except BadRecord as error:
                bad_line = str(error)
            except KeyboardInterrupt:
                interrupted = True
            sender.drain()
    finally:
        _tell(topic, sender.deliveries, as_json)
    if interrupted:
        raise KeyboardInterrupt
    sender.check()
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
