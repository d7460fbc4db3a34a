"""A follower and the leader's fetch session: what is given up is not told of forever."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from penstock.broker.fetch.lookup import forgotten, partitions_asked
from penstock.broker.fetch.sessions import FetchSessionCache, SessionKey
from penstock.clock import ManualClock
from penstock.config import BrokerConfig, LogConfig
from penstock.errors import ApiError, FetchSessionIdNotFound, KafkaStorageError
from penstock.log.manager import LogManager
from penstock.log.partition_log import PartitionLog
from penstock.replication.fetching import failed
from penstock.replication.follower.assignment import Followers
from penstock.replication.follower.leader_fetcher import Followed, LeaderFetcher
from penstock.replication.follower.truncations import Truncations
from penstock.replication.partition import Partition
from penstock.replication.throttle import Throttle
from penstock.wire import replica_fetch
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message
from penstock.wire.fetch import FetchPartitionResult, encode_fetch_response, parse_fetch
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
        self.asked: list[tuple[int, int]] = []  # (leader epoch, offset) of every fetch of partition 0
        self.on_its_way: Callable[[], None] | None = None  # called when an answer with records is under way
        self.offsets: Callable[[int], Message] | None = None  # ListOffsets by timestamp
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
            if key[1] == 0:
                self.asked.append((wanted.current_leader_epoch, wanted.fetch_offset))
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
        told = list(results.values() if session is None else session.tell(results).values())
        # Nothing to tell: as a leader would, it waits a little.
        await asyncio.sleep(0 if told else 0.01)
        topics = [(None, TOPIC, told)] if told else []
        pieces = encode_fetch_response(version, 0, 0, 0 if session is None else session.id, topics)
        answer = bytearray(b"".join(map(_bytes, pieces)))
        if self.on_its_way is not None and any(one.slices for one in told):
            self.on_its_way, meanwhile = None, self.on_its_way
            meanwhile()
        return answer, 0

    async def call(self, broker: int, api: object, version: int, request: Message) -> Message:
        assert self.offsets is not None
        found = self.offsets(request.topics[0].partitions[0].timestamp)
        return Message(topics=[Message(name="t", partitions=[found])])


def _bytes(piece: Any) -> bytes:
    return bytes(piece) if isinstance(piece, bytes | bytearray) else piece.read()


def fetcher(
    leader: Leader, clock: ManualClock, save: Callable[[], Awaitable[None]] | None = None
) -> LeaderFetcher:
    """`save` writes where logs start."""

    async def truncated(log: PartitionLog, offset: int) -> None:
        """The recovery points are in nobody's way here."""

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
        with_logs=lambda work, *args: work(*args),
        in_thread=lambda work, *args: asyncio.get_running_loop().run_in_executor(None, work, *args),
        logs=SimpleNamespace(checkpoint_log_starts=save, truncated=truncated),
        membership=SimpleNamespace(
            follower_throttle=Throttle(2, lambda: 1 << 40, lambda config: (), clock.monotonic)
        ),
    )
    return LeaderFetcher(broker, 1, Truncations(broker))


async def until(condition: Any) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not happen")


def replica(path: Path, broker: int, index: int, epoch: int) -> Partition:
    image = image_of((1, 2), (1,), index=index, epoch=epoch)
    found, _ = partition(path / f"{broker}-{index}", image, broker=broker)
    return found


@pytest.mark.promise(
    "reassignment",
    "A follower that backs off after an error ignores what is left of the leader's fetch session, and "
    "then fetches from its own log end offset",
)
def test_a_partition_that_was_fenced_in_a_session_is_asked_for_again_with_its_new_epoch(
    tmp_path: Path,
) -> None:
    """The leader's session still has what it asked before; then another partition is asked for."""

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
        await until(lambda: leader.when_refused is None)
        one.add(Followed(follows[1], TOPIC))
        await until(lambda: {(0, 6), (1, 5)} <= set(leader.fetched))
        before = leader.requests
        await asyncio.sleep(0.2)
        assert leader.requests - before < 60, "it spins"
        await one.stop()

    asyncio.run(run())


@pytest.mark.promise(
    "reassignment",
    "A follower that backs off after an error ignores what is left of the leader's fetch session, and "
    "then fetches from its own log end offset",
)
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


LATEST, EARLIEST = -1, -2


def listed(offset: int, error: int = 0) -> Message:
    return Message(partition_index=0, error_code=error, timestamp=-1, offset=offset, leader_epoch=5)


