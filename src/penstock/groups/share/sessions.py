"""Share sessions: the broker remembers the partitions that a member fetches, so that a request names only
changes.

Each member of a group has one, as long as its connection is open. The number of sessions is limited, and
sessions are never evicted: further members get SHARE_SESSION_LIMIT_REACHED, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from penstock.errors import InvalidShareSessionEpoch, ShareSessionLimitReached, ShareSessionNotFound

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1

TopicIdPartition = tuple[UUID, int]


class ShareSession:
    __slots__ = ("connection", "epoch", "group_id", "member_id", "partitions")

    def __init__(self, group_id: str, member_id: str, connection: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        self.epoch = INITIAL_EPOCH + 1
        self.partitions: dict[TopicIdPartition, None] = {}

    def update(self, wanted: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        self.partitions.update(dict.fromkeys(wanted))
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def in_turn(self) -> list[TopicIdPartition]:
        """The partitions, each time starting with another one, so that none starves."""
        partitions = list(self.partitions)
        if not partitions:
            return partitions
        first = self.epoch % len(partitions)
        return partitions[first:] + partitions[:first]


class ShareSessions:
    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group_id: str, member_id: str, connection: str) -> ShareSession:
        """Creates a new session in place of the member's old one."""
        key = (group_id, member_id)
        if key not in self._sessions and len(self._sessions) >= self._slots:
            raise ShareSessionLimitReached("The limit of share sessions has been reached.")
        session = self._sessions[key] = ShareSession(group_id, member_id, connection)
        return session

    def go_on(self, group_id: str, member_id: str, epoch: int, connection: str) -> ShareSession:
        """The session of a request with this epoch; increments the epoch."""
        session = self.find(group_id, member_id)
        if session.epoch != epoch:
            raise InvalidShareSessionEpoch(f"the epoch of the share session is {session.epoch}, not {epoch}")
        session.epoch = epoch + 1 if epoch < _MAX_EPOCH else 1
        session.connection = connection
        return session

    def find(self, group_id: str, member_id: str) -> ShareSession:
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise ShareSessionNotFound(
                f"member {member_id} of group {group_id} has no share session on this broker"
            )
        return session

    def close(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.pop((group_id, member_id), None)

    def of_connection(self, connection: str) -> list[ShareSession]:
        return [session for session in self._sessions.values() if session.connection == connection]

    def of_group(self, group_id: str) -> list[ShareSession]:
        return [session for session in self._sessions.values() if session.group_id == group_id]
