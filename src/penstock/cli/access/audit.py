"""`penstock audit`: reads the audit topic, as any Kafka client that may read it."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click

from penstock.admin.cluster import Cluster, choose_partitions
from penstock.admin.positions import find_range, parse_position
from penstock.admin.reader import read_records, stop_on_interrupt
from penstock.cli.failure import CommandFailed, UnknownTopic
from penstock.cli.options.shared import cluster_options, json_option
from penstock.cli.output import note

TOPIC = "__penstock_audit"
_KINDS = ("denied", "admin", "authentication", "dropped")


@click.command()
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    help="earliest, latest, an offset, @TIME (ISO 8601, ms since 1970, -15m), or -N for the last N. "
    "Default: earliest, or latest with --follow.",
)
@click.option("--follow", "-f", is_flag=True, help="Wait for new records until Ctrl-C.")
@click.option("--max", "-n", "limit", metavar="N", type=click.IntRange(min=1), help="Stop after N records.")
@click.option("--type", "kinds", type=click.Choice(_KINDS), multiple=True, help="Only these (repeatable).")
@click.option("--principal", metavar="PRINCIPAL", help="Only of this principal, such as User:alice.")
@json_option
@cluster_options
def audit(
    start: str | None,
    follow: bool,
    limit: int | None,
    kinds: tuple[str, ...],
    principal: str | None,
    as_json: bool,
    cluster: Cluster,
) -> None:
    """Show denied and administrative requests, and failed logins.

    Brokers record them where penstock.audit.enable is set. With --json, each line is a record as it is in the
    topic __penstock_audit.

    \b
      penstock audit --type denied --from @-1h
      penstock audit --follow --principal User:alice --json
    """
    position = parse_position(start or ("latest" if follow else "earliest"), int(time.time() * 1000))
    try:
        partitions = choose_partitions(cluster.topic(TOPIC), ())
    except UnknownTopic:
        raise CommandFailed(
            f"{TOPIC} does not exist: nothing was recorded yet. "
            "Set penstock.audit.enable=true on the brokers."
        ) from None
    starts, ends = find_range(cluster, TOPIC, partitions, position, read_committed=True)
    count = 0
    with stop_on_interrupt() as stop:
        for messages in read_records(cluster, TOPIC, starts, None if follow else ends, {}, stop, note):
            for message in messages:
                found = _decoded(message.value())
                if kinds and found.get("type") not in kinds:
                    continue
                if principal is not None and found.get("principal") != principal:
                    continue
                click.echo(json.dumps(found, ensure_ascii=False) if as_json else _line(found))
                count += 1
                if count == limit:
                    return
            if messages:
                sys.stdout.flush()
        interrupted = stop.requested
    if not count and not as_json and not follow:
        note("No records.")
    if interrupted:
        raise KeyboardInterrupt


def _decoded(value: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(value or b"")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CommandFailed(f"{TOPIC} has a record that is not one of a broker: {(value or b'')[:80]!r}")
    return found


def _line(record: dict[str, Any]) -> str:
    """time type principal@host api operation resource outcome"""
    words = [record.get("time", ""), f"{record.get('type', ''):<14}"]
    if record.get("type") == "dropped":
        return " ".join([*words, f"{record.get('count')} events did not fit and were not recorded"])
    words.append(f"{record.get('principal')}@{record.get('host')}")
    words.append(str(record.get("api")))
    if record.get("operation"):
        words.append(str(record["operation"]))
    if record.get("resource_type"):
        name = record.get("resource")
        words.append(f"{record['resource_type']}:{'(several)' if name is None else name}")
    words.append(record.get("error") or "done")
    if record.get("count", 1) > 1:
        words.append(f"×{record['count']} since {record.get('first_time')}")
    if record.get("detail"):
        words.append(json.dumps(record["detail"], ensure_ascii=False))
    return " ".join(words)
