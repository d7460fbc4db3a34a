"""`penstock log dump` and `penstock log verify`: show and check the files of a log.

They read files, and may run while a broker uses them. Exit codes: 0 no problems, 1 problems, 2 wrong usage.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from penstock.admin.words import human_bytes, plural
from penstock.cli.failure import FAILED, CommandFailed
from penstock.cli.output import emit_json, note, progress, table

if TYPE_CHECKING:
    from penstock.log.tools.verify import PartitionReport, Report

_LONG_WORK_BYTES = 64 << 20


@click.group()
def log() -> None:
    """Show and check the files of a log."""


@log.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, dir_okay=False)
)
@click.option("--records", is_flag=True, help="Show each record with key, value and headers.")
@click.option("--deep", is_flag=True, help="Show each record, without its contents.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each line.")
def dump(files: tuple[str, ...], records: bool, deep: bool, as_json: bool) -> None:
    """Show the contents of FILE: a .log, .index, .timeindex, .txnindex or .snapshot file, a checkpoint,
    partition.metadata or meta.properties.

    \b
      penstock log dump data/orders-0/00000000000000000000.log --records
    """
    from penstock.log.recovery.scan import CorruptSegment
    from penstock.log.tools.dump import DumpError, dump_file

    failures = []
    for path in files:
        if len(files) > 1 and not as_json:
            click.echo(f"{path}:")
        try:
            for row in dump_file(path, records=records, deep=deep):
                if as_json:
                    emit_json({"file": path, **row})
                else:
                    click.echo(_line(row))
        except (DumpError, CorruptSegment, OSError) as error:
            failures.append(str(error))
            note(f"Error: {error}")
    if failures:
        raise click.exceptions.Exit(FAILED)


@log.command()
@click.argument(
    "directories", nargs=-1, required=True, metavar="DIR...", type=click.Path(exists=True, file_okay=False)
)
@click.option(
    "--transaction-version",
    type=click.IntRange(0, 2),
    help="The transaction version of all producers. Default: version 2 for a producer whose commits show it.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object with the partitions and the problems.")
def verify(directories: tuple[str, ...], transaction_version: int | None, as_json: bool) -> None:
    """Check DIR, a partition's directory or a data directory: every batch, record, index and snapshot, and
    whether each transaction marker ended a transaction.

    Exits with 1 when something is wrong, and names the file, the position, and what to do. Warnings do not
    count: they concern what the log files cannot decide.

    \b
      penstock log verify data
    """
    from penstock.log.tools.verify import NotALogDirectory, Report, total_bytes
    from penstock.log.tools.verify import verify as check

    whole = Report()
    for directory in directories:
        total = total_bytes(directory)
        try:
            with progress(
                f"verifying {directory}", total, unit="bytes", show=not as_json and total > _LONG_WORK_BYTES
            ) as bar:
                report = check(directory, progress=bar.update, transaction_version=transaction_version)
        except NotALogDirectory as error:
            raise click.UsageError(str(error)) from error
        except OSError as error:
            raise CommandFailed(str(error)) from error
        whole.partitions.extend(report.partitions)
        whole.problems.extend(report.problems)
    if as_json:
        emit_json(_as_json(whole))
    else:
        _show(whole)
    if not whole.is_clean:
        raise click.exceptions.Exit(FAILED)


def _show(report: Report) -> None:
    columns = [
        "partition",
        "segments",
        "batches",
        "records",
        "size",
        "first offset",
        "end offset",
        "problems",
    ]
    table(columns, [_summary(partition) for partition in report.partitions])
    problems = report.all_problems
    for problem in problems:
        where = problem.path if problem.position is None else f"{problem.path} at position {problem.position}"
        what = "what:   " if problem.severity == "error" else "warning:"
        click.echo(f"\n{where}\n  {what} {problem.what}\n  to do:   {problem.remedy}")
    count = plural(len(report.partitions), "partition")
    errors = sum(problem.severity == "error" for problem in problems)
    summary = plural(errors, "problem") if errors else "no problems"
    if errors < len(problems):
        summary += ", " + plural(len(problems) - errors, "warning")
    click.echo(f"\n{count}: {summary}")


def _summary(partition: PartitionReport) -> list[object]:
    return [
        os.path.basename(os.path.normpath(partition.directory)),
        partition.segments,
        partition.batches,
        partition.records,
        human_bytes(partition.bytes),
        partition.first_offset,
        partition.end_offset,
        len(partition.problems),
    ]


def _as_json(report: Report) -> dict[str, Any]:
    return {
        "clean": report.is_clean,
        "partitions": [asdict(partition) for partition in report.partitions],
        "problems": [asdict(problem) for problem in report.problems],
    }


def _line(row: dict[str, Any]) -> str:
    kind = row.pop("type")
    parts = [
        f"{name}: {_text(value)}" for name, value in row.items() if value is not None or name in _NULLABLE
    ]
    indent = "  " if kind == "record" else ""
    return indent + "  ".join([kind.replace("_", " "), *parts])


_NULLABLE = ("key", "value")


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "hex:" + str(value["hex"])
    if isinstance(value, list):
        return "[" + ", ".join(_header(item) for item in value) + "]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "null"
    if isinstance(value, str):
        # Quoted if a reader could not see its end.
        return (
            value
            if value and not any(char.isspace() for char in value)
            else json.dumps(value, ensure_ascii=False)
        )
    return str(value)


def _header(item: object) -> str:
    if isinstance(item, list):
        key, value = item
        return f"{key}={_text(value)}"
    return str(item)
