"""A transactional producer that sends offsets of a group, one transaction after another, and aborts some.

It says in whose name it sends them (KIP-447), or not, as producers before that; and it may be the name of
a member of an old generation.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.coordinator import Producer
from penstock.groups import Caller
from tests.sim.commits import Commits, Identity

RETRY_MS = 100
PAUSE_MS = 12_000
LONGEST_MS = 12_000


class OffsetsProducer:
    def __init__(
        self,
        commits: Commits,
        producer_id: int,
        parts: list[tuple[str, int]],
        *,
        identity: Callable[[], Identity],
        goes_on: Callable[[], bool],
    ) -> None:
        self.commits = commits
        self.simulation = commits.simulation
        self.rng = commits.simulation.rng
        self.producer = Producer(producer_id, 0)
        self.who = Caller(f"p{producer_id}", "/sim", 3)
        self.parts = parts
        self.identity = identity
        self.goes_on = goes_on

    def begin(self) -> None:
        if not self.goes_on():
            return
        self.producer = self.producer._replace(epoch=self.producer.epoch + 1)
        self.commits.begin(self.producer)
        for _ in range(self.rng.randint(1, 2)):
            identity = self.identity() if self.rng.random() < 0.5 else Identity()
            chosen = self.rng.sample(self.parts, self.rng.randint(1, len(self.parts)))
            offsets = {part: self.rng.randrange(1_000_000) for part in chosen}
            self.commits.send_offsets(self.who, self.producer, identity, offsets)
        committed = self.rng.random() < 0.5
        self.simulation.after(self.rng.randrange(LONGEST_MS), lambda: self._end(committed))

    def _end(self, committed: bool) -> None:
        if self.simulation.shard is None:
            self.simulation.after(RETRY_MS, lambda: self._end(committed))
            return
        self.commits.end(self.producer, committed)
        self.simulation.after(self.rng.randrange(PAUSE_MS), self.begin)
