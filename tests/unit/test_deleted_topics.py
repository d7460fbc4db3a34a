"""What coordinators have of a topic goes when the topic was deleted, and not because an image lacks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.broker.broker import Broker
from penstock.broker.share import admin
from penstock.controller import TopicRef, TopicSpec
from penstock.groups.share.state_records import SharePartitionKey
from penstock.metadata import layout
from penstock.metadata.image import ClusterImage
from penstock.metadata.store import StoreUnavailable
from penstock.transactions.state import State
from tests.sim.group_host import Host, commit_request
from tests.unit.test_coordinators_loading import commit, committed
from tests.unit.test_transactions_broker import end, init, running, state, verify_or_add

ONE_SHARD = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}


# The pure machine


@pytest.mark.promise(
    "groups",
    "Committed offsets, share state and transactions lose a topic only when the topic was deleted, not "
    "because a broker does not know it yet",
)
def test_a_shard_that_is_loaded_keeps_the_offsets_of_a_topic_that_the_image_lacks() -> None:
    host = Host()
    host.commit(17)
    lacking = host.image.without_topics([host.image.topics["t"]])
    whole, host.image = host.image, lacking
    host.crash()
    host.apply(host.shard.on_time(host.now))
    host.image = whole
    assert host.committed("t") == 17


@pytest.mark.promise(
    "groups",
    "Committed offsets, share state and transactions lose a topic only when the topic was deleted, not "
    "because a broker does not know it yet",
)
def test_offsets_go_when_the_store_does_not_have_their_topic() -> None:
    host = Host()
    host.ask("offset_commit", commit_request("g", {("t", 0): 1, ("u", 0): 2}))
    u = host.image.topics["u"]
    host.image = host.image.without_topics([host.image.topics["t"]])
    host.crash()
    shard = host.shard.deleted_topics
    assert shard.names() == {"t", "u"}
    out, again = shard.found(shard.names(), {"u": u.id})
    assert again == {"t"}, "what is decided may fail to be written"
    host.apply(out)
    assert host.committed("t") == -1
    assert host.committed("u") == 2
    assert shard.found({"t"}, {})[1] == set()


@pytest.mark.promise(
    "groups",
    "Committed offsets, share state and transactions lose a topic only when the topic was deleted, not "
    "because a broker does not know it yet",
)
def test_offsets_of_the_next_topic_of_a_name_outlive_an_image_that_shows_the_former_one() -> None:
    """The former coordinator knew the new topic, this one hears of it later."""
    host = Host()
    host.commit(17)
    host.crash()
    old, new = host.image.topics["t"], uuid4()
    out, again = host.shard.deleted_topics.found({"t"}, {"t": new})
    assert out.records == []
    assert again == {"t"}, "the image does not agree yet"
    host.image = host.image.without_topics([old]).with_topics([replace(old, id=new)])
    host.apply(host.shard.deleted_topics.deleted({old.id}))
    assert host.committed("t") == 17
    host.apply(host.shard.deleted_topics.deleted({new}))
    assert host.committed("t") == -1


@pytest.mark.promise(
    "groups",
    "Committed offsets, share state and transactions lose a topic only when the topic was deleted, not "
    "because a broker does not know it yet",
)
def test_a_topic_that_was_created_again_begins_without_the_offsets_of_the_former_one() -> None:
    host = Host()
    host.commit(17)
    old = host.image.topics["t"]
    host.image = host.image.without_topics([old]).with_topics([replace(old, id=uuid4())])
    host.apply(host.shard.deleted_topics.deleted({old.id}))
    assert host.committed("t") == -1
    host.commit(3)
    host.apply(host.shard.deleted_topics.deleted({old.id}))
    assert host.committed("t") == 3


@pytest.mark.promise(
    "groups",
    "A topic that is deleted and created again while a coordinator is elected starts without the offsets "
    "of the deleted topic",
)
@pytest.mark.parametrize("is_heard", [False, True])
def test_offsets_go_when_their_topic_was_created_again_while_the_store_was_asked(is_heard: bool) -> None:
    """The answer of the store is of before the deletion, the image of after it."""
    host = Host()
    host.commit(17)
    host.crash()
    old = host.image.topics["t"]
    new = replace(old, id=uuid4())
    host.image = host.image.without_topics([old]).with_topics([new])
    if is_heard:  # else the image did not have the former topic, either
        host.apply(host.shard.deleted_topics.deleted({old.id}))
    asked, existing = {"t"}, old.id
    for _ in range(3):
        out, asked = host.shard.deleted_topics.found(asked, {"t": existing})
        host.apply(out)
        existing = new.id
    assert asked == set()
    assert host.committed("t") == -1, "a consumer of the new topic would skip its first records"
    host.commit(3)
    host.apply(host.shard.deleted_topics.deleted({old.id}))
    assert host.committed("t") == 3
    host.apply(host.shard.deleted_topics.deleted({new.id}))
    assert host.committed("t") == -1


# In a broker


def behind(broker: Broker, names: Iterable[str] = ("t",)) -> ClusterImage:
    """The broker applies an image of before these topics were created."""
    whole = broker.image
    lacking = whole.without_topics([whole.topics[name] for name in names])
    broker.topics.image = replace(lacking, deleted_epochs={})
    broker.coordinators._topics = broker.image.topics
    return whole


def failover(broker: Broker) -> None:
    """The coordinators' shards are given up and loaded again."""
    for host in broker.coordinators._hosts.values():
        for index in list(host._hosted):
            host._give_up(index)
    broker.coordinators.on_image(broker.image)


