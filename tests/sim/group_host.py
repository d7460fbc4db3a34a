"""A host for a GroupShard in tests: a log in a list, a clock that is moved, answers by token."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from penstock.coordinator import Outcome, Producer, StateRecord
from penstock.groups import Caller, GroupSettings, GroupShard
from penstock.metadata.image import ClusterImage, PartitionImage, TopicImage
from penstock.wire.message import Message
from penstock.wire.primitives import ZERO_UUID

START = 1_700_000_000_000


def image(topics: Mapping[str, int]) -> ClusterImage:
    made = [
        TopicImage(
            name,
            UUID(int=number + 1),
            tuple(PartitionImage(index, 1, 0, (1,), (1,)) for index in range(partitions)),
        )
        for number, (name, partitions) in enumerate(topics.items())
    ]
    return ClusterImage("c", 1).with_topics(made)


class Host:
    """Appends and replays as the broker does; `crash` begins anew from the log."""

    def __init__(self, topics: Mapping[str, int] | None = None, **settings: Any) -> None:
        self.settings = GroupSettings(**{"group_initial_rebalance_delay_ms": 0, **settings})
        self.image = image({"t": 4, "u": 2} if topics is None else topics)
        self.now = START
        self.rng = random.Random(1)
        self.log: list[tuple[StateRecord, int, Producer | None] | tuple[Producer, bool]] = []
        self.answers: dict[int, Any] = {}
        self._tokens = itertools.count(1)
        self.shard = self._new_shard()

    def _new_shard(self) -> GroupShard:
        shard = GroupShard(self.settings, lambda: self.image, self.rng)
        for entry in self.log:
            if len(entry) == 2:
                shard.replay_marker(entry[0], entry[1])
            else:
                shard.replay(entry[0], timestamp=entry[1], producer=entry[2])
        return shard

    def apply(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self.log.append((record, self.now, outcome.producer))
            self.shard.replay(record, timestamp=self.now, producer=outcome.producer)
        for token, response in outcome.replies:
            assert token not in self.answers, "answered twice"
            self.answers[token] = response

    def send(self, api: str, request: Any, version: int = 9, client_id: str = "c", **more: Any) -> int:
        """Returns the token; the answer, once there is one, is in `answers`."""
        token = next(self._tokens)
        who = Caller(client_id, "/127.0.0.1", version)
        self.apply(getattr(self.shard, api)(request, who, token, self.now, **more))
        return token

    def ask(self, api: str, request: Any, version: int = 9, **more: Any) -> Any:
        """The answer, which must come at once."""
        return self.answers[self.send(api, request, version, **more)]

    def tick(self, ms: int = 0) -> None:
        """Time passes, deadline by deadline."""
        end = self.now + ms
        while (deadline := self.shard.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.apply(self.shard.on_time(self.now))
        self.now = end
        self.apply(self.shard.on_time(end))

    def crash(self) -> None:
        self.shard = self._new_shard()
        self.apply(self.shard.on_time(self.now))

    def end_transaction(self, producer: Producer, committed: bool) -> None:
        self.log.append((producer, committed))
        self.shard.replay_marker(producer, committed)

    # requests

    def join(self, member_id: str = "", group: str = "g", version: int = 9, **fields: Any) -> int:
        return self.send("join_group", join_request(group, member_id, **fields), version)

    def join_new(self, group: str = "g", **fields: Any) -> tuple[int, str]:
        """KIP-394 in both steps: the token of the waiting JoinGroup, and the member id."""
        answer = self.answers[self.join("", group, **fields)]
        assert answer.error_code == 79
        return self.join(answer.member_id, group, **fields), answer.member_id

    def sync(
        self, member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None,
        group: str = "g", **fields: Any,
    ) -> int:  # fmt: skip
        return self.send("sync_group", sync_request(group, member_id, generation, assignments, **fields), 5)

    def heartbeat(
        self, member_id: str, generation: int, group: str = "g", instance: str | None = None
    ) -> int:
        request = Message(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        code: int = self.ask("heartbeat", request, 4).error_code
        return code

    def leave(self, *members: tuple[str, str | None], group: str = "g") -> list[int]:
        items = [Message(member_id=m, group_instance_id=i, reason="test") for m, i in members]
        answer = self.ask("leave_group", Message(group_id=group, members=items), 5)
        assert answer.error_code == 0
        return [member.error_code for member in answer.members]

    def commit(
        self, offset: int, topic: str = "t", partition: int = 0, member_id: str = "", generation: int = -1,
        group: str = "g", version: int = 9, instance: str | None = None, metadata: str | None = "",
        **more: Any,
    ) -> int:  # fmt: skip
        request = commit_request(
            group, {(topic, partition): offset}, member_id, generation, instance, metadata, **more
        )
        code: int = self.ask("offset_commit", request, version).topics[0].partitions[0].error_code
        return code

    def committed(self, topic: str = "t", partition: int = 0, group: str = "g", stable: bool = False) -> Any:
        """The offset, or an error code as a tuple."""
        request = Message(
            group_id=group,
            member_id=None,
            member_epoch=-1,
            topics=[Message(name=topic, partition_indexes=[partition])],
        )
        answer = self.ask("offset_fetch", request, 9, require_stable=stable)
        assert answer.error_code == 0
        found = answer.topics[0].partitions[0]
        return (found.error_code,) if found.error_code else found.committed_offset

    def stable_group(self, *members: str, group: str = "g", **fields: Any) -> tuple[dict[str, str], int]:
        """A group in its first generation; returns the member ids by name, and the generation."""
        tokens = {name: self.join_new(group, **fields) for name in members}
        self.tick(self.settings.group_initial_rebalance_delay_ms)
        ids = {name: member_id for name, (_, member_id) in tokens.items()}
        answers = {name: self.answers[token] for name, (token, _) in tokens.items()}
        generation: int = next(iter(answers.values())).generation_id
        for name, answer in answers.items():
            leads = answer.leader == ids[name]
            self.sync(ids[name], generation, {m: m.encode() for m in ids.values()} if leads else None, group)
        return ids, generation

    def state(self, group: str = "g") -> str:
        state: str = self.ask("describe_groups", group, 5).group_state
        return state


def join_request(
    group: str,
    member_id: str = "",
    *,
    instance: str | None = None,
    protocols: Mapping[str, bytes] | list[tuple[str, bytes]] | None = None,
    protocol_type: str = "consumer",
    session_ms: int = 10_000,
    rebalance_ms: int = 60_000,
) -> Message:
    pairs = {"range": b""} if protocols is None else protocols
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return Message(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[Message(name=name, metadata=metadata) for name, metadata in items],
        reason=None,
    )


def sync_request(
    group: str,
    member_id: str,
    generation: int,
    assignments: Mapping[str, bytes] | None = None,
    *,
    instance: str | None = None,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
) -> Message:
    return Message(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[
            Message(member_id=member, assignment=data) for member, data in (assignments or {}).items()
        ],
    )


def commit_request(
    group: str,
    offsets: Mapping[tuple[str, int], int],
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str | None = "",
    **more: Any,
) -> Message:
    return Message(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[
            Message(
                name=topic,
                topic_id=ZERO_UUID,
                partitions=[
                    Message(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        committed_metadata=metadata,
                    )
                ],
            )
            for (topic, partition), offset in offsets.items()
        ],
        **more,
    )
