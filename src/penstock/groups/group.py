"""The base class of all types of groups, and the context of a request.

A group id belongs to one Group at a time, in `GroupShard.groups`. Classic groups, consumer groups (KIP-848)
and share groups are subclasses; committed offsets are stored separately, by group id, and survive a change of
the type.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import ClassVar, NamedTuple, Protocol
from uuid import UUID

from penstock.coordinator import StateRecord
from penstock.metadata.image import TopicImage
from penstock.wire.message import Message


class TopicFilter(Protocol):
    """Which topics the sender of a request may describe."""

    @property
    def who(self) -> Hashable: ...

    @property
    def rules(self) -> object:
        """The same object as long as the ACLs are unchanged."""
        ...

    def allowed(self, topics: frozenset[str]) -> frozenset[str]:
        """The given topics that may be described according to the current ACLs."""
        ...


class Caller(NamedTuple):
    """The sender of a request, and the request's version."""

    client_id: str
    client_host: str
    version: int
    sees: TopicFilter | None = None
    """None without ACLs, and for requests that do not need it."""


class TopicsView(Protocol):
    """The existing topics; a ClusterImage is one."""

    @property
    def topics(self) -> Mapping[str, TopicImage]: ...

    @property
    def topics_by_id(self) -> Mapping[UUID, TopicImage]: ...

    @property
    def version(self) -> int:
        """Increases with every change."""
        ...


class Group:
    """Methods named `check_*` raise the ApiError for the response."""

    __slots__ = ("group_id",)

    type: ClassVar[str]
    """Kafka's name: classic, consumer, share."""
    expires: ClassVar[bool] = True
    """Whether it is deleted when it is empty and its last offset has expired."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    def state_name(self) -> str:
        """The state as returned by ListGroups and the Describe APIs, for example "Stable"."""
        raise NotImplementedError

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and so can be deleted or become a group of another type."""
        raise NotImplementedError

    @property
    def listed_protocol_type(self) -> str:
        raise NotImplementedError

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> None:
        raise NotImplementedError

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        raise NotImplementedError

    def check_offset_delete(self) -> None:
        raise NotImplementedError

    def check_delete(self) -> None:
        raise NotImplementedError

    def subscribes_to(self, topic: str) -> bool:
        """Whether offsets of this topic are in use: they do not expire and cannot be deleted."""
        raise NotImplementedError

    def retention_start(self, commit_timestamp: int) -> int | None:
        """The start of the retention time of an offset; None while offsets of the group do not expire."""
        raise NotImplementedError

    def tombstones(self) -> list[StateRecord]:
        """The records that delete the group itself; its offsets have their own."""
        raise NotImplementedError

    def is_in(self, states: Collection[str]) -> bool:
        """Whether the state is one of these names, in lower case."""
        return self.state_name.lower() in states

    def listed(self) -> Message:
        """Its row in ListGroups."""
        return Message(
            group_id=self.group_id,
            protocol_type=self.listed_protocol_type,
            group_state=self.state_name,
            group_type=self.type,
        )
