"""`penstock transactions`: list and describe transactions, find those that hang, and end them."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from typing import Any

import click

from penstock.admin.cluster import Cluster
from penstock.admin.positions import iso_time
from penstock.admin.transactions import (
    STATES,
    DescribedTransaction,
    abort_hanging,
    abort_transaction,
    find_hanging,
    find_transaction,
    list_transactions,
)
from penstock.admin.wire_client import WireCluster, failure
from penstock.cli.options.shared import cluster_options, complete_topics, json_option
from penstock.cli.output import emit_json, note, table
from penstock.errors import ApiError

_DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class DurationType(click.ParamType[int]):
    """`90s`, `15m`, `2h`: milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _DURATION.fullmatch(value)
        if found is None:
            self.fail(f"'{value}' is not a duration such as 500ms, 90s, 15m, 2h or 1d", param, ctx)
        return int(found[1]) * _UNIT_MS[found[2]]


@click.group()
def transactions() -> None:
    """List, describe and abort transactions."""


@transactions.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Only this state (repeatable).",
)
@click.option(
    "--producer-id",
    "producer_ids",
    metavar="N",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only of this producer (repeatable).",
)
@click.option(
    "--longer-than",
    metavar="DURATION",
    type=DurationType(),
    help="Only transactions open for longer than this, such as 15m.",
)
@click.option("--hanging", is_flag=True, help="Transactions open in a partition that no coordinator knows.")
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC",
    multiple=True,
    shell_complete=complete_topics,
    help="With --hanging: only this topic (repeatable).",
)
@click.option(
    "--older-than",
    metavar="DURATION",
    type=DurationType(),
    default="15m",
    show_default=True,
    help="With --hanging: only where the last record is older.",
)
@json_option
@cluster_options
def list_command(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than: int | None,
    hanging: bool,
    topics: tuple[str, ...],
    older_than: int,
    as_json: bool,
    cluster: Cluster,
) -> None:
    """List transactional ids, or hanging transactions.

    A hanging transaction blocks read_committed consumers at its first offset until it is aborted.

    \b
      penstock transactions list --state Ongoing --longer-than 15m
      penstock transactions list --hanging --topic orders
    """
    if hanging and (states or producer_ids or longer_than is not None):
        raise click.UsageError("--hanging can only be combined with --topic and --older-than")
    if topics and not hanging:
        raise click.UsageError("--topic requires --hanging")
    with WireCluster(cluster) as wire:
        if hanging:
            _list_hanging(wire, topics, older_than, as_json)
            return
        try:
            found = list_transactions(
                wire, states=states, producer_ids=producer_ids, longer_than_ms=longer_than
            )
        except ApiError as error:
            raise failure(error, "cannot list transactions") from error
    if as_json:
        emit_json([asdict(each) for each in found])
    elif found:
        rows = [(each.transactional_id, each.producer_id, each.state, each.coordinator) for each in found]
        table(("transactional id", "producer id", "state", "coordinator"), rows)
    else:
        note("No transactions.")


def _list_hanging(wire: WireCluster, topics: tuple[str, ...], older_than: int, as_json: bool) -> None:
    found = find_hanging(wire, topics or None, int(time.time() * 1000) - older_than)
    if as_json:
        emit_json([asdict(each) for each in found])
    elif found:
        columns = ("topic", "partition", "start offset", "producer id", "epoch", "last record")
        rows = [
            (
                each.topic,
                each.partition,
                each.start_offset,
                each.producer_id,
                each.producer_epoch,
                iso_time(each.last_timestamp),
            )
            for each in found
        ]
        table(columns, rows)
        note("End one with `penstock transactions abort --topic T --partition P --start-offset N`.")
    else:
        note("No transaction hangs.")


@transactions.command()
@click.argument("transactional_ids", metavar="TRANSACTIONAL-ID...", nargs=-1, required=True)
@json_option
@cluster_options
def describe(transactional_ids: tuple[str, ...], as_json: bool, cluster: Cluster) -> None:
    """Describe transactional ids: state, producer, age, partitions.

    \b
      penstock transactions describe copier-1
    """
    with WireCluster(cluster) as wire:
        found = [find_transaction(wire, each) for each in dict.fromkeys(transactional_ids)]
    now = int(time.time() * 1000)
    if as_json:
        emit_json([_description(each, now) for each in found])
        return
    for each in found:
        description = _description(each, now)
        age = description["age_seconds"]
        title = (
            f"{each.transactional_id}: {each.state}, producer {each.producer_id} "
            f"epoch {each.producer_epoch}, "
            f"timeout {each.timeout_ms / 1000:g} s, coordinator {each.coordinator}"
        )
        if age is not None:
            title += f", began {iso_time(each.start_ms)} ({age:g} s ago)"
        if each.partitions:
            table(("topic", "partition"), each.partitions, title=title)
        else:
            click.echo(title)


def _description(transaction: DescribedTransaction, now_ms: int) -> dict[str, Any]:
    begun = transaction.under_way and transaction.start_ms >= 0
    return {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "timeout_ms": transaction.timeout_ms,
        "start_ms": transaction.start_ms if begun else None,
        "age_seconds": max(0, now_ms - transaction.start_ms) / 1000 if begun else None,
        "partitions": [{"topic": topic, "partition": index} for topic, index in transaction.partitions],
        "coordinator": transaction.coordinator,
    }


@transactions.command()
@click.argument("transactional_id", required=False)
@click.option(
    "--topic", metavar="TOPIC", shell_complete=complete_topics, help="Where a hanging transaction is."
)
@click.option("--partition", "-p", metavar="N", type=click.IntRange(min=0), help="The partition of --topic.")
@click.option("--start-offset", metavar="N", type=click.IntRange(min=0), help="Its first offset there.")
@click.option("--producer-id", metavar="N", type=click.IntRange(min=0), help="Or its producer.")
@json_option
@cluster_options
def abort(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    producer_id: int | None,
    as_json: bool,
    cluster: Cluster,
) -> None:
    """Abort the transaction of a TRANSACTIONAL-ID, or a hanging one in a partition.

    By id, the coordinator aborts the transaction and fences its producer, which gets an error at its next
    step. In a partition (`penstock transactions list --hanging`), an abort marker is written there.

    \b
      penstock transactions abort copier-1
      penstock transactions abort --topic orders --partition 0 --start-offset 1234
    """
    by_partition = (topic, partition, start_offset, producer_id)
    if transactional_id is not None:
        if any(each is not None for each in by_partition):
            raise click.UsageError("give a TRANSACTIONAL-ID, or --topic and --partition, not both")
        with WireCluster(cluster) as wire:
            found = abort_transaction(wire, transactional_id)
        result: dict[str, Any] = {"transactional_id": transactional_id, "producer_id": found.producer_id}
    elif topic is not None and partition is not None and (start_offset is None) != (producer_id is None):
        with WireCluster(cluster) as wire:
            result = asdict(abort_hanging(wire, topic, partition, start_offset, producer_id))
    else:
        raise click.UsageError(
            "give a TRANSACTIONAL-ID, or --topic, --partition and one of --start-offset and --producer-id"
        )
    if as_json:
        emit_json({**result, "result": "aborted"})
    elif transactional_id is not None:
        click.echo(f"{transactional_id}: aborted")
    else:
        click.echo(f"{topic}-{partition}: aborted at offset {result['start_offset']}")
