"""The shell of the coordinators: what is answered is replicated, in order, and still led here."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.broker.coordinators import shard_host
from penstock.broker.coordinators.shard_replay import replay
from penstock.clock import ManualClock
from penstock.coordinator import Outcome, Reply, StateRecord
from penstock.errors import ApiError, CoordinatorNotAvailable, NotCoordinator, UnknownServerError
from penstock.groups import Caller
from penstock.replication.delayed import Watcher
from penstock.replication.partition import Partition
from penstock.transactions.records import encode_key
from penstock.transactions.state import State
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message
from tests.sim.group_host import commit_request, join_request, sync_request
from tests.unit.test_transactions_broker import KEY, end, init, running, state, write

WHO = Caller("c", "/127.0.0.1", 8)
ONE_SHARD = {"offsets_topic_num_partitions": "1"}


def commit(broker: Broker, offset: int, group: str = "g") -> Message | asyncio.Future[Message]:
    request = commit_request(group, {("t", 0): offset})
    return broker.groups.call(group, lambda shard, token, now: shard.offset_commit(request, WHO, token, now))


def fetch(broker: Broker, group: str = "g") -> Message | asyncio.Future[Message]:
    request = Message(
        group_id=group, member_id=None, member_epoch=-1, topics=[Message(name="t", partition_indexes=[0])]
    )
    return broker.groups.call(group, lambda shard, token, now: shard.offset_fetch(request, WHO, token, now))


def code(answer: Message) -> int:
    found: int = answer.topics[0].partitions[0].error_code
    return found


async def offsets(broker: Broker) -> Partition:
    """The one partition of `__consumer_offsets`, with a follower that has not fetched yet."""
    await broker.groups.ensure_topic()
    return with_follower(broker.partitions["__consumer_offsets", 0])


def with_follower(partition: Partition) -> Partition:
    partition.update(replace(partition.image, replicas=(1, 2), isr=(1, 2)))
    return partition


def transactions(broker: Broker) -> Partition:
    return with_follower(broker.partitions["__transaction_state", broker.transactions.partition_of("x")])


def replicate(partition: Partition) -> None:
    partition.follower_fetched(2, partition.log.log_end_offset)


async def until_done(*waiting: Message | asyncio.Future[Message]) -> list[Message]:
    for one in waiting:
        assert isinstance(one, asyncio.Future)
    return await asyncio.wait_for(asyncio.gather(*waiting), 30)  # type: ignore[arg-type]


@pytest.mark.promise(
    "hostile input",
    "A coordinator sends no response that depends on unreplicated records, and responds in order; "
    "transaction markers wait, too",
)
def test_an_answer_without_records_waits_for_the_records_it_rests_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            partition = transactions(broker)

            def add() -> Message | asyncio.Future[Message]:
                return broker.transactions.call(
                    "x",
                    lambda shard, token, now: shard.add_partitions(
                        "x", *producer, frozenset([KEY]), 0, token, now
                    ),
                )

            first, again = add(), add()
            end_offset = partition.log.log_end_offset
            assert isinstance(first, asyncio.Future)
            assert isinstance(again, asyncio.Future), "success was reported for a record that may be lost"
            replicate(partition)
            await until_done(first, again)
            assert partition.log.log_end_offset == end_offset, "the retry has nothing to write"

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input", "The timeouts of coordinators expire on time even if the machine's clock is set back"
)
def test_deadlines_come_in_time_when_the_clock_of_the_machine_is_set_back(tmp_path: Path) -> None:
    """A member that joins while the clock is an hour ahead is gone after its session, not an hour later."""

    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            await broker.groups.ensure_topic()
            clock = broker.clock
            assert isinstance(clock, ManualClock)
            clock._start_ms += 3_600_000
            request = join_request("g", session_ms=10_000, rebalance_ms=20_000)
            broker.groups.call("g", lambda shard, token, now: shard.join_group(request, WHO, token, now))
            clock._start_ms -= 3_600_000
            [shard] = broker.groups.shards()
            deadline = shard.next_deadline()
            assert deadline is not None and deadline <= clock.now_ms() + 20_000

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "A coordinator sends no response that depends on unreplicated records, and responds in order; "
    "transaction markers wait, too",
)
def test_what_was_loaded_and_is_not_replicated_is_not_answered_either(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            partition = await offsets(broker)
            commit(broker, 7)
            # A new leader has the record, and does not know yet whether the others have it.
            partition.update(replace(partition.image, leader_epoch=partition.image.leader_epoch + 1))
            broker.groups._give_up(0)
            broker.groups._load(0, partition, partition.image.leader_epoch)
            answer = fetch(broker)
            assert isinstance(answer, asyncio.Future)
            replicate(partition)
            found = (await until_done(answer))[0].topics[0].partitions[0]
            assert found.committed_offset == 7

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "A coordinator sends no response that depends on unreplicated records, and responds in order; "
    "transaction markers wait, too",
)
def test_answers_of_a_shard_keep_their_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            partition = await offsets(broker)
            order: list[int] = []
            waiting = []
            for number, ask in enumerate((lambda: commit(broker, 1), lambda: fetch(broker)) * 3):
                answer = ask()
                assert isinstance(answer, asyncio.Future)
                answer.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]
                waiting.append(answer)
            replicate(partition)
            await until_done(*waiting)
            await asyncio.sleep(0)
            assert order == sorted(order)

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "A coordinator sends no response that depends on unreplicated records, and responds in order; "
    "transaction markers wait, too",
)
def test_markers_are_not_sent_again_before_the_decision_is_replicated(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            write(broker, producer)
            partition = transactions(broker)
            answer = end(broker, producer)
            assert isinstance(answer, asyncio.Future)
            before = broker.partitions[KEY].log.log_end_offset
            broker.clock.advance(5_000)  # type: ignore[attr-defined]
            hosted = broker.transactions._hosted[broker.transactions.partition_of("x")]
            broker.transactions._tick(hosted)  # it is time to send the markers again
            assert broker.partitions[KEY].log.log_end_offset == before, "a marker of an end that may be lost"
            replicate(partition)
            await until_done(answer)
            replicate(partition)
            assert state(broker) == State.COMPLETE_COMMIT
            assert broker.partitions[KEY].log.log_end_offset == before + 1, "one marker, not two"

    asyncio.run(main())


def needs_two(partition: Partition) -> Partition:
    """With min.insync.replicas=2, and a follower."""
    partition.log.update_config(replace(partition.log.config, min_insync_replicas=2))
    return with_follower(partition)


def shrink(partition: Partition) -> None:
    """The follower is no longer in sync."""
    partition.update(replace(partition.image, isr=(1,)))
    partition.announce()


async def a_while() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.promise(
    "hostile input",
    "While fewer replicas than `min.insync.replicas` are in sync, a coordinator reports no success and "
    "no transaction ends (KIP-966)",
)
def test_a_commit_is_not_answered_by_a_leader_without_enough_replicas(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            partition = needs_two(await offsets(broker))
            answer = commit(broker, 7)
            assert isinstance(answer, asyncio.Future)
            shrink(partition)
            asked = fetch(broker)
            await a_while()
            assert not answer.done()
            assert isinstance(asked, asyncio.Future) and not asked.done()
            needs_two(partition)
            replicate(partition)
            committed, found = await until_done(answer, asked)
            assert code(committed) == 0
            assert found.topics[0].partitions[0].committed_offset == 7

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "While fewer replicas than `min.insync.replicas` are in sync, a coordinator reports no success and "
    "no transaction ends (KIP-966)",
)
def test_an_end_waits_until_enough_replicas_have_the_decision_and_then_the_markers(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            write(broker, producer)
            partition, of_data = needs_two(transactions(broker)), needs_two(broker.partitions[KEY])
            replicate(of_data)
            answer = end(broker, producer)
            assert isinstance(answer, asyncio.Future)
            shrink(partition)
            await a_while()
            assert not answer.done()
            assert of_data.log.last_stable_offset == 0, "no marker of what may be lost"
            needs_two(partition)
            replicate(partition)
            await until_done(answer)
            shrink(of_data)  # which has the marker, alone
            await a_while()
            assert state(broker) == State.PREPARE_COMMIT
            needs_two(of_data)
            replicate(of_data)
            await a_while()
            assert state(broker) == State.COMPLETE_COMMIT
            replicate(partition)

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "A coordinator that lost its partition, or has it in another leader epoch, returns NOT_COORDINATOR "
    "at once, never a success",
)
def test_a_commit_whose_record_was_cut_is_not_answered_with_success(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            partition = await offsets(broker)
            answer = commit(broker, 77)
            assert isinstance(answer, asyncio.Future)
            end_offset = partition.log.log_end_offset
            image = partition.image
            # Broker 2 never had the record; what it has instead comes to lie at the same offset.
            partition.update(replace(image, leader=2, leader_epoch=image.leader_epoch + 1, isr=(2,)))
            partition.log.truncate_to(end_offset - 1)
            partition.log.settle()
            other = bytearray(
                build_batch(
                    [Record(0, 1, b"\0\2\0\1z", None)],
                    base_offset=end_offset - 1,
                    leader_epoch=image.leader_epoch + 1,
                )
            )
            partition.log.append_as_follower(other, 0, len(other))
            partition.follow(end_offset, 0)
            with pytest.raises(NotCoordinator):
                await until_done(answer)

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "A coordinator that lost its partition, or has it in another leader epoch, returns NOT_COORDINATOR "
    "at once, never a success",
)
@pytest.mark.parametrize("leader", [1, 2])
def test_a_new_leader_epoch_ends_the_wait_at_once(tmp_path: Path, leader: int) -> None:
    """Before the image is applied as a whole, which may take the making of other logs."""

    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            partition = await offsets(broker)
            answer = commit(broker, 77)
            image = partition.image
            partition.update(replace(image, leader=leader, leader_epoch=image.leader_epoch + 1))
            broker.delayed.complete_all(partition.key)
            with pytest.raises(NotCoordinator):
                await until_done(answer)
            with pytest.raises(NotCoordinator):
                commit(broker, 78)  # by what was loaded in an older epoch, nothing is decided any more

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "A coordinator that lost its partition, or has it in another leader epoch, returns NOT_COORDINATOR "
    "at once, never a success",
)
def test_a_shard_of_a_deleted_partition_decides_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            await broker.groups.ensure_topic()
            assert isinstance(commit(broker, 1), Message)
            gone = broker.topics.partitions.pop(("__consumer_offsets", 0))
            end_offset = gone.log.log_end_offset
            with pytest.raises(NotCoordinator):
                commit(broker, 2)
            assert gone.log.log_end_offset == end_offset
            broker.topics.partitions[gone.key] = gone

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "A coordinator sends no response that depends on unreplicated records, and responds in order; "
    "transaction markers wait, too",
)
def test_what_an_action_decides_comes_after_what_is_being_written(tmp_path: Path) -> None:
    """The high watermark may move while a record is appended: what waited is answered after the record is
    replayed, so that whatever its actions decide rests on the state that the log has."""

    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            partition = await offsets(broker)
            seen: list[int | None] = []
            host = broker.groups

            def perform(shard: object, action: object) -> None:
                seen.append(host.shard_for("g").committed_offset("g", "t", 0))

            host._perform = perform
            waiting = host.call("g", lambda shard, token, now: _acting(token))
            assert isinstance(waiting, Message), "nothing is unreplicated yet"
            commit(broker, 1)
            waiting = host.call("g", lambda shard, token, now: _acting(token))
            assert isinstance(waiting, asyncio.Future)
            seen.clear()
            # The follower leaves the in-sync replicas without a word to those who wait.
            partition.image = replace(partition.image, isr=(1,))
            partition._alone = True
            assert isinstance(commit(broker, 2), Message)
            assert seen == [2]

    asyncio.run(main())


def _acting(token: asyncio.Future[Message]) -> Outcome:
    return Outcome(replies=[Reply(token, Message())], actions=["act"])


# loading


def next_load(monkeypatch: pytest.MonkeyPatch, failures: int = 0) -> asyncio.Event:
    """Set when a shard has been loaded, after this number of attempts that fail."""
    loaded = asyncio.Event()
    attempts = 0

    def replaying(*args: Any) -> int:
        nonlocal attempts
        attempts += 1
        if attempts <= failures:
            raise OSError("the file is another one now")
        asyncio.get_running_loop().call_soon(loaded.set)
        return replay(*args)

    monkeypatch.setattr(shard_host, "replay", replaying)
    return loaded


@pytest.mark.promise(
    "hostile input", "A coordinator partition that cannot be read is retried with increasing pauses"
)
def test_a_shard_that_could_not_be_loaded_is_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            await broker.groups.ensure_topic()
            assert isinstance(commit(broker, 5), Message)
            broker.groups._give_up(0)
            loaded = next_load(monkeypatch, failures=2)
            broker.groups.on_image(broker.image)
            with pytest.raises(NotCoordinator):
                commit(broker, 6)
            await asyncio.wait_for(loaded.wait(), 30)  # without a new image
            assert broker.groups.shard_for("g").committed_offset("g", "t", 0) == 5
            assert not broker.groups._loads

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input", "A coordinator partition that cannot be read is retried with increasing pauses"
)
def test_a_shard_whose_log_is_made_later_is_loaded_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            await broker.groups.ensure_topic()
            partition = broker.topics.partitions.pop(("__consumer_offsets", 0))
            loaded = next_load(monkeypatch)
            broker.groups.on_image(broker.image)
            with pytest.raises(NotCoordinator):
                commit(broker, 1)
            broker.topics.partitions[partition.key] = partition
            await asyncio.wait_for(loaded.wait(), 30)
            assert isinstance(commit(broker, 1), Message)

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input", "A coordinator partition that cannot be read is retried with increasing pauses"
)
def test_a_load_is_not_tried_again_where_another_broker_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*args: object) -> int:
        raise OSError("unreadable")

    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            await broker.groups.ensure_topic()
            monkeypatch.setattr(shard_host, "replay", failing)
            broker.groups._give_up(0)
            broker.groups.on_image(broker.image)
            assert list(broker.groups._loads) == [0]
            topic = broker.image.topics["__consumer_offsets"]
            moved = replace(topic, partitions=(replace(topic.partitions[0], leader=2),))
            broker.groups.on_image(broker.image.with_topics([moved]))
            assert not broker.groups._loads

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input", "A coordinator partition that cannot be read is retried with increasing pauses"
)
def test_a_record_that_was_written_and_cannot_be_replayed_reloads_the_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State and log must not part: what is in the log counts."""

    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            await broker.groups.ensure_topic()
            before = broker.groups.shard_for("g")

            def broken(*args: object, **more: object) -> None:
                raise ZeroDivisionError

            before.replay = broken  # type: ignore[method-assign]
            loaded = next_load(monkeypatch)
            with pytest.raises(CoordinatorNotAvailable):
                commit(broker, 9)
            await asyncio.wait_for(loaded.wait(), 30)
            after = broker.groups.shard_for("g")
            assert after is not before
            assert after.committed_offset("g", "t", 0) == 9

    asyncio.run(main())


