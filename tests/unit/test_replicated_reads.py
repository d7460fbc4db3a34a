"""What describes and lists answer is replicated: nothing of it is gone after the coordinator's death."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.broker.api import (
    alter_share_group_offsets,
    delete_groups,
    delete_share_group_offsets,
    describe_share_group_offsets,
    describe_transactions,
    list_groups,
    list_transactions,
    share_group_describe,
)
from penstock.broker.broker import Broker
from penstock.broker.net.context import RequestContext
from penstock.errors import GroupIdNotFound
from penstock.wire.codec import Message
from tests.unit.test_shard_host import ONE_SHARD, WHO, a_while, commit, offsets, replicate
from tests.unit.test_transactions_broker import init, running
from tests.unit.test_transactions_shells import hold_replication

CONTEXT = RequestContext(16, 5, 1, "test", "127.0.0.1:1")
GROUP = "shared"


def share_heartbeat(broker: Broker, epoch: int) -> Message | asyncio.Future[Message]:
    request = Message(
        group_id=GROUP,
        member_id="m",
        member_epoch=epoch,
        rack_id=None,
        subscribed_topic_names=["t"] if epoch == 0 else None,
    )
    return broker.groups.call(
        GROUP, lambda shard, token, now: shard.share.heartbeat(request, WHO, token, now)
    )


@pytest.mark.promise(
    "hostile input",
    "Describe and list responses of coordinators contain only replicated state, and are sent only then",
)
def test_transactions_are_described_and_listed_when_they_are_replicated(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.transactions.producer_ids.filled()
            fetch = hold_replication(broker)
            begun = asyncio.ensure_future(init(broker))
            await a_while()
            by_id = Message(transactional_ids=["x", "absent"])
            every = Message(
                state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern=None
            )
            described = asyncio.ensure_future(describe_transactions.handle(broker, CONTEXT, by_id))
            listed = asyncio.ensure_future(list_transactions.handle(broker, CONTEXT, every))
            await a_while()
            assert not described.done() and not listed.done()
            fetch()
            producer = await begun
            (state, absent) = (await described).transaction_states
            assert (state.error_code, state.producer_id) == (0, producer.producer_id)
            assert absent.error_code
            assert [one.transactional_id for one in (await listed).transaction_states] == ["x"]

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "Describe and list responses of coordinators contain only replicated state, and are sent only then",
)
def test_groups_are_listed_when_they_are_replicated(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            partition = await offsets(broker)
            commit(broker, 7)
            request = Message(states_filter=[], types_filter=[])
            listed = asyncio.ensure_future(list_groups.handle(broker, CONTEXT, request))
            await a_while()
            assert not listed.done()
            replicate(partition)
            assert [one.group_id for one in (await listed).groups] == ["g"]
            # While it waits, the partition goes to another broker, which lists its groups from now on.
            commit(broker, 8)
            listed = asyncio.ensure_future(list_groups.handle(broker, CONTEXT, request))
            await a_while()
            broker.groups._give_up(0)
            assert (await listed).groups == []

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "Describe and list responses of coordinators contain only replicated state, and are sent only then",
)
def test_a_share_group_is_described_when_it_is_replicated(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            await broker.share.states.ensure_topic()
            partition = await offsets(broker)
            share_heartbeat(broker, 0)
            about = Message(group_ids=[GROUP, "absent"], include_authorized_operations=False)
            described = asyncio.ensure_future(share_group_describe.handle(broker, CONTEXT, about))
            about = Message(groups=[Message(group_id=GROUP, topics=None)])
            positions = asyncio.ensure_future(describe_share_group_offsets.handle(broker, CONTEXT, about))
            await a_while()
            assert not described.done() and not positions.done()
            replicate(partition)
            found, absent = (await described).groups
            assert (found.error_code, len(found.members)) == (0, 1)
            assert absent.error_code == GroupIdNotFound.code
            assert (await positions).groups[0].error_code == 0

    asyncio.run(main())


def delete_offsets(broker: Broker) -> Awaitable[Message]:
    request = Message(group_id=GROUP, topics=[Message(topic_name="t")])
    return delete_share_group_offsets.handle(broker, CONTEXT, request)


def alter_offsets(broker: Broker) -> Awaitable[Message]:
    partitions = [Message(partition_index=0, start_offset=0)]
    request = Message(group_id=GROUP, topics=[Message(topic_name="t", partitions=partitions)])
    return alter_share_group_offsets.handle(broker, CONTEXT, request)


def delete(broker: Broker) -> Awaitable[Message]:
    return delete_groups.handle(broker, CONTEXT, Message(groups_names=[GROUP]))


@pytest.mark.promise(
    "hostile input",
    "Describe and list responses of coordinators contain only replicated state, and are sent only then",
)
@pytest.mark.parametrize("change", [delete_offsets, alter_offsets, delete])
def test_share_state_is_changed_when_it_is_replicated_that_the_last_member_has_left(
    tmp_path: Path, change: Callable[[Broker], Awaitable[Message]]
) -> None:
    """A new coordinator that has not heard of it would have a member, and its state would be gone."""

    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            await broker.share.states.ensure_topic()
            partition = await offsets(broker)
            share_heartbeat(broker, 0)
            replicate(partition)
            altered = asyncio.ensure_future(alter_offsets(broker))
            share_heartbeat(broker, -1)
            replicate(partition)
            while not altered.done():
                replicate(partition)
                await asyncio.sleep(0)
            states = [
                log
                for key, log in broker.topics.partitions.items()
                if key[0] == broker.share.states.topic.name and log.log.log_end_offset
            ]
            (state,) = states
            share_heartbeat(broker, 0)
            replicate(partition)
            share_heartbeat(broker, -1)
            before = state.log.log_end_offset
            changed = asyncio.ensure_future(change(broker))
            await a_while()
            assert not changed.done()
            assert state.log.log_end_offset == before
            while not changed.done():
                replicate(partition)
                await asyncio.sleep(0)
            assert state.log.log_end_offset > before

    asyncio.run(main())