@pytest.mark.promise(
    "reassignment",
    "A response of a former leader, or of a leader at a former epoch, changes no log: a follower that "
    "becomes leader while it waits for a response keeps the records that it has acknowledged since",
)
@pytest.mark.parametrize("elected_during", [LATEST, EARLIEST])
def test_a_broker_that_is_made_leader_while_it_asks_for_offsets_keeps_its_log(
    tmp_path: Path, elected_during: int
) -> None:
    """Its fetch was out of range, so it asks where the log of its leader ends and starts. Before the answer
    comes it leads, and has acknowledged a record: that answer must not truncate its log."""

    async def run() -> None:
        leader = Leader({0: replica(tmp_path, 1, 0, 5)})
        leader.partitions[0].log.truncate_fully_and_start_at(10)
        mine = replica(tmp_path, 2, 0, 5)
        one = fetcher(leader, ManualClock())
        asked = []

        def offsets(timestamp: int) -> Message:
            asked.append(timestamp)
            if timestamp == elected_during and not mine.is_leader:
                one.remove((TOPIC, 0))
                mine.update(image_of((2, 1), (2,), epoch=6))
                append(mine, 3)
            return listed({LATEST: 1 if elected_during == LATEST else 10, EARLIEST: 10}[timestamp])

        leader.offsets = offsets
        one.add(Followed(mine, TOPIC))
        await until(lambda: elected_during in asked)
        await until(lambda: one._changed.is_set() is False and not one.followed)
        await one.stop()
        assert mine.log.log_start_offset == 0 and mine.log.log_end_offset == 3
        assert mine.log.high_watermark == 3

    asyncio.run(run())


@pytest.mark.promise(
    "reassignment",
    "A follower that restarts its log at an offset inside a batch of the leader (DeleteRecords put the "
    "log start there) fetches that batch",
)
def test_a_follower_that_starts_where_its_leader_starts_takes_the_batch_that_holds_that_offset(
    tmp_path: Path,
) -> None:
    """DeleteRecords leaves the start of the leader's log inside a batch, which comes whole: refused, it would
    come again forever, and the follower would never be in sync."""

    async def run() -> None:
        leader = Leader({0: replica(tmp_path, 1, 0, 5)})
        theirs = leader.partitions[0].log
        for _ in range(3):
            append(leader.partitions[0], 10)
        theirs.delete_records_before(14)
        leader.offsets = lambda timestamp: listed({LATEST: 30, EARLIEST: 14}[timestamp])
        mine = replica(tmp_path, 2, 0, 5)
        one = fetcher(leader, ManualClock(), save=_saved)
        one.add(Followed(mine, TOPIC))
        await until(lambda: mine.log.log_end_offset == 30)
        assert mine.log.log_start_offset == 14 and mine.log.high_watermark == 30
        append(leader.partitions[0], 2)
        await until(lambda: mine.log.log_end_offset == 32)
        mine.log.check()
        await one.stop()

    asyncio.run(run())


async def _saved() -> None:
    """Where logs start is on disk."""


@pytest.mark.promise(
    "reassignment",
    "A response of a former leader, or of a leader at a former epoch, changes no log: a follower that "
    "becomes leader while it waits for a response keeps the records that it has acknowledged since",
)
def test_an_answer_of_a_former_epoch_of_the_same_leader_is_not_appended(tmp_path: Path) -> None:
    """While it is on its way another broker leads, and cuts what it holds, and then the former leader leads
    again: the partition follows it as before, but that answer is of another log."""

    async def run() -> None:
        leader = Leader({0: replica(tmp_path, 1, 0, 5)})
        append(leader.partitions[0], 10)
        mine = replica(tmp_path, 2, 0, 5)
        one = fetcher(leader, ManualClock())

        def meanwhile() -> None:
            one.remove((TOPIC, 0))
            newer = image_of((1, 2), (1,), epoch=7)
            leader.partitions[0].log.truncate_to(0)
            leader.partitions[0].log.settle()
            leader.partitions[0].update(newer)
            append(leader.partitions[0], 3)
            mine.update(image_of((3, 1, 2), (3,), epoch=6))
            mine.update(newer)
            one.add(Followed(mine, TOPIC))

        leader.on_its_way = meanwhile
        one.add(Followed(mine, TOPIC))
        await until(lambda: (7, 3) in leader.asked and mine.log.high_watermark == 3)
        await one.stop()
        assert [offset for epoch, offset in leader.asked if epoch == 7][0] == 0
        assert {offset for epoch, offset in leader.asked if epoch == 7} == {0, 3}
        assert mine.log.epochs.entries == [(7, 0)]

    asyncio.run(run())