# deadlines


class _Heard(Watcher):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def changed(self, key: tuple[str, int]) -> None:
        self.calls.append("changed")

    def grew(self, key: tuple[str, int]) -> None:
        self.calls.append("grew")


def test_records_that_nobody_waits_for_wake_the_followers_later_or_with_the_next_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a transaction is such a record: it goes with what is replicated next."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await init(broker)
            partition = transactions(broker)
            replicate(partition)
            heard = _Heard()
            broker.delayed.add_watcher(partition.key, heard)

            def step(shard: Any, now: int) -> Outcome:
                return Outcome([StateRecord(encode_key("y"), None)], is_urgent=False)

            end_offset = partition.log.log_end_offset
            broker.transactions.decide("x", step)
            assert partition.log.log_end_offset == end_offset + 1
            assert heard.calls == ["grew"]
            read = asyncio.ensure_future(broker.transactions.read("x", lambda shard: len(shard.transactions)))
            await asyncio.sleep(0)
            assert heard.calls == ["grew", "changed"], "an answer rests on it: the followers are to fetch it"
            replicate(partition)
            assert await asyncio.wait_for(read, 30) == 1

            monkeypatch.setattr(shard_host, "_ANNOUNCE_WITHIN_S", 0.0)
            heard.calls.clear()
            broker.transactions.decide("x", step)
            while heard.calls != ["grew", "changed"]:
                await asyncio.sleep(0.001)

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "Writes that are not replicated within `offsets.commit.timeout.ms` (groups), "
    "`share.coordinator.write.timeout.ms` (share state) or 30 s (transactions) get "
    "COORDINATOR_NOT_AVAILABLE; they may still take effect later, as in Kafka",
)
def test_a_commit_that_is_not_replicated_in_time_is_answered_and_still_counts_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD, offsets_commit_timeout_ms="50") as broker:
            partition = await offsets(broker)
            with pytest.raises(CoordinatorNotAvailable):
                await until_done(commit(broker, 7))
            with pytest.raises(CoordinatorNotAvailable):
                await until_done(fetch(broker))  # nobody knows yet
            assert not broker.groups._hosted[0].answers._waiting, "nobody waits for it any more"
            replicate(partition)
            answer = fetch(broker)
            assert isinstance(answer, Message)
            assert answer.topics[0].partitions[0].committed_offset == 7

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "Writes that are not replicated within `offsets.commit.timeout.ms` (groups), "
    "`share.coordinator.write.timeout.ms` (share state) or 30 s (transactions) get "
    "COORDINATOR_NOT_AVAILABLE; they may still take effect later, as in Kafka",
)
def test_an_end_that_is_not_replicated_in_time_is_done_when_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            write(broker, producer)
            partition = transactions(broker)
            broker.transactions._write_timeout_ms = lambda: 20
            with pytest.raises(CoordinatorNotAvailable):
                await until_done(end(broker, producer))
            before = broker.partitions[KEY].log.log_end_offset
            assert state(broker) == State.PREPARE_COMMIT
            replicate(partition)
            assert broker.partitions[KEY].log.log_end_offset == before + 1, "its marker"
            assert state(broker) == State.COMPLETE_COMMIT

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "A coordinator sends no response that depends on unreplicated records, and responds in order; "
    "transaction markers wait, too",
)
def test_what_is_read_for_the_broker_itself_is_replicated_too(tmp_path: Path) -> None:
    """By a commit that is lost later, records that its group has not consumed must not be deleted."""

    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            partition = await offsets(broker)
            commit(broker, 7)
            asked = asyncio.ensure_future(broker.consumed_offset(KEY, ["g"]))
            await asyncio.sleep(0)
            assert not asked.done()
            replicate(partition)
            assert await asyncio.wait_for(asked, 30) == 7

    asyncio.run(main())


