"""kill -9 while topics come, change and go: what was acknowledged holds after the restart."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial

import pytest

from penstock.errors import UnknownTopicOrPartition
from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

KILLS = 8


class Churn:
    """A thread that creates and deletes topics one by one until the broker is gone."""

    def __init__(self, broker: PenstockBroker, number: int) -> None:
        self.created: list[str] = []
        self.deleted: list[str] = []
        # Asked for, but never answered: it may be there or not.
        self.unknown: str | None = None
        self._broker = broker
        self._number = number
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for i in range(10_000):
            name = f"topic-{self._number}-{i}"
            if not self._ask(self.created, name, partial(self._broker.create_topic, name, 2)):
                return
            if i % 3 == 2:
                gone = f"topic-{self._number}-{i - 1}"
                if not self._ask(self.deleted, gone, partial(self._broker.delete_topic, gone)):
                    return

    def _ask(self, answered: list[str], name: str, call: Callable[[], None]) -> bool:
        try:
            call()
        except (OSError, RuntimeError):
            self.unknown = name
            return False
        with self._progress:
            answered.append(name)
            self._progress.notify_all()
        return True

    def wait_for(self, count: int) -> None:
        with self._progress:
            assert self._progress.wait_for(lambda: len(self.created) >= count, 30)

    def join(self) -> None:
        self._thread.join()


def test_acknowledged_topics_are_there_and_acknowledged_deletions_hold(penstock: PenstockBroker) -> None:
    chance = random.Random(7)
    expected: set[str] = set()
    gone: set[str] = set()
    maybe: set[str | None] = set()
    for number in range(KILLS):
        churn = Churn(penstock, number)
        churn.wait_for(chance.randrange(2, 30))
        penstock.kill()
        churn.join()
        penstock.start()
        expected |= set(churn.created) - set(churn.deleted) - {churn.unknown}
        gone |= set(churn.deleted)
        with WireClient(penstock.port) as wire:
            found = {topic.name for topic in wire.request(ApiKey.METADATA, 12, Message(topics=None)).topics}
        assert expected <= found
        assert not gone & found
        assert found - expected <= maybe | {churn.unknown}
        survivor = max(expected)
        assert len(penstock.produce(survivor, [b"x", {"value": b"y", "partition": 1}])) == 2
        maybe.add(churn.unknown)
        if churn.unknown is not None and churn.unknown not in found:
            # Half made is not made: the name is free.
            penstock.create_topic(churn.unknown)


def test_acknowledged_configs_and_partitions_hold(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    for turn in range(1, 6):
        with WireClient(penstock.port) as wire:
            change = Message(name="retention.ms", value=str(turn * 1000), config_operation=0)
            resource = Message(resource_type=2, resource_name="t", configs=[change])
            answer = wire.request(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, Message(resources=[resource], validate_only=False)
            )
            assert answer.responses[0].error_code == 0
            more = Message(name="t", count=turn + 1, assignments=None)
            answer = wire.request(
                ApiKey.CREATE_PARTITIONS, 3, Message(topics=[more], timeout_ms=5000, validate_only=False)
            )
            assert answer.results[0].error_code == 0
        penstock.kill()
        penstock.start()
        with WireClient(penstock.port) as wire:
            asked = Message(resource_type=2, resource_name="t", configuration_keys=["retention.ms"])
            described = wire.request(ApiKey.DESCRIBE_CONFIGS, 4, Message(resources=[asked]))
            assert [entry.value for entry in described.results[0].configs] == [str(turn * 1000)]
        sent = penstock.produce("t", [{"value": b"x", "partition": turn}])
        assert sent[0].offset == 0


def test_a_deleted_topic_does_not_come_back(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    penstock.produce("t", [b"old"])
    penstock.delete_topic("t")
    penstock.kill()
    penstock.start()
    with pytest.raises(UnknownTopicOrPartition):
        penstock.consume("t", partition=0)
    penstock.create_topic("t")
    assert penstock.consume("t") == []
    penstock.produce("t", [b"new"])
    penstock.kill()
    penstock.start()
    assert [record.value for record in penstock.consume("t")] == [b"new"]
