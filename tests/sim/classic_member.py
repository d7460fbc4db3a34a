"""A consumer of the classic protocol as a small state machine over the simulated network.

It joins, syncs, sends heartbeats, commits, and reacts to errors as the clients in use do; and it can be told
to leave, to crash, to fall silent and wake up later believing that it is still a member; or to commit in the
name of a generation that is over, as a thread of it does that nobody has told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import (
    ApiError,
    FencedInstanceId,
    IllegalGeneration,
    MemberIdRequired,
    UnknownMemberId,
)
from penstock.groups import Caller, GroupShard
from penstock.wire.message import Message
from tests.sim.commits import Commits, Identity
from tests.sim.group_host import join_request, sync_request
from tests.sim.harness import Simulation

SESSION_MS = 10_000
REBALANCE_MS = 30_000
HEARTBEAT_MS = 3_000
RETRY_MS = 100
BEGIN_ANEW = {UnknownMemberId.code, IllegalGeneration.code}


class SimulatedMember:
    def __init__(
        self,
        simulation: Simulation[GroupShard],
        name: str,
        partitions: int,
        *,
        group: str = "g",
        instance: str | None = None,
        version: int = 9,
        commits: Commits,
        on_assigned: Callable[[SimulatedMember, int, frozenset[int]], None],
        on_joined: Callable[[SimulatedMember, Message], None],
    ) -> None:
        self.simulation = simulation
        self.name = name
        self.group = group
        self.instance = instance
        self.who = Caller(name, "/sim", version)
        self.partitions = partitions
        self.commits = commits
        self.past: list[Identity] = []
        self.on_assigned = on_assigned
        self.on_joined = on_joined
        self.alive = True
        self.silent = False
        self.fenced = False
        self.subscription = b"1"
        self._forget()

    def _forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[int] | None = None
        self.round = getattr(self, "round", 0) + 1  # answers to requests of an earlier round are not for us

    @property
    def identity(self) -> Identity:
        return Identity(self.member_id, self.generation, self.instance)

    def _send(self, api: str, request: Any, then: Callable[[Any], None]) -> None:
        this_round = self.round

        def on_reply(response: Any) -> None:
            if self.alive and self.round == this_round:
                if isinstance(response, ApiError):
                    response = None
                then(response)

        who = self.who

        def step(shard: GroupShard, token: Any, now: int) -> Any:
            return getattr(shard, api)(request, who, token, now)

        self.simulation.call(step, on_reply)

    # joining

    def join(self) -> None:
        if not self.alive or self.fenced:
            return
        self.owned = None
        self.round += 1
        request = join_request(
            self.group,
            self.member_id,
            instance=self.instance,
            protocols={"range": self.subscription, "other": b""},
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        self._send("join_group", request, self._joined)

    def _rejoin_later(self) -> None:
        this_round = self.round
        self.simulation.after(RETRY_MS, lambda: self.join() if self.round == this_round else None)

    def _joined(self, answer: Message | None) -> None:
        if answer is None:
            self._rejoin_later()
        elif answer.error_code == 0:
            self.member_id = answer.member_id
            self.generation = answer.generation_id
            self.past.append(self.identity)
            self.on_joined(self, answer)
            self._sync(answer)
        elif answer.error_code == MemberIdRequired.code:
            self.member_id = answer.member_id
            self.join()
        elif answer.error_code == FencedInstanceId.code:
            self._was_fenced()
        else:
            if answer.error_code in BEGIN_ANEW:
                self.member_id = ""
            self._rejoin_later()

    def _was_fenced(self) -> None:
        self.simulation.note(f"{self.name} is fenced")
        self.fenced = True
        self._forget()

    # syncing

    def _sync(self, joined: Message) -> None:
        assignments = None
        if joined.leader == joined.member_id and not joined.skip_assignment:
            ids = sorted(member.member_id for member in joined.members)
            assignments = {
                member: ",".join(str(p) for p in range(self.partitions) if p % len(ids) == i).encode()
                for i, member in enumerate(ids)
            }
        request = sync_request(
            self.group,
            self.member_id,
            self.generation,
            assignments,
            instance=self.instance,
            protocol_type="consumer",
            protocol_name="range",
        )
        self._send("sync_group", request, self._synced)

    def _synced(self, answer: Message | None) -> None:
        if answer is None:
            self._rejoin_later()
        elif answer.error_code == 0:
            parts = answer.assignment.decode()
            self.owned = frozenset(int(part) for part in parts.split(",") if part)
            self.simulation.note(f"{self.name} has {sorted(self.owned)} in generation {self.generation}")
            self.on_assigned(self, self.generation, self.owned)
            self.heartbeat()
        else:
            self._told(answer.error_code)

    def _told(self, code: int) -> None:
        if code == FencedInstanceId.code:
            self._was_fenced()
            return
        if code in BEGIN_ANEW:
            self._forget()
        self._rejoin_later()

    # being a member

    def heartbeat(self) -> None:
        if self.owned is None or not self.alive:
            return
        this_round = self.round

        def later() -> None:
            if self.round == this_round:
                self.heartbeat()

        if self.silent:
            self.simulation.after(HEARTBEAT_MS, later)
            return

        def beaten(answer: Message | None) -> None:
            if self.owned is None:
                return
            if answer is None or answer.error_code == 0:
                self.simulation.after(HEARTBEAT_MS, later)
            else:
                self._told(answer.error_code)

        request = Message(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        self._send("heartbeat", request, beaten)

    def commit(self, offset: int) -> None:
        if not self.owned or not self.alive:
            return
        this_round = self.round

        def committed(answer: Any) -> None:
            if not self.alive or self.round != this_round or self.owned is None:
                return
            if answer is not None and not isinstance(answer, ApiError):
                code = answer.topics[0].partitions[0].error_code
                if code:
                    self._told(code)

        self.commits.commit(self.who, self.identity, {("t", min(self.owned)): offset}, committed)

    def commit_as_zombie(self, identity: Identity, offset: int) -> None:
        self.commits.commit(self.who, identity, {("t", offset % self.partitions): offset}, lambda _: None)

    def change_subscription(self) -> None:
        self.subscription += b"+"
        self.join()

    # the end of it

    def leave(self) -> None:
        if self.alive and self.member_id:
            item = Message(member_id=self.member_id, group_instance_id=self.instance, reason="leaves")
            request = Message(group_id=self.group, members=[item])
            self._send("leave_group", request, lambda _: None)
        self.simulation.note(f"{self.name} leaves")
        self.alive = False

    def crash(self) -> None:
        self.simulation.note(f"{self.name} crashes")
        self.alive = False
