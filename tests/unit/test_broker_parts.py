"""The small parts of a broker: memory budget, Metadata cache, producer ids, flusher, data directory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.broker.data_directory import DataDirectoryError, DirectoryLocks, claim, read_properties
from penstock.broker.maintenance.flusher import Flusher
from penstock.broker.metadata_cache import MetadataCache
from penstock.broker.net.budget import Budget
from penstock.broker.produce.producer_ids import ProducerIds
from penstock.fs import REAL_FS
from penstock.log.partition_log import PartitionLog


class Reader:
    def __init__(self) -> None:
        self.grants = 0

    def granted(self) -> None:
        self.grants += 1


@pytest.mark.promise(
    "hostile input", "The total of buffered bytes is limited, and waiting readers take turns"
)
def test_a_spent_budget_gives_one_overdraft_and_lets_the_others_wait() -> None:
    budget, first, second, third = Budget(100), Reader(), Reader(), Reader()
    budget.charge(100)
    assert budget.spent
    assert budget.request(first)
    assert not budget.request(second)
    assert not budget.request(third)
    budget.finished(first)
    assert (second.grants, third.grants) == (1, 0)
    budget.release(50)
    assert third.grants == 1


def test_a_reader_that_goes_away_gives_up_its_place() -> None:
    budget, first, second, third = Budget(100), Reader(), Reader(), Reader()
    budget.charge(100)
    budget.request(first)
    budget.request(second)
    budget.request(third)
    budget.forget(second)
    budget.forget(first)
    assert (second.grants, third.grants) == (0, 1)


def test_metadata_answers_are_forgotten_with_the_image_that_they_show() -> None:
    cache = MetadataCache()
    cache.put(1, (12, b"request"), b"answer")
    assert cache.get(1, (12, b"request")) == b"answer"
    assert cache.get(1, (11, b"request")) is None
    assert cache.get(2, (12, b"request")) is None
    cache.put(2, (12, b"other"), b"x")
    assert cache.get(2, (12, b"request")) is None


def test_the_metadata_cache_does_not_grow_without_limit() -> None:
    cache = MetadataCache()
    for i in range(100):
        cache.put(1, (12, str(i).encode()), bytes(1 << 20))
    assert cache._size <= 8 << 20


def test_producer_ids_are_never_given_twice_over_blocks_and_callers() -> None:
    async def main() -> None:
        blocks = iter([(0, 3), (1000, 3), (2000, 3)])

        async def allocate() -> tuple[int, int]:
            await asyncio.sleep(0)
            return next(blocks)

        ids = ProducerIds(allocate)
        given = await asyncio.gather(*(ids.next() for _ in range(8)))
        assert sorted(given) == [0, 1, 2, 1000, 1001, 1002, 2000, 2001]

    asyncio.run(main())


def test_flushes_of_a_log_are_shared_and_none_is_covered_by_one_begun_before_it() -> None:
    class Log:
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

    async def main() -> None:
        log = Log()
        gate = asyncio.Event()

        async def in_thread(work: Any) -> None:
            await gate.wait()
            work()

        flusher = Flusher(asyncio.get_running_loop(), in_thread)
        first = flusher.flush(cast(PartitionLog, log))
        await asyncio.sleep(0)
        second, third = (flusher.flush(cast(PartitionLog, log)) for _ in range(2))
        assert second is third
        assert first is not second
        gate.set()
        await asyncio.gather(first, second)
        assert log.flushed == 2
        await flusher.drain()

    asyncio.run(main())


def test_flushes_of_a_log_never_run_side_by_side_and_are_all_drained() -> None:
    class Log:
        def flush(self) -> None: ...

    async def main() -> None:
        log = cast(PartitionLog, Log())
        gates: list[asyncio.Event] = []
        running = most = 0

        async def in_thread(work: Any) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            gates.append(asyncio.Event())
            await gates[-1].wait()
            running -= 1

        flusher = Flusher(asyncio.get_running_loop(), in_thread)
        first = flusher.flush(log)
        await asyncio.sleep(0)
        second = flusher.flush(log)
        third: list[asyncio.Task[None]] = []
        # In the turn in which the first has ended and the second has not begun.
        first.add_done_callback(lambda _: third.append(flusher.flush(log)))
        await asyncio.sleep(0)
        gates[0].set()
        while len(gates) < 2:
            await asyncio.sleep(0)
        assert third == [second]
        draining = asyncio.ensure_future(flusher.drain())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not draining.done()
        for gate in gates:
            gate.set()
        await draining
        assert second.done()
        assert most == 1

    asyncio.run(main())


@pytest.mark.promise("crashes", "A second broker cannot use a data directory that is in use")
def test_a_second_broker_cannot_take_the_data_directory(tmp_path: Path) -> None:
    first, second = DirectoryLocks(), DirectoryLocks()
    first.acquire([str(tmp_path)])
    with pytest.raises(DataDirectoryError, match="in use by another broker"):
        second.acquire([str(tmp_path)])
    first.release()
    second.acquire([str(tmp_path)])
    second.release()


def test_meta_properties_has_what_kafka_writes_and_keeps_others_out(tmp_path: Path) -> None:
    directory = [str(tmp_path)]
    claim(directory, 1, "LJt342lQRiOMTvV4WiqR3g", REAL_FS)
    properties = read_properties(str(tmp_path), REAL_FS)
    assert properties is not None
    assert len(properties.pop("directory.id")) == 22
    assert properties == {"version": "1", "cluster.id": "LJt342lQRiOMTvV4WiqR3g", "node.id": "1"}
    claim(directory, 1, "LJt342lQRiOMTvV4WiqR3g", REAL_FS)
    with pytest.raises(DataDirectoryError, match=r"node\.id"):
        claim(directory, 2, "LJt342lQRiOMTvV4WiqR3g", REAL_FS)
    with pytest.raises(DataDirectoryError, match=r"cluster\.id"):
        claim(directory, 1, "another", REAL_FS)