async def checked(broker: Broker) -> None:
    """The store was asked for what the shards have. What does not agree yet is asked for again later."""
    for _ in range(200):
        tasks = broker.coordinators._store_check._tasks
        if not tasks:
            return
        await asyncio.wait(set(tasks), timeout=0.01)


async def delete_in_store(broker: Broker, name: str) -> None:
    """As another broker does; this one has not heard of it."""
    nodes = await broker._store.list("/")
    versions = {path: version for path, (_, version) in nodes.items()}
    await broker._store.multi(list(layout.delete_topic(broker.image.topics[name], versions)))


@asynccontextmanager
async def with_a_commit(directory: Path) -> AsyncIterator[Broker]:
    async with running(directory, **ONE_SHARD) as broker:
        await broker.groups.ensure_topic()
        assert await commit(broker, "g", 17) == 0
        yield broker


@pytest.mark.promise(
    "groups",
    "Committed offsets, share state and transactions lose a topic only when the topic was deleted, not "
    "because a broker does not know it yet",
)
def test_a_coordinator_whose_image_is_behind_keeps_the_offsets_and_tombstones_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with with_a_commit(tmp_path) as broker:
            end = broker.partitions["__consumer_offsets", 0].log.log_end_offset
            whole = behind(broker)
            failover(broker)
            await checked(broker)
            assert committed(broker, "g") == 17
            assert broker.partitions["__consumer_offsets", 0].log.log_end_offset == end
            broker.topics.image = whole

    asyncio.run(main())


@pytest.mark.promise(
    "groups",
    "Committed offsets, share state and transactions lose a topic only when the topic was deleted, not "
    "because a broker does not know it yet",
)
def test_offsets_of_a_topic_that_was_deleted_before_a_failover_go_after_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with with_a_commit(tmp_path) as broker:
            await delete_in_store(broker, "t")
            behind(broker)
            failover(broker)
            await checked(broker)
            assert committed(broker, "g") is None

    asyncio.run(main())


@pytest.mark.promise(
    "groups",
    "Committed offsets, share state and transactions lose a topic only when the topic was deleted, not "
    "because a broker does not know it yet",
)
def test_while_the_store_cannot_be_asked_nothing_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.coordinators.store_check._RETRY_S", 0.01)

    async def main() -> None:
        async with with_a_commit(tmp_path) as broker:
            await delete_in_store(broker, "t")
            behind(broker)
            read, asked = broker._store.read, asyncio.Event()

            async def refuse(paths: object) -> None:
                asked.set()
                raise StoreUnavailable("/", "is away")

            with monkeypatch.context() as away:
                away.setattr(broker._store, "read", refuse)
                failover(broker)
                await asked.wait()
                assert committed(broker, "g") == 17
            assert broker._store.read == read
            async with asyncio.timeout(30):
                while committed(broker, "g") is not None:
                    await asyncio.sleep(0.01)

    asyncio.run(main())


@pytest.mark.promise(
    "groups",
    "Committed offsets, share state and transactions lose a topic only when the topic was deleted, not "
    "because a broker does not know it yet",
)
def test_a_deletion_that_the_image_shows_takes_the_offsets_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with with_a_commit(tmp_path) as broker:
            failover(broker)
            await checked(broker)
            await broker.controller.delete_topics([_ref("t")])
            await broker.caught_up()
            assert committed(broker, "g") is None

    asyncio.run(main())


def _ref(name: str) -> TopicRef:
    return TopicRef(name=name)


@pytest.mark.promise(
    "groups",
    "Committed offsets, share state and transactions lose a topic only when the topic was deleted, not "
    "because a broker does not know it yet",
)
@pytest.mark.parametrize("deleted", [False, True])
def test_a_transaction_is_complete_without_the_marker_of_a_topic_only_if_that_was_deleted(
    deleted: bool, tmp_path: Path
) -> None:
    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            producer = await init(broker)
            assert not verify_or_add(broker, "x", producer, add=True, abortable=True)
            if deleted:
                await delete_in_store(broker, "t")
            whole = behind(broker)
            partition = broker.partitions.pop(("t", 0))
            answer = end(broker, producer)
            if isinstance(answer, asyncio.Future):
                answer = await answer
            assert answer.error_code == 0
            writer = broker.transactions._markers
            while writer._tasks:
                await asyncio.wait(set(writer._tasks))
            assert state(broker) is (State.COMPLETE_COMMIT if deleted else State.PREPARE_COMMIT)
            broker.partitions["t", 0] = partition
            broker.topics.image = whole

    asyncio.run(main())


@pytest.mark.promise(
    "groups",
    "Committed offsets, share state and transactions lose a topic only when the topic was deleted, not "
    "because a broker does not know it yet",
)
@pytest.mark.parametrize("deleted", [False, True])
def test_share_state_is_pruned_only_of_topics_that_were_deleted(deleted: bool, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            await broker.share.states.ensure_topic()
            await broker.controller.create_topics([TopicSpec("other", 1, 1)])
            await broker.caught_up()
            key = SharePartitionKey("g", broker.image.topics["t"].id, 0)
            written = broker.share.stored.initialize(key, 0, 5)
            if isinstance(written, asyncio.Future):
                await written
            if deleted:
                await delete_in_store(broker, "t")
            whole = behind(broker)
            await admin.prune(broker, broker.share)
            assert (admin.keys_of(broker.share, lambda one: True) == []) == deleted
            broker.topics.image = whole

    asyncio.run(main())
