"""The timers of a member: its session, and the deadlines of its next action."""

from __future__ import annotations

from penstock.groups.timers import Timer


class MemberClocks:
    """`session`: until its next heartbeat. `revoke`: until it has given up partitions. For classic members,
    `join`: until it has rejoined; `sync`: until it has asked for the assignment of what it joined."""

    __slots__ = ("join", "revoke", "session", "sync")

    def __init__(self, session: Timer, revoke: Timer, join: Timer, sync: Timer) -> None:
        self.session = session
        self.revoke = revoke
        self.join = join
        self.sync = sync

    def is_over(self, now_ms: int) -> bool:
        return any(
            timer.at is not None and timer.at <= now_ms
            for timer in (self.session, self.revoke, self.join, self.sync)
        )

    def stop(self) -> None:
        self.session.cancel()
        self.stop_tasks()

    def stop_tasks(self) -> None:
        self.revoke.cancel()
        self.join.cancel()
        self.sync.cancel()
