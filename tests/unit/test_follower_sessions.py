"""The fetch session of a follower: what a fetch looks at, what ends its wait, and that nothing is missed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker import follower_sessions
from penstock.broker.api import fetch
from penstock.broker.fetch.sessions import FetchSessionCache
from penstock.broker.net.context import RequestContext
from penstock.clock import ManualClock
from penstock.config import BrokerConfig, resolve_topic
from penstock.errors import FetchSessionIdNotFound, NotLeaderOrFollower
from penstock.fs import REAL_FS
from penstock.log.recovery.loading import open_log
from penstock.replication.delayed import DelayedOperations
from penstock.replication.partition import Partition
from penstock.replication.throttle import Throttle
from penstock.wire import replica_fetch
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.replica_fetch import ReplicaAnswer, ReplicaPartition
from tests.unit.cluster_images import cluster
from tests.unit.cluster_images import partition as image_of

LONG_MS = 60_000
FOLLOWER, OTHER = 2, 3


class Leader:
    """Broker 1, which leads `count` partitions of topic t with replicas 1, 2 and 3."""

    def __init__(self, path: Path, count: int) -> None:
        loop = asyncio.get_running_loop()
        self.clock = ManualClock()
        self.delayed = DelayedOperations(loop)
        self.image = cluster(*(image_of(index=index) for index in range(count)))
        self.topic_id = self.image.topics["t"].id
        self.partitions: dict[tuple[str, int], Partition] = {}
        for index in range(count):
            config = resolve_topic(BrokerConfig.parse({}), {})
            log = open_log(
                str(path / f"t-{index}"), "t", index, self.topic_id, config, self.clock, REAL_FS, clean=True
            )
            image = self.image.topics["t"].partitions[index]
            self.partitions["t", index] = Partition(image, log, 1, self.delayed.wake, self.clock.now_ms)
        topics = SimpleNamespace(image=self.image, partitions=self.partitions, unavailable=set())
        throttle = Throttle(1, lambda: 1 << 40, lambda config: (), self.clock.monotonic)
        self.broker: Any = SimpleNamespace(
            loop=loop,
            clock=self.clock,
            delayed=self.delayed,
            topics=topics,
            image=self.image,
            endpoints=lambda leaders, listener: (),
            authorizer=None,
            quotas=SimpleNamespace(is_active=False),
            config=SimpleNamespace(
                fetch_max_bytes=1 << 20, replica_selector_class=None, inter_broker_listener="PLAINTEXT"
            ),
            sessions=FetchSessionCache(10, self.clock, random.Random(1)),
            membership=SimpleNamespace(
                leader_throttle=throttle,
                isr=SimpleNamespace(follower_fetched=lambda partition, replica: None),
            ),
        )

    def append(self, index: int) -> None:
        batch = bytearray(build_batch([Record(0, self.clock.now_ms(), None, b"value")]))
        self.partitions["t", index].append(batch, 0, len(batch), -1)


class Follower:
    """Keeps up with what it is sent, and names in each fetch what has changed, as a broker does."""

    def __init__(self, leader: Leader, replica_id: int) -> None:
        self.leader = leader
        self.replica_id = replica_id
        self.ends = dict.fromkeys((index for _, index in leader.partitions), 0)
        self.high_watermarks: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self._session = (0, 0)
        self._changed = set(self.ends)

    def send(self, max_wait_ms: int = LONG_MS, **more: Any) -> Any:
        """An answer, or a future of it."""
        named = [
            ReplicaPartition(index, 5, end := self.ends[index], 5 if end else -1, 0, 1 << 20)
            for index in sorted(self._changed)
        ]
        self._changed.clear()
        body = bytearray(
            replica_fetch.encode_request(
                more.get("replica_id", self.replica_id), more.get("epoch", self.replica_id * 10),
                max_wait_ms=max_wait_ms,
                min_bytes=more.get("min_bytes", 1), max_bytes=more.get("max_bytes", 1 << 20),
                session_id=self._session[0], session_epoch=self._session[1],
                topics={self.leader.topic_id: named} if named else {}, forgotten={},
            )
        )  # fmt: skip
        context = RequestContext(ApiKey.FETCH, replica_fetch.VERSION, 1, "broker-2", "peer", 1)
        return fetch.handle(self.leader.broker, context, body, 0, len(body))

    def take(self, chunks: Any) -> ReplicaAnswer:
        frame = bytearray(b"".join(one if isinstance(one, bytes) else one.read() for one in chunks))
        answer = replica_fetch.decode_answer(frame, 0)
        if answer.error_code == 0:
            self._session = (answer.session_id, self._session[1] + 1) if answer.session_id else (0, 0)
        for result in answer.results:
            self.high_watermarks[result.partition] = result.high_watermark
            self.starts[result.partition] = result.log_start_offset
            if result.end > result.start:
                self.ends[result.partition] += 1  # each batch has one record
                self._changed.add(result.partition)
        return answer

    def exchange(self, **more: Any) -> ReplicaAnswer:
        """A fetch that does not wait."""
        return self.take(self.send(0, **more))

    def settle(self) -> None:
        while self.exchange().results or self._changed:
            pass


@contextmanager
def fetched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The partitions that were looked at, in order."""
    seen: list[int] = []
    original = Partition.follower_fetched

    def noted(self: Partition, *args: Any, **more: Any) -> Any:
        seen.append(self.key[1])
        return original(self, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "follower_fetched", noted)
        yield seen


