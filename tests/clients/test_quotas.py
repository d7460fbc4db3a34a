"""Byte-rate quotas with librdkafka: two clients share one quota, a third has none."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

QUOTA = 400_000
WINDOWS_S = 2  # as the broker is set: so a burst at the beginning is no more than this
VALUE = b"v" * 1000
FETCH_BYTES = 40_000  # what the quota allows in a tenth of a second


@pytest.fixture
def own() -> Iterator[PenstockBroker]:
    settings = {"quota.window.num": str(WINDOWS_S + 1), "quota.window.size.seconds": "1"}
    with PenstockBroker(settings, event_loop="uvloop") as broker:
        yield broker


def limit(broker: PenstockBroker, quota: str, client_id: str, value: float) -> None:
    entity = [Message(entity_type="client-id", entity_name=client_id)]
    ops = [Message(key=quota, value=value, remove=False)]
    with WireClient(broker.port) as wire:
        request = Message(entries=[Message(entity=entity, ops=ops)], validate_only=False)
        answer = wire.request(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)
    assert [entry.error_code for entry in answer.entries] == [0]


class Sender:
    def __init__(self, broker: PenstockBroker, client_id: str) -> None:
        self.throttled = self.delivered = 0
        self._closing = False
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "client.id": client_id,
                "linger.ms": 5,
                "batch.size": 20_000,
                "throttle_cb": self._throttle,
            }
        )

    def _throttle(self, event: object) -> None:
        self.throttled += 1

    def _done(self, error: object, message: object) -> None:
        assert error is None or self._closing
        self.delivered += len(VALUE)

    def send(self, topic: str) -> None:
        """Keeps some records under way, and hears what was delivered."""
        while len(self._producer) < 100:
            self._producer.produce(topic, VALUE, on_delivery=self._done)
        self._producer.poll(0.01)

    def close(self) -> None:
        self._closing = True
        self._producer.purge()
        self._producer.flush(10)


@pytest.mark.promise(
    "access",
    "Two librdkafka producers under the same byte-rate quota share it and do not slow a third; a "
    "consumer gets all records at its rate",
)
def test_two_producers_of_one_quota_have_it_together_and_a_third_has_none(own: PenstockBroker) -> None:
    own.create_topic("t")
    limit(own, "producer_byte_rate", "limited", QUOTA)
    limited = [Sender(own, "limited"), Sender(own, "limited")]
    free = Sender(own, "free")
    try:
        while sum(one.delivered for one in limited) < WINDOWS_S * QUOTA:
            for one in limited:
                one.send("t")
        before, begun = sum(one.delivered for one in limited), time.monotonic()
        while sum(one.delivered for one in limited) - before < 6 * QUOTA:
            for one in (*limited, free):
                one.send("t")
        had = sum(one.delivered for one in limited) - before
        ratio = had / (QUOTA * (time.monotonic() - begun))
        assert all(one.throttled for one in limited)
        assert 0.7 < ratio < 1.25
        assert free.throttled == 0
        assert free.delivered > had
    finally:
        for one in (*limited, free):
            one.close()


@pytest.mark.promise(
    "access",
    "Two librdkafka producers under the same byte-rate quota share it and do not slow a third; a "
    "consumer gets all records at its rate",
)
def test_a_consumer_with_a_quota_gets_all_records_at_its_rate_and_another_is_not_slowed(
    own: PenstockBroker,
) -> None:
    own.create_topic("t")
    sender = Sender(own, "sender")
    while sender.delivered < 5 * QUOTA:
        sender.send("t")
    sender.close()
    limit(own, "consumer_byte_rate", "limited", QUOTA)

    def read(client_id: str) -> tuple[int, float]:
        """Throttled answers, and the seconds that it took."""
        throttled: list[object] = []
        consumer = Consumer(
            {
                "bootstrap.servers": own.bootstrap,
                "client.id": client_id,
                "group.id": client_id,
                "throttle_cb": throttled.append,
                # The last answer is not waited for: a large one would be most of the time that is measured.
                "max.partition.fetch.bytes": FETCH_BYTES,
            }
        )
        consumer.assign([TopicPartition("t", 0, 0)])
        begun, got = time.monotonic(), 0
        while got < 5 * QUOTA:
            got += sum(len(one.value() or b"") for one in consumer.consume(1000, 0.1))
        took = time.monotonic() - begun
        consumer.close()
        return len(throttled), took

    throttled, took = read("limited")
    assert throttled > 0
    assert took > 5 - WINDOWS_S - 1  # what the quota means: the rest comes at its rate
    assert read("free")[0] == 0
