"""`penstock groups`: list, describe, reset and delete groups, and watch their lag."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from penstock.admin.cluster import Cluster
from penstock.admin.groups.model import Group, Member, PartitionLag, UnknownGroup
from penstock.admin.groups.state import STATES, TYPES, describe_groups, list_groups
from penstock.cli.failure import CommandFailed
from penstock.cli.groups.reset import reset
from penstock.cli.options.shared import DEFAULT_BOOTSTRAP, cluster_options, complete_topics, json_option
from penstock.cli.output import emit_json, note, table
from penstock.cli.results import report_each

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_COMPLETION_TIMEOUT = 1.0


def complete_groups(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Group ids of the cluster; none if it does not respond quickly."""
    try:
        bootstrap = context.params.get("bootstrap") or DEFAULT_BOOTSTRAP
        found = list_groups(Cluster(bootstrap, {}, timeout=_COMPLETION_TIMEOUT))
    except (CommandFailed, click.UsageError):
        return []
    return [CompletionItem(each.group) for each in found if each.group.startswith(incomplete)]


@click.group()
def groups() -> None:
    """List, describe, reset and delete groups; show their lag."""


groups.add_command(reset)


@groups.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Only groups in this state (repeatable).",
)
@click.option(
    "--type",
    "types",
    type=click.Choice(TYPES, case_sensitive=False),
    multiple=True,
    help="Only groups of this type (repeatable).",
)
@json_option
@cluster_options
def list_command(states: tuple[str, ...], types: tuple[str, ...], as_json: bool, cluster: Cluster) -> None:
    """List groups with their type and state.

    \b
      penstock groups list --state Empty
    """
    found = [
        each
        for each in list_groups(cluster)
        if (not states or each.state in states) and (not types or each.type in types)
    ]
    if as_json:
        emit_json([asdict(each) for each in found])
    elif found:
        rows = [(each.group, each.type, each.state, each.protocol or None) for each in found]
        table(("group", "type", "state", "protocol"), rows)
    else:
        note("No groups.")


@groups.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_groups)
@click.option(
    "--topic",
    "-t",
    "topics",
    metavar="TOPIC",
    multiple=True,
    shell_complete=complete_topics,
    help="Only partitions of this topic (repeatable).",
)
@json_option
@cluster_options
def describe(names: tuple[str, ...], topics: tuple[str, ...], as_json: bool, cluster: Cluster) -> None:
    """Describe groups: members, assignments, committed offsets, and lag in records and in seconds.

    Lag in seconds is the age of the oldest record that is not consumed.

    \b
      penstock groups describe billing
    """
    found = describe_groups(cluster, list(dict.fromkeys(names)), topics)
    if as_json:
        emit_json([_description(group) for group in found])
        return
    for number, group in enumerate(found):
        if number:
            click.echo()
        assignor = f", assignor {group.assignor}" if group.assignor else ""
        click.echo(f"{group.group}: {group.type}, {group.state}{assignor}, coordinator {group.coordinator}")
        if group.members:
            columns = ("client id", "host", "instance", "member", "assigned")
            table(columns, [_member_row(member) for member in group.members])
        if group.partitions:
            click.echo()
            _partition_table(group)
        else:
            note("No committed offsets, and nothing assigned.")


def _member_row(member: Member) -> tuple[object, ...]:
    return (
        member.client_id,
        member.host.lstrip("/"),
        member.instance_id,
        member.member_id,
        (_partitions_by_topic(member.assignment) or None) if member.is_readable else "(cannot be read)",
    )


def _partitions_by_topic(partitions: Iterable[tuple[str, int]]) -> str:
    """`orders:0,2 payments:1`."""
    by_topic: dict[str, list[str]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(str(index))
    return " ".join(f"{topic}:{','.join(indexes)}" for topic, indexes in by_topic.items())


def _partition_table(group: Group) -> None:
    rows = [
        (
            each.topic,
            each.partition,
            each.committed,
            each.end,
            each.lag,
            each.lag_seconds,
            each.member.client_id if each.member is not None else None,
        )
        for each in group.partitions
    ]
    table(("topic", "partition", "committed", "end", "lag", "lag s", "client id"), rows)


def _description(group: Group) -> dict[str, Any]:
    return {
        "group": group.group,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator,
        "members": [
            {
                "member": member.member_id,
                "client_id": member.client_id,
                "host": member.host.lstrip("/"),
                "instance_id": member.instance_id,
                "assignments": [
                    {"topic": topic, "partition": partition} for topic, partition in member.assignment
                ]
                if member.is_readable
                else None,
            }
            for member in group.members
        ],
        "partitions": [_partition_json(each) for each in group.partitions],
        "lag": total_lag(group.partitions),
        "lag_seconds": longest_lag(group.partitions),
    }


def _partition_json(each: PartitionLag) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "partition": each.partition,
        "committed": each.committed,
        "end": each.end,
        "lag": each.lag,
        "lag_seconds": each.lag_seconds,
        "member": each.member.member_id if each.member is not None else None,
    }


