"""Replica placement of new partitions: a pure function of the brokers and their current load.

Promises: the replicas of a partition are on distinct brokers and spread over as many racks as possible; among
the brokers that qualify, the least loaded are chosen; the first replica (the preferred leader) is the chosen
broker that leads the fewest partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from penstock.errors import InvalidReplicationFactor
from penstock.metadata.image import BrokerInfo, ClusterImage


class Load:
    """How many replicas and preferred leaders each broker has; updated with every placement."""

    def __init__(self) -> None:
        self.replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()

    @classmethod
    def of(cls, image: ClusterImage) -> Load:
        load = cls()
        if len(image.brokers) <= 1:
            return load  # only one choice, so no need to count the partitions
        for topic in image.topics.values():
            for partition in topic.partitions:
                load.add(partition.replicas)
        return load

    def add(self, replicas: tuple[int, ...]) -> None:
        self.replicas.update(replicas)
        self.leaders[replicas[0]] += 1


def check_replication_factor(brokers: Collection[BrokerInfo], replication_factor: int) -> None:
    """Raises InvalidReplicationFactor if there are not enough brokers for `place`."""
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): "
            f"only {len(brokers)} broker(s) are registered."
        )


def place(
    brokers: Iterable[BrokerInfo], load: Load, count: int, replication_factor: int
) -> list[tuple[int, ...]]:
    """The replica lists of `count` new partitions; adds them to the load."""
    rack_of = {broker.id: broker.rack for broker in brokers}
    placed = []
    for _ in range(count):
        replicas = _place_one(rack_of, load, replication_factor)
        load.add(replicas)
        placed.append(replicas)
    return placed


def _place_one(rack_of: dict[int, str | None], load: Load, replication_factor: int) -> tuple[int, ...]:
    rack_load: Counter[str | None] = Counter()
    for broker, rack in rack_of.items():
        rack_load[rack] += load.replicas[broker]
    used_racks: Counter[str | None] = Counter()
    free = set(rack_of)
    chosen: list[int] = []

    def cost(broker: int) -> tuple[int, int, int, int, int]:
        # Brokers that lead few partitions are kept for leaders: place other replicas on those that lead many.
        rack, leaders = rack_of[broker], load.leaders[broker]
        return (
            used_racks[rack],
            load.replicas[broker],
            rack_load[rack],
            -leaders if chosen else leaders,
            broker,
        )

    while len(chosen) < replication_factor:
        broker = min(free, key=cost)
        free.remove(broker)
        chosen.append(broker)
        used_racks[rack_of[broker]] += 1
    leader = min(chosen, key=lambda broker: (load.leaders[broker], chosen.index(broker)))
    return (leader, *(broker for broker in chosen if broker != leader))
