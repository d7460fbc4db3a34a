"""Placement: distinct brokers, even load, spread over racks, for any cluster."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.controller.placement import Load, check_replication_factor, place
from penstock.errors import InvalidReplicationFactor
from penstock.metadata import BrokerInfo


def brokers(racks: Sequence[str | None]) -> list[BrokerInfo]:
    return [BrokerInfo(i + 1, "localhost", 9092 + i, rack) for i, rack in enumerate(racks)]


def spread(counts: Counter[int], cluster: list[BrokerInfo]) -> int:
    values = [counts[broker.id] for broker in cluster]
    return max(values) - min(values)


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """A cluster size, and topics as (partitions, replication factor)."""
    size = draw(st.integers(1, 9))
    topics = draw(st.lists(st.tuples(st.integers(1, 12), st.integers(1, size)), min_size=1, max_size=6))
    return size, topics


@given(requests())
def test_replicas_are_on_distinct_brokers_and_loads_differ_by_at_most_one(
    request: tuple[int, list[tuple[int, int]]],
) -> None:
    size, topics = request
    cluster, load = brokers([None] * size), Load()
    for count, factor in topics:
        placed = place(cluster, load, count, factor)
        assert len(placed) == count
        assert all(len(set(replicas)) == factor for replicas in placed)
        assert spread(load.replicas, cluster) <= 1


@given(st.integers(1, 9), st.integers(1, 40), st.data())
def test_leaders_of_one_topic_differ_by_at_most_one(size: int, count: int, data: st.DataObject) -> None:
    cluster, load = brokers([None] * size), Load()
    place(cluster, load, count, data.draw(st.integers(1, size)))
    assert spread(load.leaders, cluster) <= 1


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=9), st.integers(1, 12), st.data())
def test_replicas_are_spread_over_as_many_racks_as_there_are(
    racks: list[str], count: int, data: st.DataObject
) -> None:
    cluster = brokers(racks)
    rack_of = {broker.id: broker.rack for broker in cluster}
    factor = data.draw(st.integers(1, len(cluster)))
    for replicas in place(cluster, Load(), count, factor):
        assert len(set(replicas)) == factor
        assert len({rack_of[broker] for broker in replicas}) == min(factor, len(set(racks)))


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 30), st.data())
def test_with_racks_of_equal_size_loads_still_differ_by_at_most_one(
    racks: int, per_rack: int, count: int, data: st.DataObject
) -> None:
    cluster, load = brokers([f"r{i}" for i in range(racks)] * per_rack), Load()
    place(cluster, load, count, data.draw(st.integers(1, len(cluster))))
    assert spread(load.replicas, cluster) <= 1


def test_new_partitions_go_to_the_least_loaded_brokers() -> None:
    load = Load()
    for _ in range(5):
        load.add((1, 2))
    assert place(brokers([None] * 4), load, 2, 2) == [(3, 4), (4, 3)]


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(InvalidReplicationFactor, match=r"3 time\(s\): only 2 broker"):
        check_replication_factor(brokers([None, None]), 3)
