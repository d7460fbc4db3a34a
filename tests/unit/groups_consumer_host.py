"""A Host that speaks ConsumerGroupHeartbeat, with topics by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from penstock.errors import ApiError
from penstock.groups.consumer.assignors import Partitions
from penstock.groups.consumer.group import ConsumerGroup
from penstock.metadata.image import PartitionImage, TopicImage
from penstock.wire.message import Message
from tests.sim.group_host import Host

Named = Mapping[str, list[int]]


class ConsumerHost(Host):
    def group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> Message:  # type: ignore[override]
        """The answer, which must not be an error. See `send_heartbeat` for the fields."""
        answer = self.send_heartbeat(member_id, epoch, **fields)
        assert isinstance(answer, Message), answer
        return answer

    def refused(self, error: type[ApiError], member_id: str, epoch: int, **fields: Any) -> None:
        answer = self.send_heartbeat(member_id, epoch, **fields)
        assert isinstance(answer, error), answer

    def send_heartbeat(
        self,
        member_id: str,
        epoch: int,
        *,
        group: str = "g",
        topics: list[str] | None = None,
        regex: str | None = None,
        owned: Named | None = None,
        instance: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        timeout: int | None = None,
        version: int = 1,
    ) -> Any:
        """Who joins owns nothing and has five minutes to revoke, unless it is said."""
        if epoch == 0:
            owned = {} if owned is None else owned
            timeout = 300_000 if timeout is None else timeout
        return self.send_raw(
            member_id,
            epoch,
            version=version,
            group_id=group,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=-1 if timeout is None else timeout,
            subscribed_topic_names=topics,
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=None if owned is None else [
                Message(topic_id=self.image.topics[name].id, partitions=numbers)
                for name, numbers in owned.items()
            ],
        )  # fmt: skip

    def send_raw(self, member_id: str, epoch: int, version: int = 1, **fields: Any) -> Any:
        request = {
            "group_id": "g",
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
            **fields,
        }
        message = Message(member_id=member_id, member_epoch=epoch, **request)
        return self.ask("consumer_group_heartbeat", message, version)

    def settle(self, member_id: str, **fields: Any) -> Message:
        """A first member that has told what it owns."""
        answer = self.heartbeat(member_id, 0, **fields)
        self.heartbeat(member_id, answer.member_epoch, owned=self.assigned(answer))
        return answer

    def pair(self) -> None:
        """m1 with the first half of topic t and m2 with the second, both in epoch 2."""
        self.heartbeat("m1", 0, topics=["t"])
        self.heartbeat("m2", 0, topics=["t"])
        self.heartbeat("m1", 1)
        self.heartbeat("m1", 1, owned={"t": [0, 1]})
        self.heartbeat("m2", 2)

    def assigned(self, answer: Message) -> dict[str, list[int]]:
        assert answer.assignment is not None
        names = {topic.id: topic.name for topic in self.image.topics.values()}
        return {names[item.topic_id]: item.partitions for item in answer.assignment.topic_partitions}

    def named(self, partitions: Partitions) -> dict[str, list[int]]:
        return {self.image.topics_by_id[topic].name: sorted(found) for topic, found in partitions.items()}

    def describe(self, group: str = "g") -> Message:
        answer = self.ask("consumer_group_describe", group, 1)
        assert isinstance(answer, Message), answer
        return answer

    def create(self, name: str, partitions: int) -> None:
        number = 100 + len(self.image.topics)
        made = tuple(PartitionImage(index, 1, 0, (1,), (1,)) for index in range(partitions))
        self.image = self.image.with_topics([TopicImage(name, UUID(int=number), made)])

    def grow(self, name: str, partitions: int) -> None:
        made = tuple(PartitionImage(index, 1, 0, (1,), (1,)) for index in range(partitions))
        self.image = self.image.with_topics([replace(self.image.topics[name], partitions=made)])
