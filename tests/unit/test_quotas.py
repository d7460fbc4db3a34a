"""Client quotas: which one counts, how rates are measured, and for how long a client waits."""

from __future__ import annotations

import pytest

from penstock.broker.security.quotas.quotas import (
    CONNECTIONS,
    FETCH,
    MUTATION,
    PRODUCE,
    REQUEST,
    ClientQuotas,
    ConnectionQuotas,
)
from penstock.broker.security.quotas.rates import SampledRate, TokenBucket
from penstock.metadata.image import QuotaEntity, Quotas


class Time:
    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


def entity(**parts: str | None) -> QuotaEntity:
    return tuple(sorted((kind.replace("_", "-"), name) for kind, name in parts.items()))


def quotas(time: Time, found: Quotas) -> ClientQuotas:
    made = ClientQuotas(time)
    made.update(found)
    return made


LEVELS = [
    entity(user="u", client_id="c"),
    entity(user="u", client_id=None),
    entity(user="u"),
    entity(user=None, client_id="c"),
    entity(user=None, client_id=None),
    entity(user=None),
    entity(client_id="c"),
    entity(client_id=None),
]


@pytest.mark.promise(
    "access",
    "The most specific quota applies, in Kafka's order, and a client that waits for the throttle time "
    "gets its quota and no more",
)
@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_precise_quota_counts(first: int) -> None:
    found: Quotas = {one: {PRODUCE: float(number)} for number, one in enumerate(LEVELS) if number >= first}
    bound = quotas(Time(), found).bound(PRODUCE, ("u", "c"))
    assert bound is not None and bound[0] == first
    assert quotas(Time(), found).bound(FETCH, ("u", "c")) is None


def test_all_clients_of_a_user_share_the_users_quota_and_others_have_their_own() -> None:
    made = quotas(Time(), {entity(user=None): {PRODUCE: 1000.0}})
    assert made.record(PRODUCE, ("u", "one"), 10_000) == 0
    assert made.record(PRODUCE, ("u", "two"), 5_000) > 0
    assert made.record(PRODUCE, ("v", "one"), 10_000) == 0


def test_a_rate_is_measured_over_the_windows_and_a_first_burst_is_spread_over_them() -> None:
    rate = SampledRate(11, 1000)
    rate.record(10_000, 0)
    assert rate.measure(0) == (1000.0, 10_000.0)
    rate.record(10_000, 5_000)
    assert rate.measure(10_000)[0] == pytest.approx(2000.0)
    assert rate.measure(11_000)[0] == pytest.approx(1000.0)  # the first sample is too old
    assert rate.measure(30_000)[0] == 0


def test_a_window_after_the_throttle_time_the_rate_is_within_the_bound() -> None:
    for size in (10_001, 20_000, 50_000):
        rate = SampledRate(11, 1000)
        rate.record(size, 0)
        wait = rate.throttle_ms(1000, 0)
        assert wait > 0
        assert rate.throttle_ms(1000, wait + 1000) == 0


@pytest.mark.promise(
    "access",
    "The most specific quota applies, in Kafka's order, and a client that waits for the throttle time "
    "gets its quota and no more",
)
@pytest.mark.parametrize("size", [100, 3_000, 20_000])
def test_a_client_that_waits_as_it_is_asked_to_gets_its_quota_and_no_more(size: int) -> None:
    time = Time()
    made = quotas(time, {entity(user="u"): {PRODUCE: 10_000.0}})
    sent = 0
    while time.ms < 100_000:
        sent += size
        time.ms += 1 + made.record(PRODUCE, ("u", "c"), size)
    assert 0.9 <= sent / (10_000 * time.ms / 1000) <= 1.11


def test_the_time_of_requests_is_a_percentage_and_waits_are_bounded_by_a_window() -> None:
    time = Time()
    made = quotas(time, {entity(client_id="c"): {REQUEST: 10.0}})
    assert made.record(REQUEST, ("u", "c"), 0.5 * 100) == 0  # half a second of ten
    assert made.record(REQUEST, ("u", "c"), 60 * 100) == 1000


def test_a_fetch_brings_no_more_than_the_windows_allow() -> None:
    made = quotas(Time(), {entity(user="u"): {FETCH: 1024.0}})
    assert made.most_fetched(("u", "c")) == 10_240
    assert made.most_fetched(("v", "c")) is None


def test_tokens_come_at_the_rate_up_to_the_burst_and_may_be_overdrawn_once() -> None:
    bucket = TokenBucket(10, 2.0, 0)
    bucket.take(25, 2.0, 0)
    assert bucket.throttle_ms(2.0, 0) == 2500
    assert bucket.tokens(2.0, 2500) == 0
    assert bucket.tokens(2.0, 1_000_000) == 20


def test_changes_of_topics_are_refused_while_the_quota_is_exceeded_or_only_slowed() -> None:
    time = Time()
    made = quotas(time, {entity(user="u"): {MUTATION: 1.0}})
    assert made.mutate(("u", "c"), 12, strict=True) == (True, 0)
    assert made.mutate(("u", "c"), 1, strict=True) == (False, 1000)
    assert made.mutate(("u", "c"), 1, strict=False) == (True, 2000)
    time.ms = 2000
    assert made.mutate(("u", "c"), 1, strict=True)[0]
    assert made.mutate(("v", "c"), 1000, strict=True) == (True, 0)


def test_without_a_quota_for_clients_there_is_nothing_to_ask() -> None:
    made = ClientQuotas(Time())
    assert not made.is_active
    made.update({entity(ip="10.0.0.1"): {CONNECTIONS: 1.0}})
    assert not made.is_active
    made.update({entity(user="u"): {PRODUCE: 1.0}})
    assert made.is_active


def test_an_address_has_no_more_connections_than_its_limit() -> None:
    made = ConnectionQuotas(Time())
    made.most, made.overrides = 2, {"10.0.0.9": 0}
    assert [made.opened("10.0.0.1")[0] for _ in range(3)] == [True, True, False]
    for _ in range(2):
        made.closed("10.0.0.1")
    assert made.count("10.0.0.1") == 1
    assert made.opened("10.0.0.1") == (True, 0)
    assert made.opened("10.0.0.9") == (False, 0)


def test_an_address_that_connects_too_often_is_turned_away_and_others_are_not() -> None:
    time = Time()
    made = ConnectionQuotas(time)
    made.update({entity(ip="10.0.0.1"): {CONNECTIONS: 1.0}, entity(ip=None): {CONNECTIONS: 100.0}})
    results = [made.opened("10.0.0.1") for _ in range(12)]
    assert [stays for stays, _ in results] == [True] * 10 + [False] * 2
    assert results[-1][1] > 0
    assert made.opened("10.0.0.2") == (True, 0)
    time.ms = 11_000
    assert made.opened("10.0.0.1") == (True, 0)


def test_past_the_rate_of_all_connections_the_next_ones_wait() -> None:
    made = ConnectionQuotas(Time())
    made.most_new = 1
    waits = [made.opened(f"10.0.0.{number}") for number in range(12)]
    assert all(stays for stays, _ in waits)
    assert [wait for _, wait in waits[:10]] == [0] * 10
    assert waits[10][1] > 0
