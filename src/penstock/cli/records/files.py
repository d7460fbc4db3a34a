"""`penstock records`: records of a topic to a file, from a file, and again into a topic."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click

from penstock.admin.cluster import Cluster
from penstock.admin.reader import stop_on_interrupt
from penstock.admin.records import transfer
from penstock.admin.records.files import FORMATS, format_of
from penstock.admin.records.transfer import Offsets, Progress, Range
from penstock.admin.words import human_bytes, plural
from penstock.cli.failure import CommandFailed
from penstock.cli.options.shared import cluster_options, complete_topics, json_option, options, topic_argument
from penstock.cli.output import emit_json, note, progress, table
from penstock.errors import PenstockError

WHERE = (
    "Only records for which this SQL condition is true; the columns are partition, offset, timestamp (UTC), "
    "key, value, json, key_json, headers, key_bytes, value_bytes."
)
_range_options = options(
    click.option(
        "--from",
        "start",
        metavar="WHERE",
        default="earliest",
        show_default=True,
        help="earliest, an offset, @TIME, or -N for the last N of each partition.",
    ),
    click.option(
        "--until",
        metavar="WHERE",
        default="",
        help="An offset or @TIME, exclusive. Default: where it ends now.",
    ),
    click.option(
        "--partition",
        "-p",
        "partitions",
        metavar="N",
        type=click.IntRange(min=0),
        multiple=True,
        help="Only this partition (repeatable).",
    ),
    click.option("--where", metavar="CONDITION", default="", help=WHERE),
)
_format_option = click.option(
    "--format", "form", type=click.Choice(tuple(FORMATS)), help="Default: by the end of the file's name."
)
_preview_option = click.option("--preview", is_flag=True, help="Show what would be written; write nothing.")
_write_options = options(
    click.option(
        "--keep-partitions", is_flag=True, help="Write records to their old partitions, not by key."
    ),
    click.option("--new-times", is_flag=True, help="Records get the present as their timestamp."),
)


@click.group()
def records() -> None:
    """Export records to files, import files, replay records into a topic."""


@records.command("export")
@topic_argument
@click.argument("file", type=click.Path(dir_okay=False, writable=True))
@_format_option
@_range_options
@click.option("--max", "-n", "limit", metavar="N", type=click.IntRange(min=1), help="Stop after N records.")
@json_option
@cluster_options
def export_command(
    topic: str,
    file: str,
    form: str | None,
    start: str,
    until: str,
    partitions: tuple[int, ...],
    where: str,
    limit: int | None,
    as_json: bool,
    cluster: Cluster,
) -> None:
    """Write records of a topic to a file: JSON lines, CSV or Parquet.

    JSON lines and Parquet have all of a record; CSV does not tell empty from null.

    \b
      penstock records export orders orders.parquet
      penstock records export orders late.jsonl --from @-1d --where "json->>'status' = 'late'"
    """
    chosen = form or format_of(file)
    wanted = Range(topic, start, until, partitions, where)
    offsets = transfer.resolve(cluster, wanted)
    with (
        open(file, "wb") as stream,
        stop_on_interrupt() as stop,
        progress(f"from {topic}", offsets.total, show=not as_json) as bar,
    ):
        written = _translated(
            lambda: transfer.export_records(
                cluster, wanted, offsets, chosen, stream, limit=limit, stop=stop, report=_to(bar.update)
            )
        )
        interrupted = stop.requested
    if as_json:
        emit_json({"topic": topic, "file": file, "records": written, "bytes": Path(file).stat().st_size})
    else:
        note(f"{plural(written, 'record')} ({human_bytes(Path(file).stat().st_size)}) written to {file}.")
    if interrupted:
        raise KeyboardInterrupt


@records.command("import")
@topic_argument
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@_format_option
@_write_options
@_preview_option
@json_option
@cluster_options
def import_command(
    topic: str,
    file: str,
    form: str | None,
    keep_partitions: bool,
    new_times: bool,
    preview: bool,
    as_json: bool,
    cluster: Cluster,
) -> None:
    """Write the records of a file to a topic, which has to exist.

    The whole file is checked first: if a line is wrong, nothing is written.

    \b
      penstock records import orders orders.parquet --preview
      penstock records import orders orders.parquet --keep-partitions
    """
    chosen = form or format_of(file)
    found = transfer.preview_file(file, chosen)
    if found.bad is not None:
        raise CommandFailed(f"{file}, {found.bad}. Nothing was written.")
    if keep_partitions:
        transfer.check_partitions(cluster, topic, found.partitions)
    if preview:
        if as_json:
            emit_json({"topic": topic, "records": found.records, "bytes": found.bytes, "sample": [
                {"key": _shown(each.key), "value": _shown(each.value)} for each in found.sample
            ]})  # fmt: skip
            return
        table(("key", "value"), [(_shown(each.key), _shown(each.value)) for each in found.sample])
        note(f"{plural(found.records, 'record')} ({human_bytes(found.bytes)}) would be written to '{topic}'.")
        return
    with (
        stop_on_interrupt() as stop,
        progress(f"to {topic}", found.records, show=not as_json) as bar,
    ):
        written = transfer.import_file(
            cluster,
            topic,
            file,
            chosen,
            total=found.records,
            keep_partitions=keep_partitions,
            keep_times=not new_times,
            stop=stop,
            report=_to(bar.update),
        )
        interrupted = stop.requested
    _tell(topic, written, as_json, interrupted)


@records.command("replay")
@topic_argument
@click.option("--to", "target", required=True, shell_complete=complete_topics, help="The topic to write to.")
@_range_options
@_write_options
@_preview_option
@json_option
@cluster_options
def replay_command(
    topic: str,
    target: str,
    start: str,
    until: str,
    partitions: tuple[int, ...],
    where: str,
    keep_partitions: bool,
    new_times: bool,
    preview: bool,
    as_json: bool,
    cluster: Cluster,
) -> None:
    """Write a range of a topic's records to a topic again, the same or another one, which has to exist.

    Records of aborted transactions are left out. The range ends where the partitions end now.

    \b
      penstock records replay orders --to orders-again --from @2024-05-01T12:00 --until @2024-05-01T13:00
      penstock records replay dead-letters --to orders --where "headers['error'] = 'timeout'" --preview
    """
    wanted = Range(topic, start, until, partitions, where)
    offsets = transfer.resolve(cluster, wanted)
    held = cluster.topic(target)
    if keep_partitions:
        transfer.check_partitions(cluster, target, offsets.starts)
    if preview:
        _preview_replay(topic, target, len(held.partitions), offsets, as_json)
        return
    with (
        stop_on_interrupt() as stop,
        progress(f"{topic} to {target}", offsets.total, show=not as_json) as bar,
    ):
        written = _translated(
            lambda: transfer.replay(
                cluster,
                wanted,
                offsets,
                target,
                keep_partitions=keep_partitions,
                keep_times=not new_times,
                stop=stop,
                report=_to(bar.update),
            )
        )
        interrupted = stop.requested
    _tell(target, written, as_json, interrupted)


def _preview_replay(topic: str, target: str, partitions: int, offsets: Offsets, as_json: bool) -> None:
    rows = [
        (p, offsets.starts[p], offsets.ends[p], offsets.ends[p] - offsets.starts[p]) for p in offsets.starts
    ]
    columns = ("partition", "from", "until", "offsets")
    if as_json:
        ranges = [dict(zip(columns, row, strict=True)) for row in rows]
        emit_json({"topic": topic, "to": target, "offsets": offsets.total, "ranges": ranges})
        return
    table(columns, rows)
    note(
        f"{plural(offsets.total, 'offset')} of '{topic}' would be read; the records go to '{target}' "
        f"({plural(partitions, 'partition')})."
    )


def _tell(topic: str, written: int, as_json: bool, interrupted: bool) -> None:
    if as_json:
        emit_json({"topic": topic, "records": written})
    else:
        note(f"{plural(written, 'record')} written to '{topic}'.")
    if interrupted:
        raise KeyboardInterrupt


def _to(update: Callable[[int], object]) -> Callable[[Progress], object]:
    return lambda found: update(found.done)


def _translated(run: Callable[[], int]) -> int:
    try:
        return run()
    except PenstockError as error:  # a wrong condition
        raise CommandFailed(f"{error}.") from error


def _shown(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.hex(" ")
    return json.dumps(text, ensure_ascii=False)[1:-1][:200]