@pytest.mark.promise(
    "reassignment",
    "A response of a former leader, or of a leader at a former epoch, changes no log: a follower that "
    "becomes leader while it waits for a response keeps the records that it has acknowledged since",
)
def test_a_follower_at_a_new_epoch_hears_the_high_watermark_that_it_had_dropped(tmp_path: Path) -> None:
    """The leader's session remembers what it has told; what was told at the former epoch was not applied."""

    async def run() -> None:
        leader = Leader({0: replica(tmp_path, 1, 0, 5)})
        mine = replica(tmp_path, 2, 0, 5)
        one = fetcher(leader, ManualClock())
        one.add(Followed(mine, TOPIC))
        await until(lambda: leader.requests > 1)
        append(leader.partitions[0], 4)
        batch = bytearray(build_batch([Record(0, 1000, b"k", b"v")] * 4, leader_epoch=5))

        def meanwhile() -> None:
            one.remove((TOPIC, 0))
            newer = image_of((1, 2), (1,), epoch=6)
            mine.log.append_as_follower(batch, 0, len(batch))  # it has the records, and does not know how far
            for each in (leader.partitions[0], mine):
                each.update(newer)
            one.add(Followed(mine, TOPIC))

        leader.on_its_way = meanwhile
        await until(lambda: mine.log.high_watermark == 4)
        await one.stop()

    asyncio.run(run())


