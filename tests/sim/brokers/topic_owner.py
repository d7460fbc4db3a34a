"""Topics that are created, used, deleted and created again while brokers fail.

Nobody waits until all brokers know a new topic: coordinators get offsets and transactions of topics that they
have not heard of. What is committed for a topic stays until it is deleted, and then goes; a transaction that
wrote to it ends, with a marker for each partition that is still there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.sim.brokers.client import Client, Key, Lost, error_name
from tests.sim.brokers.consumers import LATEST, READ_COMMITTED, READ_UNCOMMITTED, Reader, committed_offset
from tests.sim.brokers.history import Transaction
from tests.sim.brokers.producers import Abortable, Fenced, TransactionalProducer

if TYPE_CHECKING:
    from tests.sim.brokers.world import World

_EXISTS, _UNKNOWN, _UNKNOWN_ID = 36, 3, 100
_PATIENCE_S = 90.0


class TopicOwner(TransactionalProducer, Reader):
    """`lasting` are partitions that stay; its transactions write to them, too."""

    def __init__(self, world: World, name: str, lasting: Sequence[Key]) -> None:
        TransactionalProducer.__init__(self, world, name, name, lasting)
        self.group = f"group of {name}"
        self._count = 0
        self._topic = ""
        self._id = world.no_id
        self._partitions: list[Key] = []
        self._committed = -1
        self.deleted: set[str] = set()  # for good

    async def main(self) -> None:
        await self._init_until_it_works()
        while not self.world.stopping:
            await self._create()
            for _ in range(self.rng.choice((1, 2, 4))):
                await self._commit_offsets()
                if self.rng.random() < 0.5:
                    await self.step()
                    await self._all_is_stable()
            await self._check_offset()
            if self.rng.random() < 0.3:
                await self._delete_in_a_transaction()
            else:
                await self._delete()
            self.world.history.counts["topics deleted"] += 1

    # topics

    async def _create(self) -> None:
        # Some names come again, with new topics: what is left of the old one is nothing of theirs.
        self._count += 1
        self._topic = f"{self.name}-{self._count if self.rng.random() < 0.6 else 'again'}"
        self.deleted.discard(self._topic)
        partitions = self.rng.choice((1, 3))
        request = Message(
            topics=[
                Message(
                    name=self._topic,
                    num_partitions=partitions,
                    replication_factor=3,
                    assignments=[],
                    configs=[],
                )
            ],
            timeout_ms=10_000,
            validate_only=False,
        )
        while True:
            answer = (await self.any(ApiKey.CREATE_TOPICS, 7, request)).topics[0]
            if answer.error_code == 0:
                self._id = answer.topic_id
                break
            if answer.error_code == _EXISTS:
                # The answer to an earlier request was lost.
                found = await self._find_id()
                if found is not None:
                    self._id = found
                    break
            await self.backoff()
        self.note(f"has created {self._topic}")
        self._partitions = [(self._topic, index) for index in range(partitions)]
        self._committed = -1

    async def _find_id(self) -> UUID | None:
        request = Message(
            topics=[Message(topic_id=self.world.no_id, name=self._topic)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        found = (await self.any(ApiKey.METADATA, 12, request)).topics[0]
        topic_id: UUID = found.topic_id
        return None if found.error_code or topic_id == self._id else topic_id

    async def _delete(self) -> None:
        request = Message(topics=[Message(name=None, topic_id=self._id)], timeout_ms=10_000)
        sent = False
        while True:
            try:
                node = self.rng.choice(self.world.node_ids)
                answer = (await self.call(node, ApiKey.DELETE_TOPICS, 6, request)).responses[0]
            except Lost:
                sent = True
            else:
                if answer.error_code == 0 or (sent and answer.error_code in (_UNKNOWN, _UNKNOWN_ID)):
                    break
                sent = sent or answer.error_code not in (_UNKNOWN, _UNKNOWN_ID)
            await self.backoff()
        self.note(f"has deleted {self._topic}")
        self.deleted.add(self._topic)
        for key in self._partitions:
            self.forget_leader(key)

    # transactions

    async def fill(self, transaction: Transaction, keys: Sequence[Key]) -> None:
        """To the new topic, and to what lasts. The topic is gone in the end, and is not looked at."""
        await self._known()
        await super().fill(transaction, [*keys, *self._partitions])
        for key in self._partitions:
            transaction.values.pop(key, None)

    async def step(self) -> None:
        if self.keys:
            await super().step()
            return
        transaction = self.begin()
        try:
            await self.fill(transaction, [])
            await self.end(transaction, commit=self.rng.random() < 0.75)
        except Abortable as error:
            self.note(f"aborts: {error}")
            await self._abort(transaction)
        except Fenced as reason:
            await self.fenced(transaction, reason)

    async def _abort(self, transaction: Transaction) -> None:
        try:
            await self.end(transaction, commit=False)
        except Fenced as reason:
            await self.fenced(transaction, reason)

    async def _known(self) -> None:
        """The leaders know their partitions: before, the second batch may be the first that finds one."""
        for key in self._partitions:
            while await self.offset(key, LATEST) is None:
                await self.backoff()

    async def _all_is_stable(self) -> None:
        """The markers of the last transaction come to all partitions of the topic."""
        end = self.loop.now + _PATIENCE_S
        for key in self._partitions:
            while True:
                high = await self.offset(key, LATEST, READ_UNCOMMITTED)
                stable = await self.offset(key, LATEST, READ_COMMITTED)
                if high is not None and high == stable:
                    break
                if self.loop.now > end:
                    self.world.history.violation(f"{key}: a transaction of {self.name} hangs at {stable}")
                    return
                await asyncio.sleep(0.2)

    async def _delete_in_a_transaction(self) -> None:
        transaction = self.begin()
        commit = self.rng.random() < 0.5
        try:
            await self.fill(transaction, self.rng.sample(self.keys, min(1, len(self.keys))))
            await self._delete()
            await self.end(transaction, commit=commit)
        except Abortable:
            await self._abort(transaction)
        except Fenced as reason:
            await self.fenced(transaction, reason)
        if self._topic not in self.deleted:
            await self._delete()

    # offsets

    async def _commit_offsets(self) -> None:
        """By the topic's id: the coordinator refuses it until it has heard of the topic."""
        offset = self._committed + 1
        request = Message(
            group_id=self.group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[
                Message(
                    topic_id=self._id,
                    partitions=[
                        Message(
                            partition_index=0,
                            committed_offset=offset,
                            committed_leader_epoch=-1,
                            committed_metadata="",
                        )
                    ],
                )
            ],
        )

        def code(answer: Message) -> int:
            found: int = answer.topics[0].partitions[0].error_code
            return found

        while True:
            answer = await self.ask_coordinator(0, self.group, ApiKey.OFFSET_COMMIT, 10, request, code)
            if code(answer) == 0:
                break
            if code(answer) not in (_UNKNOWN, _UNKNOWN_ID):
                self.world.history.violation(
                    f"{self.name}: OffsetCommit is answered {error_name(code(answer))}"
                )
                return
            await self.backoff()
        self._committed = offset
        self.world.history.counts["offset commits"] += 1

    async def _check_offset(self) -> None:
        found = await committed_offset(self, self.group, (self._topic, 0))
        if found != self._committed:
            self.world.history.violation(
                f"{self.name}: {found} is committed for {self._topic}, {self._committed} was acknowledged"
            )

    async def judge(self, client: Client, patience_s: float) -> None:
        """What was committed for topics that are gone is gone, some time later."""
        end = self.loop.now + patience_s
        for topic in sorted(self.deleted):
            while (found := await committed_offset(client, self.group, (topic, 0))) != -1:
                if self.loop.now > end:
                    self.world.history.violation(f"{topic} is deleted, and {found} is committed for it")
                    return
                await asyncio.sleep(0.5)
