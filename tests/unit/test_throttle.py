"""Replicas that catch up are slowed to the rate that was set, and those in sync never."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import BrokerConfig, LogConfig, resolve_topic
from penstock.errors import InvalidConfig
from penstock.replication.throttle import Bucket, Throttle
from tests.unit.cluster_images import partition as image_of
from tests.unit.test_replication_partition import partition


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.promise("reassignment", "A replication throttle keeps its rate and never slows in-sync replicas")
def test_over_time_no_more_goes_out_than_the_rate() -> None:
    time = Time()
    bucket = Bucket(lambda: 1000, time)
    sent = 0
    while time.now < 60:
        if not bucket.is_empty():
            bucket.take(700)  # a whole answer, whatever is left
            sent += 700
        time.now += 0.1
    assert 60 * 1000 - 700 <= sent <= 61 * 1000 + 700


def test_what_was_not_used_is_saved_for_one_second_only() -> None:
    time = Time()
    bucket = Bucket(lambda: 1000, time)
    time.now = 3600
    bucket.take(1000)
    assert bucket.is_empty()


def test_a_rate_that_is_raised_pays_what_is_owed_faster() -> None:
    time, rate = Time(), 10
    bucket = Bucket(lambda: rate, time)
    bucket.take(10_000)
    time.now = 1
    assert bucket.is_empty()
    rate = 100_000
    time.now = 1.2
    assert not bucket.is_empty()


def test_a_rate_of_nothing_lets_nothing_through() -> None:
    time = Time()
    bucket = Bucket(lambda: 0, time)
    time.now = 99
    assert bucket.is_empty()


@pytest.mark.promise("reassignment", "A replication throttle keeps its rate and never slows in-sync replicas")
@pytest.mark.parametrize(("named", "applies"), [("0:1", True), ("*", True), ("0:2,1:1", False), ("", False)])
def test_only_the_named_replicas_are_slowed(tmp_path: Path, named: str, applies: bool) -> None:
    one, _ = partition(tmp_path, image_of(isr=(1, 2)), **{"leader.replication.throttled.replicas": named})
    throttle = Throttle(1, lambda: 0, lambda config: config.leader_replication_throttled_replicas, Time())
    assert throttle.applies_to(one) is applies
    assert throttle.holds_back(one, 3) is applies
    assert not throttle.holds_back(one, 2)  # in sync


def test_only_what_is_slowed_is_counted(tmp_path: Path) -> None:
    slowed, _ = partition(
        tmp_path / "a", image_of(isr=(1, 2)), **{"leader.replication.throttled.replicas": "*"}
    )
    other, _ = partition(tmp_path / "b", image_of(isr=(1, 2)))
    throttle = Throttle(1, lambda: 100, lambda config: config.leader_replication_throttled_replicas, Time())
    throttle.count(other, 1000)
    assert not throttle.holds_back(slowed, 3)
    throttle.count(slowed, 1000)
    assert throttle.holds_back(slowed, 3) and not throttle.holds_back(other, 3)


@pytest.mark.parametrize("value", ["0", "0:", ":1", "*,0:1", "a:b", "0:1:2"])
def test_what_names_no_replica_is_refused(value: str) -> None:
    with pytest.raises(InvalidConfig, match="partition:broker"):
        resolve_topic(BrokerConfig.parse({}), {"follower.replication.throttled.replicas": value})


def test_by_default_nothing_is_slowed() -> None:
    assert LogConfig().leader_replication_throttled_replicas == ()
    assert BrokerConfig.parse({}).follower_replication_throttled_rate == 2**63 - 1
