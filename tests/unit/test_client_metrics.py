"""What client instances are asked to push, which pushes are accepted, and what is read from them: KIP-714."""

from __future__ import annotations

import struct
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.telemetry.instances import MOST_INSTANCES, Client, Instances
from penstock.broker.telemetry.otlp import Point, read_metrics
from penstock.config import describe_subscription, parse_subscription
from penstock.errors import (
    ApiError,
    InvalidConfig,
    InvalidRecord,
    InvalidRequest,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)
from penstock.wire.primitives import ZERO_UUID

CLIENT = Client("orders", "apache-kafka-java", "4.1.0", "10.0.0.7", "51000", "User:alice", 1)
NONE, ZSTD = 0, 4


def instances(**subscriptions: dict[str, str]) -> Instances:
    made = Instances(uuid4)
    made.update(subscriptions)
    return made


def push(made: Instances, one: UUID, subscription_id: int, now_ms: int, **changed: object) -> None:
    given = {"terminating": False, "codec": ZSTD, "size": 10, "max_bytes": 100, **changed}
    made.push(one, CLIENT, subscription_id, now_ms=now_ms, **given)  # type: ignore[arg-type]


# ---- subscriptions ----


def test_without_a_subscription_a_client_is_asked_for_nothing_every_five_minutes() -> None:
    found = instances().get(ZERO_UUID, CLIENT, 0)
    assert (found.metrics, found.interval_ms) == ((), 300_000)
    assert found.id != ZERO_UUID


@pytest.mark.promise("operations", "A client is asked for the metrics of all subscriptions that match it")
def test_all_matching_subscriptions_are_merged_with_the_shortest_interval() -> None:
    made = instances(
        a={"metrics": "org.apache.kafka.producer.,x", "interval.ms": "2000"},
        b={"metrics": "org.apache.kafka.consumer.", "interval.ms": "1000", "match": "client_id=ord.*"},
        c={"metrics": "*", "match": "client_id=other,client_software_name=apache-.*"},
    )
    found = made.get(ZERO_UUID, CLIENT, 0)
    assert found.metrics == ("org.apache.kafka.consumer.", "org.apache.kafka.producer.", "x")
    assert found.interval_ms == 1000
    other = made.get(ZERO_UUID, replace(CLIENT, client_id="other"), 0)
    assert (other.metrics, other.interval_ms) == (("*",), 2000)


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("client_id=orders", True),
        ("client_id=order", False),
        ("client_software_name=apache-.*,client_software_version=4\\..*", True),
        ("client_software_name=apache-.*,client_software_version=3\\..*", False),
        ("client_source_address=10\\.0\\..*,client_source_port=51000", True),
        ("client_instance_id=AAAAAAAAAAAAAAAAAAAABw", True),
        ("client_instance_id=x", False),
    ],
)
def test_each_pattern_must_match_the_whole_value(match: str, matches: bool) -> None:
    found = instances(a={"metrics": "x", "match": match}).get(UUID(int=7), CLIENT, 0)
    assert found.metrics == (("x",) if matches else ())


def test_all_brokers_give_the_same_subscription_id_and_a_changed_subscription_another() -> None:
    one, another = instances(a={"metrics": "x,y"}), instances(b={"metrics": "y,x"})
    instance = uuid4()
    first = one.get(instance, CLIENT, 0).subscription_id
    assert another.get(instance, replace(CLIENT, connection=9), 0).subscription_id == first
    one.update({"a": {"metrics": "x"}})
    assert one.get(instance, CLIENT, 1).subscription_id != first
    assert -(2**31) <= first < 2**31


@pytest.mark.parametrize(
    ("name", "configs", "error"),
    [
        ("", {"metrics": "x"}, InvalidRequest),
        ("s", {"metric": "x"}, InvalidRequest),
        ("s", {"interval.ms": "99"}, InvalidRequest),
        ("s", {"interval.ms": "3600001"}, InvalidRequest),
        ("s", {"interval.ms": "soon"}, InvalidConfig),
        ("s", {"match": "client=x"}, InvalidConfig),
        ("s", {"match": "client_id"}, InvalidConfig),
        ("s", {"match": "client_id=a=b"}, InvalidConfig),
        ("s", {"match": "client_id=("}, InvalidConfig),
    ],
)
def test_invalid_settings_are_rejected(name: str, configs: dict[str, str], error: type[ApiError]) -> None:
    with pytest.raises(error):
        parse_subscription(name, configs)


def test_a_subscription_is_described_with_its_defaults() -> None:
    found = {one.name: (one.value, int(one.source)) for one in describe_subscription({"interval.ms": "500"})}
    assert found == {"interval.ms": ("500", 7), "match": ("", 5), "metrics": ("", 5)}


# ---- requests ----


