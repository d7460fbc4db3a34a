"""Computes which replicas to move to balance brokers, or to empty one. Pure.

A plan moves as few replicas as possible: one at a time from the broker with the most to the one with the
fewest, until none has two more than another. Then leaders are balanced by reordering replicas only, which
copies nothing. No move reduces the number of racks of a partition.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Key = tuple[str, int]
Racks = Mapping[int, str | None]
"""The brokers that are up, each with its rack."""


class TooFewBrokers(Exception):
    """No broker could take over a replica."""

    def __init__(self, key: Key, broker: int) -> None:
        super().__init__(f"no other broker can take {key[0]}-{key[1]} over from broker {broker}")


@dataclass(frozen=True, slots=True)
class Move:
    topic: str
    partition: int
    old: tuple[int, ...]
    new: tuple[int, ...]

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.new if broker not in self.old)

    @property
    def removing(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.old if broker not in self.new)


class _Plan:
    """Assignments being changed; `replicas` and `leaders` count per broker."""

    def __init__(self, placed: Mapping[Key, Sequence[int]], racks: Racks) -> None:
        self.old = {key: tuple(replicas) for key, replicas in placed.items()}
        self.now = {key: list(replicas) for key, replicas in placed.items()}
        self.racks = racks
        self.replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        self.of_topic: Counter[tuple[str, int]] = Counter()
        for (topic, _), replicas in self.now.items():
            self.replicas.update(replicas)
            self.leaders[replicas[0]] += 1
            self.of_topic.update((topic, broker) for broker in replicas)

    def racks_of(self, brokers: Iterable[int]) -> int:
        """The number of racks of these brokers; a broker without a rack counts as its own."""
        return len({self.racks.get(broker) or broker for broker in brokers})

    def replace(self, key: Key, source: int, target: int) -> None:
        replicas = self.now[key]
        at = replicas.index(source)
        replicas[at] = target
        self.replicas[source] -= 1
        self.replicas[target] += 1
        self.of_topic[key[0], source] -= 1
        self.of_topic[key[0], target] += 1
        if at == 0:
            self.leaders[source] -= 1
            self.leaders[target] += 1

    def lead(self, key: Key, broker: int) -> None:
        replicas = self.now[key]
        self.leaders[replicas[0]] -= 1
        self.leaders[broker] += 1
        replicas.remove(broker)
        replicas.insert(0, broker)

    def moves(self) -> list[Move]:
        return [
            Move(*key, self.old[key], tuple(replicas))
            for key, replicas in sorted(self.now.items())
            if tuple(replicas) != self.old[key]
        ]


def rebalance(placed: Mapping[Key, Sequence[int]], racks: Racks) -> list[Move]:
    """Moves after which brokers differ by at most one replica and one preferred leader, if possible."""
    plan = _Plan(placed, racks)
    while _move_one(plan):
        pass
    while _lead_one(plan):
        pass
    return plan.moves()


def _move_one(plan: _Plan) -> bool:
    by_load = sorted(plan.racks, key=lambda broker: (plan.replicas[broker], broker))
    for source in reversed(by_load):
        for target in by_load:
            if plan.replicas[source] - plan.replicas[target] <= 1:
                break
            key = _movable(plan, source, target)
            if key is not None:
                plan.replace(key, source, target)
                return True
    return False


def _movable(plan: _Plan, source: int, target: int) -> Key | None:
    best: tuple[int, Key] | None = None
    for key, replicas in plan.now.items():
        if source not in replicas or target in replicas:
            continue
        after = [target if broker == source else broker for broker in replicas]
        if plan.racks_of(after) < plan.racks_of(replicas):
            continue
        # Choose the topic with the most replicas on the one and the fewest on the other, so that topics stay
        # spread.
        surplus = plan.of_topic[key[0], source] - plan.of_topic[key[0], target]
        if best is None or (-surplus, key) < best:
            best = (-surplus, key)
    return None if best is None else best[1]


def _lead_one(plan: _Plan) -> bool:
    """Move one leadership from a broker that has two more than another: directly, or through other
    brokers.
    """
    by_load = sorted(plan.racks, key=lambda broker: (plan.leaders[broker], broker))
    hops: dict[int, dict[int, Key]] = {}
    for key, replicas in sorted(plan.now.items()):
        for broker in replicas[1:]:
            hops.setdefault(replicas[0], {}).setdefault(broker, key)
    for source in reversed(by_load):
        came: dict[int, int] = {source: source}
        queue = deque([source])
        while queue:
            broker = queue.popleft()
            if plan.leaders[source] - plan.leaders[broker] > 1 and broker in plan.racks:
                while broker != source:
                    plan.lead(hops[came[broker]][broker], broker)
                    broker = came[broker]
                return True
            for after in sorted(hops.get(broker, {})):
                if after not in came and after in plan.racks:
                    came[after] = broker
                    queue.append(after)
    return False


def vacate(placed: Mapping[Key, Sequence[int]], racks: Racks, broker: int) -> list[Move]:
    """Moves after which `broker` has no replicas. Raises TooFewBrokers if a replica cannot be placed."""
    plan = _Plan(placed, racks)
    for key, replicas in sorted(plan.now.items()):
        if broker not in replicas:
            continue
        free = [other for other in racks if other != broker and other not in replicas]
        if not free:
            raise TooFewBrokers(key, broker)
        staying = [other for other in replicas if other != broker]
        target = min(
            free,
            key=lambda other: (-plan.racks_of([*staying, other]), plan.replicas[other], other),
        )
        led = replicas[0] == broker
        plan.replace(key, broker, target)
        if led:
            plan.lead(
                key, min(replicas, key=lambda other: (plan.leaders[other] - (other == replicas[0]), other))
            )
    return plan.moves()