def total_lag(partitions: Iterable[PartitionLag]) -> int | None:
    """Lag in records; None if no partition has a committed offset."""
    known = [each.lag for each in partitions if each.lag is not None]
    return sum(known) if known else None


def longest_lag(partitions: Iterable[PartitionLag]) -> float | None:
    """Lag in seconds; None if it is unknown for all partitions."""
    return max((each.lag_seconds for each in partitions if each.lag_seconds is not None), default=None)


@groups.command()
@click.argument("names", metavar="[GROUP]...", nargs=-1, shell_complete=complete_groups)
@click.option(
    "--topic",
    "-t",
    "topics",
    metavar="TOPIC",
    multiple=True,
    shell_complete=complete_topics,
    help="Only this topic (repeatable).",
)
@click.option("--watch", "-w", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    help="With --watch: how often.",
)
@json_option
@cluster_options
def lag(
    names: tuple[str, ...],
    topics: tuple[str, ...],
    watch: bool,
    interval: float,
    as_json: bool,
    cluster: Cluster,
) -> None:
    """Show how far groups are behind, in records and in seconds: a line for each topic.

    All groups, when none is named. With --watch and --json: one line each time.

    \b
      penstock groups lag
      penstock groups lag billing --watch --interval 5
    """
    while True:
        began = time.monotonic()
        _show_lag(cluster, names, topics, as_json, clear=watch and sys.stdout.isatty())
        if not watch:
            return
        sys.stdout.flush()
        time.sleep(max(0.0, interval - (time.monotonic() - began)))


def _show_lag(
    cluster: Cluster, names: tuple[str, ...], topics: tuple[str, ...], as_json: bool, *, clear: bool
) -> None:
    wanted = list(dict.fromkeys(names)) or [
        each.group for each in list_groups(cluster) if each.type != "streams"
    ]
    rows: list[dict[str, Any]] = []
    for group in describe_groups(cluster, wanted, topics):
        by_topic: dict[str, list[PartitionLag]] = {}
        for each in group.partitions:
            by_topic.setdefault(each.topic, []).append(each)
        rows += [
            {
                "group": group.group,
                "state": group.state,
                "members": len(group.members),
                "topic": topic,
                "partitions": len(partitions),
                "lag": total_lag(partitions),
                "lag_seconds": longest_lag(partitions),
            }
            for topic, partitions in by_topic.items()
        ]
    if clear:
        click.clear()
    if as_json:
        emit_json(rows)
    elif rows:
        columns = ("group", "state", "members", "topic", "partitions", "lag", "lag s")
        table(columns, [tuple(row.values()) for row in rows])
    else:
        note("No committed offsets.")


@groups.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_groups)
@click.option("--if-exists", is_flag=True, help="Do not fail if the group does not exist.")
@json_option
@cluster_options
def delete(names: tuple[str, ...], if_exists: bool, as_json: bool, cluster: Cluster) -> None:
    """Delete groups and their committed offsets. They must have no active members.

    \b
      penstock groups delete billing
    """
    from confluent_kafka import KafkaError

    unknown = KafkaError.GROUP_ID_NOT_FOUND

    def explain(name: str, error: KafkaError) -> CommandFailed:
        if error.code() == unknown:
            return UnknownGroup(name, [each.group for each in list_groups(cluster)])
        if error.code() == KafkaError.NON_EMPTY_GROUP:
            return CommandFailed(
                f"group '{name}' has active members: stop them first (`penstock groups describe {name}`)."
            )
        return cluster.failure(error, f"cannot delete group '{name}'")

    wanted = list(dict.fromkeys(names))
    futures = cluster.admin.delete_consumer_groups(wanted, request_timeout=cluster.timeout)
    report_each(futures, "deleted", {unknown: "absent"} if if_exists else {}, as_json, explain)