@pytest.mark.promise(
    "crashes",
    "An append to a full disk is rejected and loses nothing; when there is space again, appends succeed",
)
def test_a_leader_whose_first_append_had_no_room_follows_the_next_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leader epoch is noted and has no record: the next leader does not know that epoch, and says at each
    fetch that the logs diverge, at the end of this one."""

    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def run() -> None:
        leader, mine = replica(tmp_path, 1, 0, 5), replica(tmp_path, 2, 0, 5)
        for one in (leader, mine):
            old = bytearray(build_batch([Record(0, 1000, b"k", b"v")] * 4, leader_epoch=5))
            one.log.append_as_follower(old, 0, len(old))
        mine.update(image_of((2, 1), (2, 1), epoch=6))
        with monkeypatch.context() as patched:
            patched.setattr(mine.log.fs, "pwrite", full)
            with pytest.raises(KafkaStorageError):
                append(mine, 1)
        for one in (leader, mine):
            one.update(image_of((1, 2), (1,), epoch=7))
        append(leader, 3)
        following = fetcher(Leader({0: leader}), ManualClock())
        following.add(Followed(mine, TOPIC))
        await until(lambda: mine.log.log_end_offset == 7)
        await following.stop()
        assert mine.log.epochs.entries == leader.log.epochs.entries == [(5, 0), (7, 4)]

    asyncio.run(run())


@pytest.mark.promise(
    "reassignment",
    "A follower can replicate from a leader that has no room for fetch sessions; disk errors of the "
    "leader are not reported as the follower's",
)
def test_a_follower_follows_a_leader_that_has_no_room_for_its_session(tmp_path: Path) -> None:
    async def run() -> None:
        leader = Leader({0: replica(tmp_path, 1, 0, 5)})
        leader.sessions = FetchSessionCache(0, ManualClock(), random.Random(1))
        append(leader.partitions[0], 4)
        mine = replica(tmp_path, 2, 0, 5)
        one = fetcher(leader, ManualClock())
        one.add(Followed(mine, TOPIC))
        await until(lambda: mine.log.log_end_offset == 4)
        await one.stop()

    asyncio.run(run())


@pytest.mark.promise(
    "reassignment",
    "A follower can replicate from a leader that has no room for fetch sessions; disk errors of the "
    "leader are not reported as the follower's",
)
def test_a_disk_error_of_the_leader_is_not_reported_as_one_of_the_follower(tmp_path: Path) -> None:
    async def run() -> None:
        leader = Leader({0: replica(tmp_path, 1, 0, 5)})
        leader.partitions[0].log.truncate_fully_and_start_at(10)
        leader.offsets = lambda timestamp: listed(-1, KafkaStorageError.code)
        mine = replica(tmp_path, 2, 0, 5)
        one = fetcher(leader, ManualClock())
        one.add(Followed(mine, TOPIC))
        await until(lambda: one.followed[TOPIC, 0].reason == KafkaStorageError.code)
        assert mine.broken_ms is None
        await one.stop()

    asyncio.run(run())


@pytest.mark.promise(
    "topics",
    "DeleteRecords returns when every replica on a live broker has deleted the records and has that on "
    "disk, so that they do not come back; if that takes longer than the request's timeout, it returns "
    "REQUEST_TIMED_OUT",
)
def test_a_follower_reports_where_its_log_starts_when_that_is_on_disk(tmp_path: Path) -> None:
    """Else DeleteRecords would be answered, and the records would be there again after a crash."""

    async def run() -> None:
        leader = Leader({0: replica(tmp_path, 1, 0, 5)})
        append(leader.partitions[0], 10)
        mine = replica(tmp_path, 2, 0, 5)
        saving, saved, failures = asyncio.Event(), asyncio.Event(), [OSError(28, "No space left on device")]

        async def save() -> None:
            saving.set()
            if failures:
                raise failures.pop()
            await saved.wait()

        one = fetcher(leader, ManualClock(), save)
        one.add(Followed(mine, TOPIC))
        await until(lambda: mine.log.high_watermark == 10)
        leader.partitions[0].delete_records_before(4)
        await until(lambda: mine.log.log_start_offset == 4)
        await saving.wait()
        before = leader.requests
        await until(lambda: leader.requests > before + 1)  # records do not wait for the disk
        assert leader.partitions[0].low_watermark({1, 2}) == 0
        saved.set()
        await until(lambda: leader.partitions[0].low_watermark({1, 2}) == 4)
        await one.stop()

    asyncio.run(run())


@pytest.mark.promise(
    "crashes",
    "Truncation lowers the recovery point: in memory also while a flush is running, and on disk before "
    "the next append",
)
@pytest.mark.parametrize("cut", ["diverged", "out of range"])
def test_recovery_does_not_trust_what_replaced_records_that_a_follower_has_cut(
    tmp_path: Path, cut: str
) -> None:
    """The recovery point on disk goes down with the log, before anything is appended behind the cut."""

    async def main() -> None:
        clock = ManualClock()
        settings = {"log.dirs": str(tmp_path)}
        logs = LogManager(BrokerConfig.parse(settings), clock)
        logs.load(lambda topic: LogConfig())
        log = logs.create("t", 0, TOPIC, LogConfig())
        _write(log, 0, 30)
        log.flush()
        logs.cleaner_offsets["t", 0] = 25
        logs.checkpoint()

        one = LeaderFetcher.__new__(LeaderFetcher)
        loop = asyncio.get_running_loop()

        def in_thread(work: Callable[..., None], *args: object) -> asyncio.Future[None]:
            return loop.run_in_executor(None, work, *args)

        broker: Any = SimpleNamespace(id=2, logs=logs, with_logs=in_thread, in_thread=in_thread, loop=loop)
        one._broker, one.leader, one._truncations = broker, 1, Truncations(broker)
        followed = Followed(Partition(image_of((1, 2), (1, 2), epoch=10), log, 2, lambda key: None), TOPIC)
        if cut == "diverged":
            result = replica_fetch.ReplicaResult(TOPIC, 0, 0, 0, 0, (0, 10), None, 0, 0)
            await one._take(followed, result, bytearray())
        else:

            async def leader_offset(followed: Followed, timestamp: int) -> int:
                return 10

            one._leader_offset = leader_offset  # type: ignore[method-assign]
            await one._out_of_range(followed)
        assert log.log_end_offset == 10
        assert log.producer_rebuild() is None, "producers were read back in a thread"
        assert logs.cleaner_offsets["t", 0] == 10
        _write(log, 10, 20)
        # A crash: of what was not flushed, one page has not reached the disk.
        with open(log.active.file.path, "r+b") as file:
            file.seek(log.active.locate(15)[0] + 65)  # type: ignore[index]
            file.write(b"\xee")
        again = LogManager(BrokerConfig.parse(settings), clock)
        again.load(lambda topic: LogConfig())
        recovered = again.get("t", 0)
        assert recovered is not None
        assert recovered.log_end_offset == 15

    asyncio.run(main())


@pytest.mark.promise(
    "reassignment", "A broker that stops ends all its fetches and writes to no log that it has closed"
)
def test_nothing_is_followed_any_more_when_a_broker_stops(tmp_path: Path) -> None:
    """Images come in until the end: a fetcher of a new leader would write to logs that are closed."""

    async def main() -> None:
        brokers = {1: object()}
        image = SimpleNamespace(brokers=brokers)
        broker: Any = SimpleNamespace(id=2, controller=SimpleNamespace(image=image))
        followers = Followers(broker)
        await followers.close()
        log = LogManager(BrokerConfig.parse({"log.dirs": str(tmp_path)}), ManualClock()).create(
            "t", 0, TOPIC, LogConfig()
        )
        followers.update(Partition(image_of((1, 2), (1, 2)), log, 2, lambda key: None), TOPIC)
        assert not followers._fetchers

    asyncio.run(main())


def _write(log: PartitionLog, epoch: int, count: int) -> None:
    for i in range(count):
        data = bytearray(build_batch([Record(0, 1_700_000_000_000 + i, None, b"value")]))
        log.append_as_leader(data, 0, len(data), epoch)