def both(path: Path, count: int) -> tuple[Leader, Follower, Follower]:
    """With sessions of both, in which all is known."""
    leader = Leader(path, count)
    one, other = Follower(leader, FOLLOWER), Follower(leader, OTHER)
    for _ in range(2):
        one.settle()
        other.settle()
    return leader, one, other


@pytest.mark.promise(
    "topics",
    "The cost of a follower's fetch depends on the partitions with changes, not on all the partitions "
    "that it follows",
)
def test_a_fetch_looks_only_at_partitions_in_which_something_has_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        leader, one, _ = both(tmp_path, 20)
        with fetched(monkeypatch) as seen:
            assert not one.exchange().results
            assert seen == []
            leader.append(7)
            [result] = one.exchange().results
            assert (result.partition, seen) == (7, [7])

    asyncio.run(main())


@pytest.mark.promise(
    "topics",
    "The cost of a follower's fetch depends on the partitions with changes, not on all the partitions "
    "that it follows",
)
def test_an_append_ends_the_wait_and_is_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        leader, one, _ = both(tmp_path, 20)
        waiting = one.send()
        with fetched(monkeypatch) as seen:
            for index in (3, 4, 3):
                leader.append(index)
            answer = one.take(await waiting)
            assert [result.partition for result in answer.results] == [3, 4]
            assert sorted(seen) == [3, 4]

    asyncio.run(main())


def test_an_append_that_a_fetch_itself_brings_about_ends_its_wait(tmp_path: Path) -> None:
    """A fetch shows that a record is replicated, and what follows from that is appended before it waits: the
    marker of a transaction after its decision."""

    async def main() -> None:
        leader, one, other = both(tmp_path, 3)
        partition = leader.partitions["t", 0]
        wake = partition._on_change

        def append_when_replicated(key: tuple[str, int]) -> None:
            wake(key)
            if partition.log.high_watermark == 1:
                leader.append(1)

        partition._on_change = append_when_replicated
        leader.append(0)
        one.exchange()
        one.send()
        other.exchange()
        answer = other.take(await asyncio.wait_for(other.send(), 10))
        assert 1 in [result.partition for result in answer.results]

    asyncio.run(main())


def test_a_high_watermark_that_moves_ends_no_wait_and_comes_with_the_next_records(tmp_path: Path) -> None:
    async def main() -> None:
        leader, one, other = both(tmp_path, 3)
        leader.append(0)
        one.exchange()
        waiting = one.send()  # has the record
        other.exchange()
        other.exchange()  # has it, too
        assert leader.partitions["t", 0].log.high_watermark == 1
        await asyncio.sleep(0)
        assert not waiting.done()
        leader.append(0)
        one.take(await waiting)
        assert one.high_watermarks[0] == 1

    asyncio.run(main())


@pytest.mark.promise(
    "topics",
    "Followers get a new high watermark with the next records of its partition, or after about half a second",
)
def test_a_high_watermark_comes_at_the_end_of_the_wait_where_no_records_do(tmp_path: Path) -> None:
    async def main() -> None:
        leader, one, other = both(tmp_path, 3)
        leader.append(0)
        one.exchange()
        waiting = one.send(10)
        other.exchange()
        other.exchange()
        one.take(await waiting)
        assert one.high_watermarks[0] == 1

    asyncio.run(main())


