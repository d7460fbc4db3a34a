"""Groups: the list, page by page, one group with members and lag, and moving its offsets with a preview."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.admin.cluster import Cluster
from penstock.admin.failure import CommandFailed
from penstock.admin.groups.model import Group, ListedGroup
from penstock.admin.groups.reset import Move, busy, choose, execute, plan
from penstock.admin.groups.state import committed_offsets, describe_groups, find_groups, list_groups
from penstock.admin.positions import Position, parse_time
from penstock.console.reads.samples import Sampler


@dataclass(frozen=True, slots=True)
class GroupRow:
    group: str
    type: str
    state: str
    lag: int | None
    """From the last sample; None if the group has committed nothing."""


@dataclass(frozen=True, slots=True)
class GroupPage:
    rows: list[GroupRow]
    total: int


@dataclass(frozen=True, slots=True)
class Preview:
    """The new value of each offset, and why the reset would be rejected now."""

    moves: list[Move]
    refused: str | None


def page_of_groups(
    cluster: Cluster,
    sampler: Sampler,
    *,
    text: str = "",
    sort: str = "group",
    descending: bool = False,
    first: int = 0,
    count: int = 50,
) -> GroupPage:
    found = [each for each in list_groups(cluster) if text.lower() in each.group.lower()]
    lags = sampler.last.lags if sampler.last is not None else {}

    def key(each: ListedGroup) -> tuple[object, ...]:
        if sort == "lag":
            return (lags.get(each.group, -1),)
        return ((each.type if sort == "type" else each.state if sort == "state" else each.group),)

    found.sort(key=lambda each: each.group)
    found.sort(key=key, reverse=descending)
    shown = found[first : first + count]
    rows = [GroupRow(each.group, each.type, each.state, lags.get(each.group)) for each in shown]
    return GroupPage(rows, len(found))


def find_group(cluster: Cluster, name: str) -> Group:
    """With its members and the lag of its partitions. Raises CommandFailed if it does not exist."""
    (found,) = describe_groups(cluster, [name])
    return found


def position_of(kind: str, text: str) -> Position | int:
    """The target of a reset: earliest, latest, offset, time or shift, with the value that the last three
    need.
    """
    text = text.strip()
    if kind in ("earliest", "latest"):
        return Position(kind)  # type: ignore[arg-type]
    if kind == "time":
        return Position("time", parse_time(text, int(time.time() * 1000)))
    if not text.lstrip("+-").isdecimal() or (kind == "offset" and not text.isdecimal()):
        raise CommandFailed(f"'{text}' is not a whole number.")
    return Position("offset", int(text)) if kind == "offset" else int(text)


def preview_reset(
    cluster: Cluster, group: str, position: Position | int, topics: Sequence[str] = ()
) -> Preview:
    """Changes nothing."""
    found = find_groups(cluster, [group])[group]
    if found is None:
        raise CommandFailed(f"'{group}' is not a consumer group: its offsets cannot be moved here.")
    committed = committed_offsets(cluster, [group])[group]
    moves = plan(cluster, choose(cluster, committed, topics), committed, position)
    if not moves:
        raise CommandFailed(f"group '{group}' has no committed offsets to move: name a topic.")
    members = busy(found)
    return Preview(moves, members.message if members is not None else None)


def apply_reset(cluster: Cluster, group: str, moves: Sequence[Move]) -> None:
    """Apply a previewed reset."""
    members = busy(find_groups(cluster, [group])[group])
    if members is not None:
        raise members
    execute(cluster, group, moves)
