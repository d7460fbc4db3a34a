"""A follower and the leader's fetch session: what is given up is not told of for ever."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from penstock.broker.fetch_lookup import forgotten, partitions_asked
from penstock.broker.fetch_sessions import FetchSessionCache, SessionKey
from penstock.broker.followers import Followed, LeaderFetcher
from penstock.clock import ManualClock
from penstock.errors import ApiError, FetchSessionIdNotFound
from penstock.replication.fetching import failed
from penstock.replication.partition import Partition
from penstock.replication.throttle import Throttle
from penstock.wire import replica_fetch
from penstock.wire.fetch import FetchPartitionResult, encode_fetch_response, parse_fetch
from penstock.wire.records import Record, build_batch
from tests.unit.cluster_images import partition as image_of
from tests.unit.test_replication_partition import partition

TOPIC = UUID(int=7)


class Leader:
    """Broker 1 as the other side of the wire sees it: its sessions and its partitions."""

    def __init__(self, partitions: dict[int, Partition]) -> None:
        self.partitions = partitions
        self.sessions = FetchSessionCache(10, ManualClock(), random.Random(1))
        self.requests = 0
        self.fetched: list[tuple[int, int]] = []  # (partition, leader epoch) that were served
        self.when_refused: Callable[[], None] | None = None

    async def exchange(
        self, broker: int, api: object, version: int, body: bytes, **_: object
    ) -> tuple[bytearray, int]:
        self.requests += 1
        request = parse_fetch(bytearray(body), 0, len(body), version)
        asked = partitions_asked(request.topics)
        try:
            session = self.sessions.find(request, True)
            if session is not None:
                self.sessions.update(session, asked, forgotten(request), lambda key: True)
                asked = {key: cached.wanted for key, cached in session.partitions.items()}
        except ApiError as error:
            assert isinstance(error, FetchSessionIdNotFound)
            return bytearray(b"".join(encode_fetch_response(version, 0, error.code, 0, []))), 0  # type: ignore[arg-type]
        results: dict[SessionKey, FetchPartitionResult] = {}
        for key, wanted in asked.items():
            found = self.partitions[key[1]]
            try:
                results[key] = found.fetch(wanted, 1 << 20, True, 0, 2)
                self.fetched.append((key[1], wanted.current_leader_epoch))
            except ApiError as error:
                results[key] = failed(key[1], error, found)
                if self.when_refused is not None:
                    self.when_refused, refused = None, self.when_refused
                    refused()
        if session is None:
            session = self.sessions.create(asked.items(), True, True)
            assert session is not None
        told = list(session.tell(results).values())
        # Nothing to tell: as a leader would, it waits a little.
        await asyncio.sleep(0 if told else 0.01)
        topics = [(None, TOPIC, told)] if told else []
        pieces = encode_fetch_response(version, 0, 0, session.id, topics)
        return bytearray(b"".join(map(_bytes, pieces))), 0


def _bytes(piece: Any) -> bytes:
    return bytes(piece) if isinstance(piece, bytes | bytearray) else piece.read()


def fetcher(leader: Leader, clock: ManualClock) -> LeaderFetcher:
    config = SimpleNamespace(
        replica_fetch_backoff_ms=200,
        replica_fetch_wait_max_ms=10,
        replica_fetch_min_bytes=1,
        replica_fetch_max_bytes=1 << 20,
        replica_fetch_response_max_bytes=1 << 20,
    )
    broker: Any = SimpleNamespace(
        id=2,
        epoch=20,
        clock=clock,
        config=config,
        loop=asyncio.get_running_loop(),
        peers=leader,
        membership=SimpleNamespace(
            follower_throttle=Throttle(2, lambda: 1 << 40, lambda config: (), clock.monotonic)
        ),
    )
    return LeaderFetcher(broker, 1)


async def until(condition: Any) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not happen")


def replica(path: Path, broker: int, index: int, epoch: int) -> Partition:
    found, _ = partition(path / f"{broker}-{index}", image_of((1, 2), (1,), index=index, epoch=epoch))
    found._broker_id = broker
    found.key = ("t", index)
    return found


def test_a_partition_that_was_fenced_in_a_session_is_asked_for_again_with_its_new_epoch(
    tmp_path: Path,
) -> None:
    """It waits after an error, as the only one that was asked for, while the leader's session still has what
    it asked before; then another partition is asked for."""

    async def run() -> None:
        leader = Leader({index: replica(tmp_path, 1, index, 5) for index in (0, 1)})
        one = fetcher(leader, ManualClock())
        follows = {index: replica(tmp_path, 2, index, 5) for index in (0, 1)}
        one.add(Followed(follows[0], TOPIC))
        await until(lambda: (0, 5) in leader.fetched)
        newer = image_of((1, 2), (1,), index=0, epoch=6)

        def heard() -> None:
            """The follower hears of the new epoch while the answer about the old one is on its way."""
            one.remove((TOPIC, 0))
            follows[0].update(newer)
            one.add(Followed(follows[0], TOPIC))

        leader.when_refused = heard
        leader.partitions[0].update(newer)
        await until(lambda: not one._asked)
        one.add(Followed(follows[1], TOPIC))
        await until(lambda: {(0, 6), (1, 5)} <= set(leader.fetched))
        before = leader.requests
        await asyncio.sleep(0.2)
        assert leader.requests - before < 60, "it spins"
        await one.stop()

    asyncio.run(run())


def test_a_partition_that_waits_after_an_error_is_not_followed_by_what_its_session_still_has(
    tmp_path: Path,
) -> None:
    """The leader led it not yet when it was asked, and has records of it when another partition is asked for:
    taken, they would come again with every answer, and it would never be asked for from its end."""

    async def run() -> None:
        leader = Leader({index: replica(tmp_path, 1, index, 5) for index in (0, 1)})
        one = fetcher(leader, ManualClock())
        follows = {index: replica(tmp_path, 2, index, 6) for index in (0, 1)}
        one.add(Followed(follows[0], TOPIC))  # of an epoch that the leader has not heard of
        await until(lambda: one.followed[TOPIC, 0].errors > 2 and not one._asked)
        for index in (0, 1):
            leader.partitions[index].update(image_of((1, 2), (1,), index=index, epoch=6))
        append(leader.partitions[0], 10)
        one.add(Followed(follows[1], TOPIC))
        await until(lambda: follows[0].log.log_end_offset == 10)
        append(leader.partitions[0], 5)
        await until(lambda: follows[0].log.log_end_offset == 15)
        assert one.followed[TOPIC, 0].errors == 0
        await one.stop()

    asyncio.run(run())


def append(to: Partition, count: int) -> None:
    batch = bytearray(build_batch([Record(0, 1000, b"k", b"v")] * count))
    to.append(batch, 0, len(batch), acks=1)


def test_what_the_leader_tells_of_a_partition_that_is_not_asked_for_changes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        leader = Leader({index: replica(tmp_path, 1, index, 5) for index in (0, 1)})
        one = fetcher(leader, ManualClock())
        follows = {index: replica(tmp_path, 2, index, 5) for index in (0, 1)}
        one.add(Followed(follows[0], TOPIC))
        await until(lambda: (0, 5) in leader.fetched)
        # Its session knows of another, with an epoch that is over.
        (session,) = leader.sessions.sessions.values()
        stale = replica_fetch.ReplicaPartition(1, 4, 0, -1, 0, 1 << 20)
        request = parse_of(stale)
        session.update([((TOPIC, 1), request)], ())
        one.add(Followed(follows[1], TOPIC))
        await until(lambda: (1, 5) in leader.fetched)
        await one.stop()

    asyncio.run(run())


def parse_of(one: replica_fetch.ReplicaPartition) -> Any:
    body = replica_fetch.encode_request(
        2, 20, max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=0, session_epoch=0,
        topics={TOPIC: [one]}, forgotten={},
    )  # fmt: skip
    return parse_fetch(bytearray(body), 0, len(body), replica_fetch.VERSION).topics[0][2][0]