@pytest.mark.promise(
    "topics",
    "Followers get a new high watermark with the next records of its partition, or after about half a second",
)
def test_a_high_watermark_comes_now_and_then_where_records_of_others_end_each_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        leader, one, other = both(tmp_path, 3)
        leader.append(0)
        one.exchange()
        waiting = one.send()
        other.exchange()
        other.exchange()
        leader.append(1)
        one.take(await waiting)
        assert one.high_watermarks[0] == 0
        monkeypatch.setattr(follower_sessions, "_LOOK_AT_ALL_S", 0.0)
        waiting = one.send()
        leader.append(1)
        one.take(await waiting)
        assert one.high_watermarks[0] == 1

    asyncio.run(main())


@pytest.mark.promise(
    "topics",
    "The cost of a follower's fetch depends on the partitions with changes, not on all the partitions "
    "that it follows",
)
def test_what_is_not_appended_by_the_follower_is_sent_again(tmp_path: Path) -> None:
    """Its next fetch asks for nothing else, and so names nothing."""

    async def main() -> None:
        leader, one, _ = both(tmp_path, 3)
        leader.append(1)
        sent = one.take(one.send(0))
        one.ends[1] = 0
        one._changed.clear()
        again = one.exchange()
        assert [result.partition for result in sent.results] == [result.partition for result in again.results]

    asyncio.run(main())


def test_what_does_not_fit_in_one_answer_comes_with_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        leader, one, _ = both(tmp_path, 4)
        for index in range(4):
            leader.append(index)
        found = []
        for _ in range(4):
            found += [
                result.partition for result in one.exchange(max_bytes=1).results if result.end > result.start
            ]
        assert sorted(found) == [0, 1, 2, 3]

    asyncio.run(main())


@pytest.mark.promise(
    "topics",
    "The cost of a follower's fetch depends on the partitions with changes, not on all the partitions "
    "that it follows",
)
def test_a_follower_that_fetched_without_anything_new_was_in_sync_all_the_while(tmp_path: Path) -> None:
    """Its lag counts from its last fetch, not from the last one that looked at the partition."""

    async def main() -> None:
        leader, one, other = both(tmp_path, 2)
        for _ in range(10):
            leader.clock.advance(10_000)
            one.exchange()
        leader.append(0)
        leader.clock.advance(20_000)
        # Broker 3 has not fetched for 120 s, broker 2 for 20 s.
        assert leader.partitions["t", 0].wanted_isr(30_000, {1, 2, 3}) == (1, 2)
        leader.clock.advance(20_000)
        assert leader.partitions["t", 0].wanted_isr(30_000, {1, 2, 3}) == (1,)
        assert other.replica_id == OTHER

    asyncio.run(main())


@pytest.mark.promise(
    "topics",
    "The cost of a follower's fetch depends on the partitions with changes, not on all the partitions "
    "that it follows",
)
def test_a_new_leader_epoch_ends_the_wait_with_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        leader, one, _ = both(tmp_path, 3)
        waiting = one.send()
        partition = leader.partitions["t", 2]
        partition.update(image_of(index=2, epoch=6))
        leader.delayed.complete_all(partition.key)
        [result] = one.take(await waiting).results
        assert (result.partition, result.error_code) == (2, 74)  # FENCED_LEADER_EPOCH

    asyncio.run(main())


def test_a_replica_that_is_none_any_more_is_told_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        leader, one, _ = both(tmp_path, 3)
        waiting = one.send()
        partition = leader.partitions["t", 1]
        partition.update(image_of((1, 3), index=1))
        partition.announce()
        [result] = one.take(await waiting).results
        assert (result.partition, result.error_code) == (1, 6)  # NOT_LEADER_OR_FOLLOWER

    asyncio.run(main())


