"""`penstock groups reset`: moves a group's committed offsets, after showing where to."""

from __future__ import annotations

import time

import click

from penstock.admin.cluster import Cluster
from penstock.admin.groups.model import UnknownGroup
from penstock.admin.groups.reset import busy, choose, plan
from penstock.admin.groups.reset import execute as execute_moves
from penstock.admin.groups.state import committed_offsets, find_groups, list_groups
from penstock.admin.positions import Position, parse_time
from penstock.admin.words import plural
from penstock.cli.failure import CommandFailed
from penstock.cli.options.shared import cluster_options, complete_topics, json_option
from penstock.cli.output import emit_json, note, table


@click.command()
@click.argument("group")
@click.option("--to-earliest", is_flag=True, help="To the earliest available record.")
@click.option("--to-latest", is_flag=True, help="To the end of the log, skipping all current records.")
@click.option("--to-offset", metavar="N", type=click.IntRange(min=0), help="To this offset.")
@click.option(
    "--to-time", metavar="TIME", help="To the first record at or after TIME: ISO 8601, ms since 1970, -15m."
)
@click.option("--shift", metavar="N", type=int, help="By N records: forward, or back with -N.")
@click.option(
    "--topic",
    "-t",
    "topics",
    metavar="TOPIC",
    multiple=True,
    shell_complete=complete_topics,
    help="Only this topic (repeatable). Default: all that the group has committed offsets of.",
)
@click.option(
    "--partition",
    "-p",
    "partitions",
    metavar="N",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this partition of the one --topic (repeatable).",
)
@click.option("--execute", is_flag=True, help="Change the offsets. Without this, only show the changes.")
@json_option
@cluster_options
def reset(
    group: str,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_time: str | None,
    shift: int | None,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    execute: bool,
    as_json: bool,
    cluster: Cluster,
) -> None:
    """Move a group's committed offsets; without --execute, only show where to.

    The group must have no active members. An offset out of range becomes the nearest valid one.

    \b
      penstock groups reset billing --to-earliest
      penstock groups reset billing --to-time -1h --topic orders --execute
      penstock groups reset billing --shift -10 --execute
    """
    position = _position(to_earliest, to_latest, to_offset, to_time, shift)
    if partitions and len(topics) != 1:
        raise click.UsageError("--partition requires exactly one --topic")
    found = find_groups(cluster, [group])[group]
    if found is None:
        listed = {each.group: each for each in list_groups(cluster)}
        if group in listed:
            raise CommandFailed(f"'{group}' is a {listed[group].type} group: only consumer groups are reset.")
        if not topics:
            raise UnknownGroup(group, listed)
    members = busy(found)
    if execute and members is not None:
        raise members
    committed = committed_offsets(cluster, [group])[group] if found is not None else {}
    chosen = choose(cluster, committed, topics, partitions, note)
    moves = plan(cluster, chosen, committed, position)
    if not moves:
        raise CommandFailed(f"group '{group}' has no committed offsets to move: name a --topic.")
    if execute:
        execute_moves(cluster, group, moves)
    if as_json:
        entries = [
            {
                "topic": move.topic,
                "partition": move.partition,
                "committed": move.committed,
                "new": move.new,
            }
            for move in moves
        ]
        emit_json({"group": group, "executed": execute, "partitions": entries})
    else:
        rows = [
            (m.topic, m.partition, m.committed, m.new, None if m.committed is None else m.new - m.committed)
            for m in moves
        ]
        table(("topic", "partition", "committed", "new", "change"), rows)
    if execute:
        note(f"Group '{group}': {plural(len(moves), 'offset')} moved.")
    else:
        note("Nothing was changed. Add --execute to do it.")
        if members is not None:
            note(f"The reset would be rejected now: {members.message}")


def _position(
    to_earliest: bool, to_latest: bool, to_offset: int | None, to_time: str | None, shift: int | None
) -> Position | int:
    """The target of the reset; a number is a shift."""
    given: list[Position | int] = []
    if to_earliest:
        given.append(Position("earliest"))
    if to_latest:
        given.append(Position("latest"))
    if to_offset is not None:
        given.append(Position("offset", to_offset))
    if to_time is not None:
        given.append(Position("time", parse_time(to_time, int(time.time() * 1000))))
    if shift is not None:
        given.append(shift)
    if len(given) != 1:
        raise click.UsageError("give one of --to-earliest, --to-latest, --to-offset, --to-time and --shift")
    return given[0]
