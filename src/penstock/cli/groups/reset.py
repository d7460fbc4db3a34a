"""`penstock groups reset`: moves a group's committed offsets, after showing where to."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from penstock.cli.client import EARLIEST, LATEST, Cluster, choose_partitions
from penstock.cli.failure import CommandFailed, UnknownTopic
from penstock.cli.groups.model import Group, TopicPartitionKey, UnknownGroup
from penstock.cli.groups.state import committed_offsets, find_groups, list_groups
from penstock.cli.options.shared import cluster_options, complete_topics, json_option
from penstock.cli.output import emit_json, note, plural, table
from penstock.cli.records.positions import Position, find_range, parse_time


@dataclass(frozen=True, slots=True)
class Move:
    """Where the committed offset of a partition is (None: nowhere) and where it is to go."""

    topic: str
    partition: int
    committed: int | None
    new: int


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
    """
    position = _position(to_earliest, to_latest, to_offset, to_time, shift)
    if partitions and len(topics) != 1:
        raise click.UsageError("--partition goes with one --topic")
    found = find_groups(cluster, [group])[group]
    if found is None:
        listed = {each.group: each for each in list_groups(cluster)}
        if group in listed:
            raise CommandFailed(f"'{group}' is a {listed[group].type} group: only consumer groups are reset.")
        if not topics:
            raise UnknownGroup(group, listed)
    busy = _busy(found)
    if execute and busy is not None:
        raise busy
    committed = committed_offsets(cluster, [group])[group] if found is not None else {}
    chosen = _choose(cluster, committed, topics, partitions)
    moves = plan(cluster, chosen, committed, position)
    if not moves:
        raise CommandFailed(f"group '{group}' has no committed offsets to move: name a --topic.")
    if execute:
        _execute(cluster, group, moves)
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
        if busy is not None:
            note(f"It would be refused now: {busy.message}")


def _position(
    to_earliest: bool, to_latest: bool, to_offset: int | None, to_time: str | None, shift: int | None
) -> Position | int:
    """Where to go; a number is a shift."""
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


def _busy(group: Group | None) -> CommandFailed | None:
    if group is None or not group.members:
        return None
    clients = sorted({f"{member.client_id} at {member.host.lstrip('/')}" for member in group.members})
    more = "" if len(clients) <= 3 else f" and {len(clients) - 3} more"
    return CommandFailed(
        f"group '{group.group}' has {plural(len(group.members), 'active member')} "
        f"({', '.join(clients[:3])}{more}): stop every member first."
    )


def _choose(
    cluster: Cluster,
    committed: Mapping[TopicPartitionKey, int],
    topics: Sequence[str],
    partitions: Sequence[int],
) -> dict[str, list[int]]:
    known = cluster.topics()
    chosen: dict[str, list[int]] = {}
    if topics:
        for topic in topics:
            if topic not in known:
                raise UnknownTopic(topic, known)
            chosen[topic] = choose_partitions(known[topic], partitions)
        return chosen
    for topic, partition in sorted(committed):
        if topic in known and partition < len(known[topic].partitions):
            chosen.setdefault(topic, []).append(partition)
        else:
            note(f"{topic}-{partition} does not exist; its offset is unchanged.")
    return chosen


def plan(
    cluster: Cluster,
    chosen: Mapping[str, Sequence[int]],
    committed: Mapping[TopicPartitionKey, int],
    position: Position | int,
) -> list[Move]:
    """Where each of the chosen partitions goes."""
    moves: list[Move] = []
    for topic, partitions in chosen.items():
        if isinstance(position, int):
            earliest = {p: o.offset for p, o in cluster.offsets(topic, partitions, EARLIEST).items()}
            latest = {p: o.offset for p, o in cluster.offsets(topic, partitions, LATEST).items()}
            here = {p: committed[topic, p] for p in partitions if (topic, p) in committed}
            target = shifted(here, position, earliest, latest)
            missing = [p for p in partitions if p not in target]
            if missing:
                raise CommandFailed(
                    f"{topic}-{missing[0]} has no committed offset to shift from: "
                    "use --to-earliest or --to-latest, or name partitions with --partition."
                )
        else:
            target = find_range(cluster, topic, partitions, position, read_committed=False)[0]
        moves += [Move(topic, p, committed.get((topic, p)), target[p]) for p in partitions]
    return moves


def shifted(
    committed: Mapping[int, int], by: int, earliest: Mapping[int, int], latest: Mapping[int, int]
) -> dict[int, int]:
    """Each committed offset moved by `by`, within what its partition has."""
    return {p: min(max(offset + by, earliest[p]), latest[p]) for p, offset in committed.items()}


def _execute(cluster: Cluster, group: str, moves: Sequence[Move]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

    targets = [TopicPartition(move.topic, move.partition, move.new) for move in moves]
    request = [ConsumerGroupTopicPartitions(group, targets)]
    futures = cluster.admin.alter_consumer_group_offsets(request, request_timeout=cluster.timeout)
    (future,) = futures.values()
    try:
        answer: Any = future.result()
        for each in answer.topic_partitions:
            if each.error is not None:
                raise KafkaException(each.error)
    except KafkaException as error:
        joined = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.REBALANCE_IN_PROGRESS)
        if error.args[0].code() in joined:
            busy = _busy(find_groups(cluster, [group])[group])
            if busy is not None:  # somebody joined since we looked
                raise busy from error
        raise cluster.failure(error, f"cannot move the offsets of group '{group}'") from error