@pytest.mark.promise(
    "operations",
    "Pushes of client metrics that are early, too large or for a former subscription get Kafka's errors",
)  # fmt: skip
def test_a_client_may_push_once_after_its_subscription_and_then_once_per_interval() -> None:
    made = instances(a={"metrics": "*", "interval.ms": "1000"})
    one = made.get(ZERO_UUID, CLIENT, 0)
    push(made, one.id, one.subscription_id, 400)  # clients spread their first push
    with pytest.raises(ThrottlingQuotaExceeded):
        push(made, one.id, one.subscription_id, 1399)
    push(made, one.id, one.subscription_id, 1400)
    with pytest.raises(ThrottlingQuotaExceeded):
        made.get(one.id, CLIENT, 2000)
    made.get(one.id, CLIENT, 2400)


def test_a_changed_subscription_may_be_fetched_at_once_after_its_id_was_rejected() -> None:
    made = instances(a={"metrics": "x"})
    one = made.get(ZERO_UUID, CLIENT, 0)
    push(made, one.id, one.subscription_id, 1)
    made.update({"a": {"metrics": "y"}})
    with pytest.raises(UnknownSubscriptionId):
        push(made, one.id, one.subscription_id, 2)
    renewed = made.get(one.id, CLIENT, 3)
    assert renewed.metrics == ("y",)
    push(made, one.id, renewed.subscription_id, 4)


def test_what_cannot_be_taken_is_rejected() -> None:
    made = instances(a={"metrics": "x", "interval.ms": "100"})
    one = made.get(ZERO_UUID, CLIENT, 0)
    with pytest.raises(UnsupportedCompressionType):
        push(made, one.id, one.subscription_id, 1000, codec=9)
    with pytest.raises(TelemetryTooLarge, match=r"max\.bytes=100"):
        push(made, one.id, one.subscription_id, 2000, size=101)
    for reserved in (ZERO_UUID, UUID(int=1)):
        with pytest.raises(InvalidRequest):
            push(made, reserved, one.subscription_id, 3000)


def test_the_last_push_may_come_early_and_none_comes_after_it() -> None:
    made = instances(a={"metrics": "x"})
    one = made.get(ZERO_UUID, CLIENT, 0)
    push(made, one.id, one.subscription_id, 1)
    push(made, one.id, one.subscription_id, 2, terminating=True)
    with pytest.raises(InvalidRequest, match="last push"):
        push(made, one.id, one.subscription_id, 3, terminating=True)


def test_a_client_that_connects_again_is_not_throttled() -> None:
    made = instances(a={"metrics": "x"})
    one = made.get(ZERO_UUID, CLIENT, 0)
    assert made.get(one.id, replace(CLIENT, connection=2), 1).subscription_id == one.subscription_id


def test_only_so_many_instances_are_remembered() -> None:
    made = instances()
    first = made.get(ZERO_UUID, CLIENT, 0).id
    for number in range(MOST_INSTANCES):
        made.get(UUID(int=number + 2), CLIENT, 0)
    assert len(made) == MOST_INSTANCES
    made.get(first, CLIENT, 1)  # forgotten, so not throttled


# ---- payloads ----


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def attribute(key: str, value: bytes) -> bytes:
    return field(1, key.encode()) + field(2, value)


def metrics_data(*metrics: bytes) -> bytes:
    resource = field(1, attribute("client_rack", field(1, b"r1")))
    return field(1, field(1, resource) + field(2, b"".join(field(2, one) for one in metrics)))


def test_gauges_and_sums_are_read_with_their_labels() -> None:
    time = b"\x19" + struct.pack("<Q", 5_000_000)
    labels = field(7, attribute("node_id", field(1, b"1"))) + field(7, attribute("n", field(3, 2**64 - 3)))
    real = field(1, labels + time + b"\x21" + struct.pack("<d", 1.5))
    whole = field(1, time + b"\x31" + struct.pack("<q", -7))
    found = read_metrics(
        metrics_data(
            field(1, b"a.rate") + field(3, b"ms") + field(5, real),
            field(1, b"a.total") + field(7, whole),
            field(1, b"a.histogram") + field(9, b""),
        )
    )
    assert found.resource == {"client_rack": "r1"}
    assert found.points == [
        Point("a.rate", {"node_id": "1", "n": -3}, 1.5, "gauge", "ms", 5),
        Point("a.total", {}, -7, "sum", "", 5),
    ]
    assert found.skipped == 1


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_rejected(data: bytes) -> None:
    try:
        read_metrics(data)
    except InvalidRecord:
        pass


@given(st.data())
def test_damaged_metrics_are_read_or_rejected(data: st.DataObject) -> None:
    whole = metrics_data(field(1, b"a") + field(5, field(1, b"\x21" + struct.pack("<d", 1.5))))
    damaged = bytearray(whole)
    damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_metrics(bytes(damaged[: data.draw(st.integers(0, len(whole)))]))
    except InvalidRecord:
        pass
