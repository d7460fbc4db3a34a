"""The data model of the group commands: groups, members, and the lag of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.admin.failure import CommandFailed, did_you_mean

TopicPartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One group of ListGroups. `type` and `state` are "Unknown" where a broker does not report them."""

    group: str
    type: str
    state: str
    protocol: str


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: tuple[TopicPartitionKey, ...]
    is_readable: bool = True
    """False if the assignment is not a consumer's, or damaged; it is empty then."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A group's position in a partition; None means unknown or not committed."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    lag_seconds: float | None
    member: Member | None


@dataclass(frozen=True, slots=True)
class Group:
    group: str
    type: str
    state: str
    assignor: str
    coordinator: str
    members: tuple[Member, ...]
    partitions: tuple[PartitionLag, ...] = ()


class UnknownGroup(CommandFailed):
    """The cluster has no group of this id."""

    def __init__(self, group: str, known: Iterable[str]) -> None:
        hint = did_you_mean(group, known) or " See `penstock groups list`."
        super().__init__(f"no group '{group}' in this cluster.{hint}")
