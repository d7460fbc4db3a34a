"""`penstock consume`: reads a topic, by assignment or as a member of a group, and prints its records."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING

import click

from penstock.admin.cluster import Cluster, choose_partitions
from penstock.admin.positions import find_range, parse_position
from penstock.admin.reader import IncomingRecord, read_records, stop_on_interrupt
from penstock.admin.words import plural
from penstock.cli.failure import CommandFailed
from penstock.cli.options.shared import cluster_options, json_option, topic_argument
from penstock.cli.output import note, progress
from penstock.cli.records.files import WHERE
from penstock.cli.records.formats import (
    FORMATS,
    Layout,
    check_template,
    record_encoder,
    unescape,
)
from penstock.cli.records.group_reader import read_as_member
from penstock.cli.records.schemas import PartSchema, read_options, record_decoder
from penstock.cli.schemas.registry_options import RegistryAt

if TYPE_CHECKING:
    from penstock.admin.records.condition import Condition


class FormatType(click.ParamType[str]):
    """A named format, or a template that has a % in it."""

    name = "format"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if "%" in value:
            return check_template(value)
        if value not in FORMATS:
            self.fail(
                f"'{value}' is not one of {', '.join(FORMATS)}, nor a template such as '%p %o %k %v'",
                param,
                ctx,
            )
        return value


@click.command()
@topic_argument
@click.option(
    "--partition",
    "-p",
    "partitions",
    metavar="N",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this partition (repeatable).",
)
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    help="earliest, latest, an offset, @TIME (ISO 8601, ms since 1970, -15m), or -N for the last N. "
    "Default: earliest, or latest with --follow.",
)
@click.option(
    "--group",
    "-g",
    metavar="GROUP",
    help="Join this consumer group: continue at its committed offsets, and commit what was printed. "
    "--from is then earliest or latest, for where it has no offset.",
)
@click.option("--follow", "-f", is_flag=True, help="Wait for new records until Ctrl-C.")
@click.option(
    "--until-end", is_flag=True, help="Stop where the partitions end now. The default without --follow."
)
@click.option("--max", "-n", "limit", metavar="N", type=click.IntRange(min=1), help="Stop after N records.")
@click.option(
    "--format",
    "form",
    metavar="text|json|hex|base64|TEMPLATE",
    type=FormatType(),
    default="text",
    show_default=True,
    help="How to print a record; templates are explained above.",
)
@click.option("--keys", is_flag=True, help="Keys, too.")
@click.option("--headers", is_flag=True, help="Headers, too.")
@click.option("--timestamps", is_flag=True, help="Times, too.")
@click.option("--separator", metavar="SEP", default="\\t", show_default=True, help="Between key and value.")
@click.option("--delimiter", metavar="END", default="\\n", show_default=True, help="After each record.")
@click.option(
    "--null", metavar="MARK", default="null", show_default=True, help="How a null key or value is printed."
)
@click.option(
    "--isolation",
    type=click.Choice(("read_uncommitted", "read_committed")),
    default="read_committed",
    show_default=True,
    help="Whether records of open and aborted transactions are read.",
)
@click.option(
    "--on-error",
    type=click.Choice(("fail", "skip")),
    default="fail",
    show_default=True,
    help="What to do with a record that does not decode: stop, or skip it with a warning.",
)
@click.option("--where", metavar="CONDITION", help=WHERE)
@read_options
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, writable=True), help="Write to FILE, not stdout."
)
@json_option
@cluster_options
def consume(
    topic: str,
    partitions: tuple[int, ...],
    start: str | None,
    group: str | None,
    follow: bool,
    until_end: bool,
    limit: int | None,
    form: str,
    keys: bool,
    headers: bool,
    timestamps: bool,
    separator: str,
    delimiter: str,
    null: str,
    isolation: str,
    on_error: str,
    where: str | None,
    output: str | None,
    as_json: bool,
    cluster: Cluster,
    parts: list[PartSchema],
    registry: RegistryAt,
) -> None:
    """Read records of a topic.

    Records of one partition come in order. Without --group, no group is joined and no offset is committed.

    \b
    Templates: %t topic, %p partition, %o offset, %k key, %v value, %h headers, %T time in ms,
    %D time in ISO 8601, %K and %V lengths (-1 for null), %% a percent sign; \\t \\n \\0 \\xNN as in C.

    \b
      penstock consume orders --from -10 --keys
      penstock consume orders --follow --format '%p:%o %k %v'
      penstock consume orders --from @2024-05-01T12:00:00Z --json --output orders.jsonl
      penstock consume orders --group billing --max 100
      penstock consume orders --value-format avro
      penstock consume orders --where "json->>'$.customer.city' = 'Berlin' AND partition = 3"
    """
    if follow and until_end:
        raise click.UsageError("--follow and --until-end exclude each other")
    position = parse_position(start or ("latest" if follow else "earliest"), int(time.time() * 1000))
    if group is not None and (partitions or position.kind not in ("earliest", "latest")):
        raise click.UsageError("--group requires --from earliest or latest, and excludes --partition")
    if where is not None and group is not None:
        raise click.UsageError("--where and --group exclude each other: the group would skip the others")
    layout = Layout(keys, headers, timestamps, unescape(separator), unescape(delimiter), os.fsencode(null))
    encode = record_encoder("json" if as_json else form, layout)
    chosen = choose_partitions(cluster.topic(topic), partitions)
    read_committed = isolation == "read_committed"
    starts, ends = find_range(cluster, topic, chosen, position, read_committed=read_committed)
    total = sum(max(0, ends[p] - starts[p]) for p in chosen)
    settings: dict[str, object] = {"isolation.level": isolation, "check.crcs": True}
    show_progress = output is not None and not follow and group is None
    with (
        ExitStack() as stack,
        _sink(output) as sink,
        stop_on_interrupt() as stop,
        progress(f"from {topic}", total if where else min(total, limit or total), show=show_progress) as bar,
    ):
        decoder = record_decoder(stack, registry, parts, on_error)
        condition = None if where is None else _condition(where)
        count = 0
        if group is not None:
            settings["auto.offset.reset"] = position.kind
            batches = read_as_member(cluster, topic, group, settings, stop, follow=follow, limit=limit)
        else:
            batches = read_records(cluster, topic, starts, None if follow else ends, settings, stop, note)
        read = 0
        for batch in batches:
            read += len(batch)
            records: list[IncomingRecord] = list(batch)
            if condition is not None:
                records = _fitting(condition, records if decoder is None else list(decoder.decode(records)))
            if limit is not None:
                records = records[: limit - count]
            count += len(records)
            decoded = decoder is not None and condition is None
            _write(sink, decoder.decode(records) if decoded and decoder is not None else records, encode)
            bar.update(count if condition is None else read)
            if count == limit and group is None:  # a member has to come back, to commit
                break
        interrupted = stop.requested
    if decoder is not None and decoder.skipped:
        note(
            f"{plural(decoder.skipped, 'record')} did not decode and was left out."
            if decoder.skipped == 1
            else f"{decoder.skipped:,} records did not decode and were left out."
        )
    if output is not None:
        note(f"{plural(count, 'record')} written to {output}.")
    if interrupted:
        raise KeyboardInterrupt


def _condition(text: str) -> Condition:
    from penstock.admin.records.condition import BadCondition, Condition

    try:
        return Condition(text)
    except BadCondition as error:
        raise click.BadParameter(str(error), param_hint="'--where'") from error


def _fitting(condition: Condition, records: list[IncomingRecord]) -> list[IncomingRecord]:
    from penstock.admin.records.condition import BadCondition

    try:
        return condition.select(records)
    except BadCondition as error:
        raise CommandFailed(f"{error}.") from error


def _write(
    sink: IO[bytes], records: Iterable[IncomingRecord], encode: Callable[[IncomingRecord], bytes]
) -> None:
    lines: list[bytes] = []
    try:
        for record in records:
            lines.append(encode(record))
    finally:  # those before one that does not decode are shown
        if lines:
            sink.write(b"".join(lines))
            sink.flush()


@contextmanager
def _sink(path: str | None) -> Iterator[IO[bytes]]:
    if path is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    try:
        stream = open(path, "wb")
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error.strerror}") from error
    with stream:
        yield stream
