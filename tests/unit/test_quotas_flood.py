"""A flood of client ids or addresses: bounded memory, few steps for each, and no debt is forgotten."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

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
from tests.unit.test_quotas import Time, entity, quotas

FLOOD = 50_000
BOUND = 10_000
# What one new client may cost; a look at all of them would be more than BOUND.
STEPS = 200


def steps_of(call: Callable[[], object]) -> int:
    """The calls of functions, of Python and of C, in it."""
    steps = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return steps


def flood(one: Callable[[str], object]) -> None:
    """Each client costs few steps: counted before, while and long after the bound is reached."""
    counted = {*range(BOUND - 10, BOUND + 10), *range(FLOOD - 10, FLOOD)}
    for number in range(FLOOD):
        client = f"c{number}"
        if number in counted:
            assert steps_of(lambda client=client: one(client)) <= STEPS, number  # type: ignore[misc]
        else:
            one(client)


@pytest.mark.promise(
    "access",
    "A flood of client ids or addresses costs a small constant amount of work for each, in bounded "
    "memory, and ends no throttle time early",
)
@pytest.mark.parametrize("kind", [PRODUCE, FETCH, REQUEST])
def test_rates_of_a_flood_of_client_ids_are_bounded_and_a_wait_survives_it(kind: str) -> None:
    time = Time()
    made = quotas(time, {entity(client_id=None): {kind: 1000.0}})
    assert made.record(kind, ("u", "debtor"), 60_000) > 0

    def one(client: str) -> None:
        made.record(kind, ("u", client), 1)
        made.fetch_wait(("u", client))

    flood(one)
    assert len(made._rates) <= BOUND and len(made._bounds) <= BOUND
    assert made.record(kind, ("u", "debtor"), 0) > 0
    assert (made.fetch_wait(("u", "debtor")) > 0) is (kind == FETCH)


def test_a_flood_of_client_ids_that_all_must_wait_is_bounded_and_the_longest_wait_survives_it() -> None:
    made = quotas(Time(), {entity(client_id=None): {FETCH: 1000.0}})
    assert made.record(FETCH, ("u", "debtor"), 60_000) > 0
    flood(lambda client: made.record(FETCH, ("u", client), 20_000))
    assert len(made._rates) <= BOUND and len(made._fetch_waits) <= BOUND
    assert made.fetch_wait(("u", "debtor")) > 0
    assert made.record(FETCH, ("u", "debtor"), 0) > 0


def test_buckets_of_a_flood_of_client_ids_are_bounded_and_a_debt_survives_it() -> None:
    made = quotas(Time(), {entity(client_id=None): {MUTATION: 1.0}})
    assert made.mutate(("u", "debtor"), 1000, strict=True) == (True, 0)
    flood(lambda client: made.mutate(("u", client), 1, strict=True))
    assert len(made._buckets) <= BOUND
    allowed, wait = made.mutate(("u", "debtor"), 1, strict=True)
    assert not allowed and wait > 900_000


def test_a_client_that_comes_again_and_again_is_not_forgotten_in_a_flood() -> None:
    made = quotas(Time(), {entity(client_id=None): {PRODUCE: 1000.0}})
    for number in range(FLOOD):
        made.record(PRODUCE, ("u", f"c{number}"), 1)
        if number % 5000 == 0:
            assert made.record(PRODUCE, ("u", "steady"), 1000) == 0
    assert made.record(PRODUCE, ("u", "steady"), 1000) > 0


def test_addresses_of_a_flood_are_bounded_and_one_past_its_rate_stays_so() -> None:
    made = ConnectionQuotas(Time())
    made.update({entity(ip=None): {CONNECTIONS: 1.0}})

    def connect(address: str) -> bool:
        stays, _ = made.opened(address)
        made.closed(address)
        return stays

    assert [connect("10.0.0.1") for _ in range(11)] == [True] * 10 + [False]
    flood(connect)
    assert len(made._rates) <= BOUND
    assert not connect("10.0.0.1")


def test_a_change_of_any_quota_does_not_forgive_addresses() -> None:
    made = ConnectionQuotas(Time())
    found = {entity(ip=None): {CONNECTIONS: 1.0}}
    made.update(found)
    assert [made.opened("10.0.0.1")[0] for _ in range(11)] == [True] * 10 + [False]
    made.update({**found, entity(user="u"): {PRODUCE: 1.0}})
    assert made.opened("10.0.0.1")[0] is False


def test_a_flood_before_there_is_a_quota_keeps_nothing() -> None:
    made = ClientQuotas(Time())
    flood(lambda client: made.record(PRODUCE, ("u", client), 1))
    assert len(made._rates) == 0 and len(made._bounds) <= BOUND
