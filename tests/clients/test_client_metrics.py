"""Client metrics (KIP-714): librdkafka pushes what a subscription asks for, `penstock clients` shows it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from penstock.cli.main import cli
from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

PATIENCE = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker() as process:
        process.create_topic("orders")
        yield process


@pytest.fixture
def run(broker: PenstockBroker) -> Callable[..., Any]:
    def run(*arguments: str, expect: int = 0) -> Any:
        result = CliRunner().invoke(
            cli, ["clients", *arguments, "--json"], env={"PENSTOCK_BOOTSTRAP": broker.bootstrap}
        )
        assert result.exit_code == expect, (result.output, result.exception)
        return json.loads(result.stdout) if expect == 0 else result.output

    return run


def until(condition: Callable[[], Any], producer: Producer) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, "nothing was pushed"
        producer.produce("orders", b"x")
        producer.poll(0.1)
    return found


@pytest.mark.promise(
    "operations",
    "Metrics that clients push (KIP-714) are in the topic `__penstock_client_metrics`; `penstock clients` "
    "shows them",
)
def test_what_a_client_pushes_is_shown_until_its_last_push(broker: PenstockBroker, run: Any) -> None:
    run("subscribe", "mine", "--metrics", "*", "--interval", "200", "--match", "client_id=orders-.*")
    (only,) = run("subscriptions")
    assert only == {"name": "mine", "interval.ms": "200", "match": "client_id=orders-.*", "metrics": "*"}
    settings = {"bootstrap.servers": broker.bootstrap, "enable.metrics.push": True}
    other = Producer({**settings, "client.id": "other"})
    producer = Producer({**settings, "client.id": "orders-1"})
    other.produce("orders", b"x")
    assert other.flush(PATIENCE) == 0
    first = until(lambda: run("list"), producer)
    assert [(one["client_id"], one["software"]) for one in first] == [("orders-1", "confluent-kafka-python")]

    def connections() -> float:
        name = "org.apache.kafka.producer.connection.creation.total"
        (one,) = run("describe", "orders-1", "--metric", name)
        assert len(one["metrics"]) <= 1
        return sum(each["value"] for each in one["metrics"])

    assert until(connections, producer) >= 1  # cumulative: later pushes still have it
    newer = until(lambda: [one for one in run("list") if one["time_ms"] > first[0]["time_ms"]], producer)
    assert newer[0]["client_instance_id"] == first[0]["client_instance_id"]
    until(lambda: connections() >= 1, producer)
    instance = first[0]["client_instance_id"]
    assert run("describe", instance)[0]["client_id"] == "orders-1"
    del producer  # the last push says so
    until(lambda: run("list")[0]["terminating"], other)
    assert [one["client_id"] for one in run("list")] == ["orders-1"]
    assert "no client 'nobody'" in run("describe", "nobody", expect=1)
    run("unsubscribe", "mine")
    assert run("subscriptions") == []
    assert "no subscription 'mine'" in run("unsubscribe", "mine", expect=1)


def test_the_apis_are_advertised_while_there_is_a_subscription(broker: PenstockBroker, run: Any) -> None:
    def advertised() -> set[int]:
        with WireClient(broker.port) as wire:
            asked = Message(client_software_name="test", client_software_version="1")
            return {one.api_key for one in wire.request(ApiKey.API_VERSIONS, 3, asked).api_keys} & {71, 72}

    assert advertised() == set()
    run("subscribe", "some", "--metrics", "org.apache.kafka.")
    assert advertised() == {71, 72}
    run("unsubscribe", "some")
    assert advertised() == set()


def test_invalid_subscriptions_are_rejected_with_what_is_allowed(run: Any) -> None:
    assert "between 100 and 3600000" in run("subscribe", "s", "--interval", "5", expect=1)
    assert "client_software_name" in run("subscribe", "s", "--match", "name=x", expect=1)
    assert run("subscriptions") == []
