"""Balances members with different subscriptions: part of the uniform assignor.

Topics with the same subscribers form a bundle, because their partitions are interchangeable. There are three
steps: unassigned partitions go to the member with the fewest; members with the most give directly to those
with the fewest; then along chains of members (a gives to b, which gives to c). The steps are nearly linear in
partitions and subscriptions, except the last one: it ends when no chain is left or its work limit is reached,
so very large groups with many kinds of subscriptions may be slightly less even than possible.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from uuid import UUID

Key = tuple[UUID, int]
"""A partition of a topic."""

_MOST_ROUNDS = 5
_MOST_WORK = 300_000
"""Members looked at in search of chains."""


class Levels:
    """The assignment during the computation. Members are numbered in the order of their ids."""

    __slots__ = ("_bundle_of", "_held", "_loads", "_names", "_takers")

    def __init__(self, shares: Mapping[str, list[Key]], topics: Mapping[str, frozenset[UUID]]) -> None:
        """The initial partitions and the subscriptions of all members."""
        self._names = sorted(shares)
        kinds: dict[frozenset[UUID], list[int]] = {}
        for number, name in enumerate(self._names):
            kinds.setdefault(topics[name], []).append(number)
        wanted_by: dict[UUID, list[int]] = {}
        for kind, wanted in enumerate(kinds):
            for topic in wanted:
                wanted_by.setdefault(topic, []).append(kind)
        members = list(kinds.values())
        bundles: dict[tuple[int, ...], int] = {}
        self._bundle_of: dict[UUID, int] = {}
        for topic in sorted(wanted_by):
            of_kinds = tuple(wanted_by[topic])
            self._bundle_of[topic] = bundles.setdefault(of_kinds, len(bundles))
        self._takers = [sorted(n for kind in of_kinds for n in members[kind]) for of_kinds in bundles]
        self._loads = [len(shares[name]) for name in self._names]
        self._held: list[dict[int, list[Key]]] = []
        """By member and bundle."""
        for name in self._names:
            held: dict[int, list[Key]] = {}
            for key in shares[name]:
                held.setdefault(self._bundle_of[key[0]], []).append(key)
            self._held.append(held)

    def level(self, free: Iterable[Key]) -> dict[str, list[Key]]:
        self._hand_out(free)
        for _ in range(_MOST_ROUNDS):
            if sum(map(self._give_directly, range(len(self._takers)))) == 0:
                break
        self._give_in_chains()
        return {
            name: [key for keys in held.values() for key in keys]
            for name, held in zip(self._names, self._held, strict=True)
        }

    def _move(self, giver: int, bundle: int, taker: int, count: int = 1) -> None:
        mine = self._held[giver][bundle]
        self._held[taker].setdefault(bundle, []).extend(mine[-count:])
        del mine[-count:]
        if not mine:
            del self._held[giver][bundle]
        self._loads[giver] -= count
        self._loads[taker] += count

    def _hand_out(self, free: Iterable[Key]) -> None:
        loads = self._loads
        by_bundle: dict[int, list[Key]] = {}
        for key in free:
            by_bundle.setdefault(self._bundle_of[key[0]], []).append(key)
        # Bundles with few subscribers first: the others can compensate.
        for bundle in sorted(by_bundle, key=lambda bundle: (len(self._takers[bundle]), bundle)):
            least = [(loads[member], member) for member in self._takers[bundle]]
            heapq.heapify(least)
            for key in by_bundle[bundle]:
                load, member = least[0]
                self._held[member].setdefault(bundle, []).append(key)
                loads[member] = load + 1
                heapq.heapreplace(least, (load + 1, member))

    def _give_directly(self, bundle: int) -> bool:
        """Balances the subscribers of this bundle. Returns whether a partition was moved."""
        loads, held = self._loads, self._held
        least = [(loads[member], member) for member in self._takers[bundle]]
        most = [(-loads[member], member) for member in self._takers[bundle] if bundle in held[member]]
        if not most or -min(most)[0] - min(least)[0] < 2:
            return False
        heapq.heapify(least)
        heapq.heapify(most)
        while most:
            load, giver = most[0]
            # Both heaps may have an outdated load of a member: the entry is corrected when it is popped.
            if -load != loads[giver]:
                heapq.heapreplace(most, (-loads[giver], giver))
                continue
            low, taker = least[0]
            if low != loads[taker]:
                heapq.heapreplace(least, (loads[taker], taker))
                continue
            if -load - low < 2:
                break
            if bundle not in held[taker]:
                heapq.heappush(most, (-low - 1, taker))
            self._move(giver, bundle, taker)
            heapq.heapreplace(least, (low + 1, taker))
            if bundle in held[giver]:
                heapq.heapreplace(most, (load + 1, giver))
            else:
                heapq.heappop(most)
        return True

    def _give_in_chains(self) -> None:
        """Starts with the members that have most. Members visited by an unsuccessful search cannot give to
        any member with fewer, and neither can chains of members with fewer that lead there: they are not
        visited again.
        """
        loads = self._loads
        fullest = [(-load, member) for member, load in enumerate(loads)]
        heapq.heapify(fullest)
        stuck: set[int] = set()
        work = _MOST_WORK
        while fullest and work > 0:
            load, giver = fullest[0]
            if giver in stuck:
                heapq.heappop(fullest)
                continue
            if -load != loads[giver]:
                heapq.heapreplace(fullest, (-loads[giver], giver))
                continue
            came_from, taker, looked_at = self._search(giver, stuck)
            work -= looked_at
            if taker is None:
                stuck.add(giver)
                stuck.update(came_from)
                continue
            path = _walk_back(came_from, giver, taker)
            count = min(len(self._held[source][bundle]) for source, bundle, _ in path)
            count = min(count, (loads[giver] - loads[taker]) // 2)
            for source, bundle, to in path:
                self._move(source, bundle, to, count)
            heapq.heapreplace(fullest, (-loads[giver], giver))
            heapq.heappush(fullest, (-loads[taker], taker))

    def _search(self, giver: int, stuck: set[int]) -> tuple[dict[int, tuple[int, int]], int | None, int]:
        """The shortest chain to a member with at least two partitions fewer, if there is one: who gives what
        to each member on the path, the member at its end, and the number of visited members.
        """
        loads = self._loads
        limit = loads[giver] - 2
        came_from: dict[int, tuple[int, int]] = {}
        seen: set[int] = set()
        looked_at = 1
        queue = [giver]
        for member in queue:
            for bundle in self._held[member]:
                if bundle in seen:
                    continue
                seen.add(bundle)
                looked_at += len(self._takers[bundle])
                for taker in self._takers[bundle]:
                    if taker in came_from or taker == giver or taker in stuck:
                        continue
                    came_from[taker] = (member, bundle)
                    if loads[taker] <= limit:
                        return came_from, taker, looked_at
                    queue.append(taker)
        return came_from, None, looked_at


def _walk_back(
    came_from: Mapping[int, tuple[int, int]], giver: int, taker: int
) -> list[tuple[int, int, int]]:
    """The moves, last one first: giving member, bundle, receiving member."""
    path = []
    while taker != giver:
        source, bundle = came_from[taker]
        path.append((source, bundle, taker))
        taker = source
    return path
