"""Plans that even out brokers: few moves, no broker twice, no rack lost, leaders shared."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.admin.partitions.moves import Key, Move, Racks, TooFewBrokers, rebalance, vacate

Placed = dict[Key, tuple[int, ...]]


def after(placed: Placed, moves: list[Move]) -> Placed:
    return {**placed, **{(move.topic, move.partition): move.new for move in moves}}


def loads(placed: Placed, brokers: Racks) -> list[int]:
    counts = Counter(broker for replicas in placed.values() for broker in replicas)
    return [counts[broker] for broker in brokers]


def leaders(placed: Placed, brokers: Racks) -> list[int]:
    counts = Counter(replicas[0] for replicas in placed.values())
    return [counts[broker] for broker in brokers]


def racks_of(replicas: tuple[int, ...], racks: Racks) -> int:
    return len({racks.get(broker) or broker for broker in replicas})


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Placed, dict[int, str | None]]:
    """Any placement on some brokers, of which others may be empty."""
    brokers = draw(st.integers(1, 6))
    names = draw(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=brokers, max_size=brokers))
    racks = {at + 1: name for at, name in enumerate(names)}
    placed: Placed = {}
    for topic in draw(st.lists(st.sampled_from("tuv"), max_size=3, unique=True)):
        factor = draw(st.integers(1, min(3, brokers)))
        for index in range(draw(st.integers(1, 8))):
            order = draw(st.permutations(sorted(racks)))
            placed[topic, index] = tuple(order[:factor])
    return placed, racks


@pytest.mark.promise(
    "reassignment",
    "A broker can be added, used for new partitions and, on request, for existing ones, and decommissioned",
)
@settings(deadline=None)
@given(clusters())
def test_any_cluster_is_evened_out_without_a_broker_twice_or_a_rack_lost(
    cluster: tuple[Placed, dict[int, str | None]],
) -> None:
    placed, racks = cluster
    moves = rebalance(placed, racks)
    then = after(placed, moves)
    for key, replicas in then.items():
        assert len(set(replicas)) == len(replicas) == len(placed[key])
        assert racks_of(replicas, racks) >= racks_of(placed[key], racks)
        assert set(replicas) <= set(racks)
    before, now = loads(placed, racks), loads(then, racks)
    assert max(now) - min(now) <= max(max(before) - min(before), 1)
    if all(rack is None for rack in racks.values()):
        assert max(now) - min(now) <= 1
        # As few copies as that takes.
        copies = sum(len(move.adding) for move in moves)
        assert copies == sum(max(was - is_, 0) for was, is_ in zip(before, now, strict=True))
    assert rebalance(then, racks) == []


def test_what_is_even_stays() -> None:
    assert rebalance({("t", 0): (1, 2), ("t", 1): (2, 1)}, {1: None, 2: None}) == []
    assert rebalance({}, {1: None}) == []


def test_a_new_broker_gets_its_share_with_as_few_copies_as_that_takes() -> None:
    racks: dict[int, str | None] = {1: None, 2: None, 3: None, 4: None}
    placed: Placed = {("t", index): ((1, 2, 3), (2, 3, 1), (3, 1, 2))[index % 3] for index in range(12)}
    moves = rebalance(placed, racks)
    then = after(placed, moves)
    assert loads(then, racks) == [9, 9, 9, 9]
    assert sum(len(move.adding) for move in moves) == 9
    assert all(move.adding in ((), (4,)) for move in moves)
    assert leaders(then, racks) == [3, 3, 3, 3]


def test_leaders_are_shared_out_by_order_alone_where_copies_are_even() -> None:
    racks: dict[int, str | None] = {1: None, 2: None, 3: None}
    placed: Placed = {("t", index): (1, 2, 3) for index in range(6)}
    moves = rebalance(placed, racks)
    assert leaders(after(placed, moves), racks) == [2, 2, 2]
    assert all(not move.adding and not move.removing for move in moves)


def test_a_lead_goes_by_way_of_others_where_it_cannot_go_straight() -> None:
    # 1 leads most and shares nothing with 3; 2 shares with both.
    racks: dict[int, str | None] = {1: None, 2: None, 3: None}
    placed: Placed = {
        ("a", 0): (1, 2),
        ("b", 0): (1, 2),
        ("c", 0): (2, 3),
        ("d", 0): (3, 1),
        ("e", 0): (1, 3),
    }
    assert max(leaders(after(placed, rebalance(placed, racks)), racks)) == 2


def test_replicas_stay_in_as_many_racks_as_they_are() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    placed: Placed = {("t", index): (1, 3) for index in range(4)}
    then = after(placed, rebalance(placed, racks))
    assert loads(then, racks) == [2, 2, 2, 2]
    assert all(racks_of(replicas, racks) == 2 for replicas in then.values())


@pytest.mark.promise(
    "reassignment",
    "A broker can be added, used for new partitions and, on request, for existing ones, and decommissioned",
)
def test_a_broker_is_vacated_and_the_others_share_what_it_had() -> None:
    racks: dict[int, str | None] = {1: None, 2: None, 3: None, 4: None}
    placed: Placed = {("t", index): (4, 1 + index % 3) for index in range(6)}
    moves = vacate(placed, racks, 4)
    then = after(placed, moves)
    assert loads(then, racks)[3] == 0
    assert max(loads(then, racks)[:3]) - min(loads(then, racks)[:3]) <= 1
    assert leaders(then, racks)[:3] == [2, 2, 2]
    assert all(move.removing == (4,) and len(move.adding) == 1 for move in moves)
    assert vacate(then, racks, 4) == []


def test_a_broker_that_is_gone_can_be_vacated() -> None:
    moves = vacate({("t", 0): (1, 9)}, {1: None, 2: None}, 9)
    assert [(move.old, move.new) for move in moves] == [((1, 9), (1, 2))]


def test_a_vacated_broker_is_replaced_in_another_rack_where_there_is_one() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    (move,) = vacate({("t", 0): (1, 3)}, racks, 3)
    assert move.new == (1, 4)


def test_a_partition_that_has_nowhere_to_go_is_named() -> None:
    with pytest.raises(TooFewBrokers, match="orders-0 over from broker 2"):
        vacate({("orders", 0): (1, 2)}, {1: None, 2: None}, 2)
