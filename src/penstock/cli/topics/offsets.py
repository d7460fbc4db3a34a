"""`penstock offsets`: where each partition of a topic begins and ends, and where a time is in it."""

from __future__ import annotations

import time
from typing import Any

import click

from penstock.admin.cluster import EARLIEST, LATEST, Cluster, choose_partitions
from penstock.admin.positions import iso_time, parse_time
from penstock.cli.options.shared import cluster_options, json_option, topic_argument
from penstock.cli.output import emit_json, table


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
    "--at",
    metavar="TIME",
    help="Also the first record at or after TIME: ISO 8601, ms since 1970, or a time ago such as -15m.",
)
@json_option
@cluster_options
def offsets(topic: str, partitions: tuple[int, ...], at: str | None, as_json: bool, cluster: Cluster) -> None:
    """Show a topic's offsets, also by time.

    `latest` is the offset that the next record gets.

    \b
      penstock offsets orders
      penstock offsets orders --at -15m
    """
    moment = None if at is None else parse_time(at, int(time.time() * 1000))
    chosen = choose_partitions(cluster.topic(topic), partitions)
    earliest = cluster.offsets(topic, chosen, EARLIEST)
    latest = cluster.offsets(topic, chosen, LATEST)
    found = cluster.offsets(topic, chosen, moment) if moment is not None else {}
    rows: list[dict[str, Any]] = []
    for partition in chosen:
        row: dict[str, Any] = {
            "partition": partition,
            "earliest": earliest[partition].offset,
            "latest": latest[partition].offset,
        }
        if moment is not None:
            exists = found[partition].offset >= 0
            row["at"] = found[partition].offset if exists else None
            row["at_timestamp"] = found[partition].timestamp if exists else None
        rows.append(row)
    if as_json:
        emit_json({"topic": topic, "partitions": rows})
        return
    columns = ["partition", "earliest", "latest", "offsets"]
    lines: list[list[object]] = [
        [row["partition"], row["earliest"], row["latest"], row["latest"] - row["earliest"]] for row in rows
    ]
    if moment is not None:
        columns += ["at " + iso_time(moment), "its time"]
        for line, row in zip(lines, rows, strict=True):
            stamp = row["at_timestamp"]
            line += [row["at"], None if stamp is None else iso_time(stamp)]
    table(columns, lines)