def test_a_follower_out_of_sync_is_looked_at_with_every_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may be the one with which it joins."""

    async def main() -> None:
        leader, one, _ = both(tmp_path, 3)
        partition = leader.partitions["t", 1]
        partition.update(image_of(isr=(1, 3), index=1))
        partition.announce()
        with fetched(monkeypatch) as seen:
            one.exchange()
            one.exchange()
        assert seen == [1, 1]

    asyncio.run(main())


def test_a_log_that_starts_later_is_told_of_though_nothing_else_happens_to_it(tmp_path: Path) -> None:
    async def main() -> None:
        leader, one, other = both(tmp_path, 2)
        leader.append(0)
        for _ in range(2):
            one.settle()
            other.settle()
        leader.partitions["t", 0].log.delete_records_before(1)
        one.take(await one.send(10))  # its time is over
        assert one.starts[0] == 1

    asyncio.run(main())


def test_the_wait_is_for_min_bytes_over_all_partitions(tmp_path: Path) -> None:
    async def main() -> None:
        leader, one, _ = both(tmp_path, 3)
        size = 70
        waiting = one.send(min_bytes=2 * size)
        leader.append(0)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        leader.append(2)
        assert len(one.take(await waiting).results) == 2

    asyncio.run(main())


def test_another_broker_epoch_of_the_follower_counts_for_all_partitions(tmp_path: Path) -> None:
    """The controller lets it in with its own only (KIP-903)."""

    async def main() -> None:
        leader, one, _ = both(tmp_path, 3)
        one.exchange(epoch=21)
        assert [p.progress[FOLLOWER].broker_epoch for p in leader.partitions.values()] == [21, 21, 21]

    asyncio.run(main())


@pytest.mark.promise(
    "reassignment",
    "A late fetch of a follower's earlier process is refused: what it had before it was started again does "
    "not count",
)
@pytest.mark.parametrize("session", [True, False])
def test_a_fetch_with_an_older_epoch_of_the_broker_does_not_count(tmp_path: Path, session: bool) -> None:
    """As Kafka: NOT_LEADER_OR_FOLLOWER. The process that is there now may have lost the end of its log."""

    async def main() -> None:
        leader, one, other = both(tmp_path, 2)
        if not session:
            one = Follower(leader, FOLLOWER)
        leader.append(0)
        other.settle()
        one.ends[0] = 1
        one._changed.update((0, 1))
        before = {key: partition.progress[FOLLOWER] for key, partition in leader.partitions.items()}
        noted = {key: (progress.log_end_offset, progress.broker_epoch) for key, progress in before.items()}
        codes = {result.error_code for result in one.exchange(epoch=19).results}
        assert codes == {NotLeaderOrFollower.code}
        assert leader.partitions["t", 0].log.high_watermark == 0
        assert noted == {
            key: (progress.log_end_offset, progress.broker_epoch) for key, progress in before.items()
        }
        one._changed.update((0, 1))
        one.exchange(epoch=20)
        assert leader.partitions["t", 0].log.high_watermark == 1

    asyncio.run(main())


def test_a_wait_that_outlives_the_process_of_the_follower_does_not_count(tmp_path: Path) -> None:
    async def main() -> None:
        leader, one, _ = both(tmp_path, 1)
        waiting = one.send()
        brokers = leader.image.brokers
        registered = replace(brokers[FOLLOWER], epoch=21)
        leader.broker.image = replace(leader.image, brokers={**brokers, FOLLOWER: registered})
        leader.append(0)
        partition = leader.partitions["t", 0]
        progress = partition.progress[FOLLOWER]
        partition.follower_fetched(FOLLOWER, 0, 0, 21)
        assert [result.error_code for result in one.take(await waiting).results] == [NotLeaderOrFollower.code]
        assert (progress.log_end_offset, progress.broker_epoch) == (0, 21)

    asyncio.run(main())


def test_a_session_is_of_one_follower(tmp_path: Path) -> None:
    async def main() -> None:
        _, one, _ = both(tmp_path, 3)
        answer = one.exchange(replica_id=OTHER)
        assert answer.error_code == FetchSessionIdNotFound.code

    asyncio.run(main())


def test_a_session_that_is_closed_watches_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        leader, _, _ = both(tmp_path, 3)
        sessions = leader.broker.sessions
        for session in list(sessions.sessions.values()):
            sessions.close(session)
        assert leader.delayed._watchers == {}

    asyncio.run(main())


def test_a_client_that_is_gone_ends_the_wait(tmp_path: Path) -> None:
    async def main() -> None:
        leader, one, _ = both(tmp_path, 3)
        one.send().cancel()
        one._session = (one._session[0], one._session[1] + 1)
        await asyncio.sleep(0)
        leader.append(0)
        await asyncio.sleep(0)
        assert [result.partition for result in one.exchange().results] == [0]

    asyncio.run(main())