# how much may be written


def largest_batch(partition: Partition) -> int:
    log = partition.log
    return max(header.size for _, _, header in log.headers(log.log_start_offset))


@pytest.mark.promise(
    "hostile input",
    "The records that a coordinator writes are limited by `max.message.bytes`: a larger group or commit "
    "gets UNKNOWN_SERVER_ERROR, as in Kafka, and large numbers of deletions are split",
)
def test_a_group_that_cannot_be_written_is_refused_and_goes_on(tmp_path: Path) -> None:
    """As in Kafka: UNKNOWN_SERVER_ERROR where the record of a group is larger than max.message.bytes."""

    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD, group_initial_rebalance_delay_ms="0") as broker:
            await broker.groups.ensure_topic()
            partition = broker.partitions["__consumer_offsets", 0]

            async def generation(metadata: bytes) -> ApiError | Message:
                asked = join_request("g", protocols={"range": metadata})
                old = Caller("c", "/127.0.0.1", 3)  # joins without a member id
                joining = broker.groups.call(
                    "g", lambda shard, token, now: shard.join_group(asked, old, token, now)
                )
                joined = (
                    await asyncio.wait_for(joining, 30) if isinstance(joining, asyncio.Future) else joining
                )
                assert joined.error_code == 0
                member: str = joined.member_id
                syncing = sync_request("g", member, joined.generation_id, {member: b"a"})
                try:
                    synced = broker.groups.call(
                        "g", lambda shard, token, now: shard.sync_group(syncing, WHO, token, now)
                    )
                except ApiError as error:
                    synced = error  # type: ignore[assignment]
                leaving = Message(
                    group_id="g", members=[Message(member_id=member, group_instance_id=None, reason="")]
                )
                broker.groups.call("g", lambda shard, token, now: shard.leave_group(leaving, WHO, token, now))
                assert not isinstance(synced, asyncio.Future)
                return synced

            assert isinstance(await generation(b"x" * (2 << 20)), UnknownServerError)
            assert largest_batch(partition) <= partition.log.config.max_message_bytes
            after = await generation(b"x")
            assert isinstance(after, Message)
            assert after.assignment == b"a"

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "The records that a coordinator writes are limited by `max.message.bytes`: a larger group or commit "
    "gets UNKNOWN_SERVER_ERROR, as in Kafka, and large numbers of deletions are split",
)
def test_a_commit_that_is_too_large_writes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD, message_max_bytes="2000") as broker:
            await broker.groups.ensure_topic()
            partition = broker.partitions["__consumer_offsets", 0]
            before = partition.log.log_end_offset
            request = commit_request("g", {("t", 0): 7}, metadata="m" * 3000)
            with pytest.raises(UnknownServerError):
                broker.groups.call(
                    "g", lambda shard, token, now: shard.offset_commit(request, WHO, token, now)
                )
            assert partition.log.log_end_offset == before
            assert isinstance(commit(broker, 7), Message)

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "The records that a coordinator writes are limited by `max.message.bytes`: a larger group or commit "
    "gets UNKNOWN_SERVER_ERROR, as in Kafka, and large numbers of deletions are split",
)
def test_many_deletions_are_written_in_batches_that_fit(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD, message_max_bytes="2000") as broker:
            await broker.groups.ensure_topic()
            partition = broker.partitions["__consumer_offsets", 0]
            for number in range(100):
                assert isinstance(commit(broker, 7, f"group-{number}"), Message)
            before = partition.log.log_end_offset
            topic_id = broker.image.topics["t"].id
            broker.groups.run_all(lambda shard: shard.deleted_topics.deleted({topic_id}))
            assert partition.log.log_end_offset == before + 100
            assert largest_batch(partition) <= 2000
            shard = broker.groups.shard_for("group-0")
            assert shard.committed_offset("group-0", "t", 0) is None

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "The records that a coordinator writes are limited by `max.message.bytes`: a larger group or commit "
    "gets UNKNOWN_SERVER_ERROR, as in Kafka, and large numbers of deletions are split",
)
def test_what_belongs_together_is_not_divided() -> None:
    def some(*sizes: int) -> Outcome:
        return Outcome(records=[StateRecord(b"k", b"v" * size) for size in sizes])

    outcome = some(100, 100)
    outcome.add(some(100, 100, 100))
    alone = some(100, 100, 100)
    alone.divide()
    outcome.add(alone)

    def sizes(room: int) -> list[int]:
        return [len(part) for part in outcome.parts(room)]

    assert sizes(10_000) == [8]
    assert sizes(700) == [5, 3]
    assert sizes(300) == [2, 3, 2, 1], "three records belong together, whatever their size"
    assert sizes(1) == [2, 3, 1, 1, 1]
    assert [len(part) for part in some(100, 100).parts(1)] == [2]
