"""Changes made by one broker of several: planned with what it has heard, stored only if that still holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from penstock.broker.cluster.membership import Membership
from penstock.clock import ManualClock
from penstock.config import BrokerConfig
from penstock.controller import PartitionsSpec, TopicRef, TopicSpec
from penstock.controller.cluster import CHUNK, ClusterController, state_ops
from penstock.controller.elected_controller import ElectedController
from penstock.controller.elections import PartitionChange
from penstock.controller.reassignment import Wanted, plan_reassignments
from penstock.controller.requests import AlterResource, ConfigOp, ResourceType
from penstock.errors import NotController, TopicAlreadyExists, UnknownTopicId, UnknownTopicOrPartition
from penstock.metadata import layout
from penstock.metadata.store import BadVersion, Check, Delete, NoNode, Set, Versioned
from penstock.wire.codec import Message
from tests.sim.cluster_store import Pause, Tree, View

T = TypeVar("T")


class Stored(View):
    """Without the pauses of the simulator; it hears of others only when it is told to."""

    async def _straight(self, work: Callable[[], Awaitable[T]]) -> T:
        steps = work().__await__()
        try:
            while True:
                assert isinstance(next(steps), Pause)
        except StopIteration as end:
            result: T = end.value
            return result

    async def read(self, paths: Collection[str]) -> dict[str, Versioned]:
        return await self._straight(lambda: View.read(self, paths))

    async def multi(self, ops):  # type: ignore[no-untyped-def]
        await self._straight(lambda: View.multi(self, ops))

    async def catch_up(self) -> None:
        await self._straight(lambda: View.catch_up(self))


async def two() -> tuple[ClusterController, ClusterController]:
    tree = Tree()
    made = []
    for broker in (1, 2):
        controller = ClusterController(Stored(tree), broker, ManualClock())
        await controller.load()
        await controller.register_broker("host", 9000 + broker)
        made.append(controller)
    await made[0].catch_up()
    return made[0], made[1]


@pytest.mark.promise(
    "cluster",
    "A broker with slightly old metadata handles topics that other brokers just created, deleted or "
    "created again",
)
def test_what_another_broker_has_just_changed_is_heard_of_before_something_is_refused() -> None:
    async def run() -> None:
        one, other = await two()
        assert (await one.create_topics([TopicSpec("t", 1, 1)]))[0].error is None
        # The other has not heard of it, and finds out when it would refuse.
        assert (await other.create_partitions([PartitionsSpec("t", 2)]))[0].error is None
        assert (await other.delete_topics([TopicRef("t")]))[0].error is None
        assert (await one.create_topics([TopicSpec("t", 3, 2)]))[0].error is None
        again = await other.create_topics([TopicSpec("t", 1, 1)])
        assert isinstance(again[0].error, TopicAlreadyExists)
        missing = await other.delete_topics([TopicRef("u")])
        assert isinstance(missing[0].error, UnknownTopicOrPartition)

    asyncio.run(run())


def test_a_change_that_was_planned_with_an_older_topic_is_planned_anew() -> None:
    async def run() -> None:
        one, other = await two()
        await one.create_topics([TopicSpec("t", 1, 1)])
        await other.catch_up()
        assert (await one.create_partitions([PartitionsSpec("t", 3)]))[0].error is None
        assert (await other.create_partitions([PartitionsSpec("t", 5)]))[0].error is None
        await one.catch_up()
        assert len(one.image.topics["t"].partitions) == 5
        assert (await one.delete_topics([TopicRef("t")]))[0].error is None
        await other.catch_up()
        assert other.image.topics == {}

    asyncio.run(run())


def read_ahead(one: ClusterController) -> None:
    """It has read what others have changed, and its image waits until all of that is read."""
    view = one._followed
    assert isinstance(view, Stored)
    view.read_ahead()


@pytest.mark.promise(
    "cluster",
    "A broker with slightly old metadata handles topics that other brokers just created, deleted or "
    "created again",
)
def test_a_topic_made_again_by_who_has_read_its_end_and_not_seen_it_begins_above_its_epochs() -> None:
    async def run() -> None:
        one, other = await two()
        for name in ("t", "u"):
            await one.create_topics([TopicSpec(name, 1, 1)])
        await other.catch_up()
        epoch = other.image.topics["t"].last_leader_epoch
        assert (await one.delete_topics([TopicRef("t")]))[0].error is None
        heard(other, lambda: "t" not in other.image.topics)
        read_ahead(other)
        assert not other.image.deleted_epochs
        assert (await other.create_topics([TopicSpec("t", 1, 1)]))[0].error is None
        assert other.image.topics["t"].last_leader_epoch > epoch

    asyncio.run(run())


@pytest.mark.promise("cluster", "Settings that two brokers change at once are all stored")
def test_a_setting_that_was_read_and_not_seen_is_not_overwritten_by_another() -> None:
    async def run() -> None:
        one, other = await two()
        await one.create_topics([TopicSpec("t", 1, 1)])
        await other.catch_up()

        def altered(name: str, value: str) -> list[AlterResource]:
            return [AlterResource(ResourceType.TOPIC, "t", [ConfigOp(name, value)])]

        assert (await one.incremental_alter_configs(altered("retention.ms", "5000")))[0].error is None
        read_ahead(other)
        assert not other.image.topics["t"].configs
        assert (await other.incremental_alter_configs(altered("segment.bytes", "9000")))[0].error is None
        assert other.image.topics["t"].configs == {"retention.ms": "5000", "segment.bytes": "9000"}

    asyncio.run(run())


def keeps_the_new_topic(change: Callable[[ClusterController], Awaitable[None]]) -> None:
    """`change` is of a broker that has not heard that its topic was deleted and created again. Their nodes
    have the same versions."""

    async def run() -> None:
        one, other = await two()
        await one.create_topics([TopicSpec("t", 1, 1)])
        await other.catch_up()
        await one.delete_topics([TopicRef("t")])
        await one.create_topics([TopicSpec("t", 1, 1)])
        new = one.image.topics["t"]
        await change(other)
        for controller in (one, other):
            await controller.catch_up()
            assert controller.image.topics["t"] == new

    asyncio.run(run())


@pytest.mark.promise(
    "cluster",
    "A change requested for a deleted topic is never applied to a new topic of the same name",
)
def test_a_late_deletion_by_id_spares_the_next_topic_of_that_name() -> None:
    async def delete(controller: ClusterController) -> None:
        old = controller.image.topics["t"].id
        (result,) = await controller.delete_topics([TopicRef(topic_id=old)])
        assert isinstance(result.error, UnknownTopicId)

    keeps_the_new_topic(delete)


@pytest.mark.promise(
    "cluster",
    "A change requested for a deleted topic is never applied to a new topic of the same name",
)
def test_a_late_change_of_a_partition_spares_the_next_topic_of_that_name() -> None:
    async def shrink(controller: ClusterController) -> None:
        topic = controller.image.topics["t"]
        led = replace(topic.partitions[0], leader=-1, partition_epoch=1)
        with pytest.raises(NoNode):
            await controller._store.multi(
                state_ops([PartitionChange("t", topic.id, topic.partitions[0], led)])
            )

    keeps_the_new_topic(shrink)


def test_topics_of_an_older_penstock_get_the_node_of_their_id() -> None:
    async def run() -> None:
        one, other = await two()
        await one.create_topics([TopicSpec("t", 1, 1), TopicSpec("u", 1, 1)])
        view = one._followed
        assert isinstance(view, Stored)
        for topic in one.image.topics.values():
            view.tree.commit(None, [Delete(layout.id_path(topic.id))])
        # Met by a broker that runs, and by one that starts.
        assert (await one.delete_topics([TopicRef("t")]))[0].error is None
        again = ClusterController(Stored(view.tree), 3, ManualClock())
        await again.load()
        assert layout.id_path(again.image.topics["u"].id) in view.tree.nodes
        assert (await again.create_partitions([PartitionsSpec("u", 2)]))[0].error is None

    asyncio.run(run())


def heard(controller: ClusterController, until: Callable[[], bool]) -> None:
    """It hears of one change after the other, up to this one."""
    view = controller._followed
    assert isinstance(view, Stored)
    while not until():
        assert view.behind, "it has heard of all, and still not so"
        view.hear(1)


@pytest.mark.promise(
    "cluster",
    "A broker with slightly old metadata handles topics that other brokers just created, deleted or "
    "created again",
)
def test_a_topic_made_again_by_who_has_heard_half_of_its_end_begins_above_its_epochs() -> None:
    """And can be deleted again: nothing of its forerunner stays in the store."""

    async def run() -> None:
        one, other = await two()
        await one.create_topics([TopicSpec("t", 1, 1)])
        await other.catch_up()
        for _ in range(2):
            epoch = other.image.topics["t"].last_leader_epoch
            assert (await one.delete_topics([TopicRef("t")]))[0].error is None
            heard(other, lambda: "t" not in other.image.topics)
            assert not other.image.deleted_epochs
            assert (await other.create_topics([TopicSpec("t", 1, 1)]))[0].error is None
            assert other.image.topics["t"].last_leader_epoch > epoch
            assert layout.deleted_path("t") not in other._followed.nodes
            await one.catch_up()
        assert (await other.delete_topics([TopicRef("t")]))[0].error is None

    asyncio.run(run())


@pytest.mark.promise(
    "cluster",
    "A broker with slightly old metadata handles topics that other brokers just created, deleted or "
    "created again",
)
def test_settings_of_a_topic_do_not_outlive_it_whoever_deletes_and_whoever_alters_it() -> None:
    def retention(value: str) -> list[AlterResource]:
        return [AlterResource(ResourceType.TOPIC, "t", [ConfigOp("retention.ms", value)])]

    async def run() -> None:
        one, other = await two()
        await one.create_topics([TopicSpec("t", 1, 1)])
        await other.catch_up()
        # Deleted by one who has not heard that it has settings.
        assert (await one.incremental_alter_configs(retention("1")))[0].error is None
        assert (await other.delete_topics([TopicRef("t")]))[0].error is None
        assert (await other.create_topics([TopicSpec("t", 1, 1)]))[0].error is None
        assert other.image.topics["t"].configs == {}
        # Altered by one who has not heard that it is gone.
        await one.catch_up()
        assert (await other.delete_topics([TopicRef("t")]))[0].error is None
        altered = await one.incremental_alter_configs(retention("2"))
        assert isinstance(altered[0].error, UnknownTopicOrPartition)
        assert (await other.create_topics([TopicSpec("t", 1, 1)]))[0].error is None
        await one.catch_up()
        assert one.image.topics["t"].configs == other.image.topics["t"].configs == {}

    asyncio.run(run())


async def elected(controller: ClusterController) -> ElectedController:
    found = ElectedController(controller, controller._store, controller._broker_id, lambda topic: False)
    await found._look()
    assert found.is_held
    return found


@pytest.mark.promise("cluster", "/controller_epoch shows the epoch of the controller, also in an older tree")
@pytest.mark.parametrize("former", [b"0", b"{}"], ids=["new", "written by an older version"])
def test_the_node_of_the_controller_epoch_shows_it(former: bytes) -> None:
    async def run() -> None:
        one, other = await two()
        view = one._followed
        assert isinstance(view, Stored)
        assert view.tree.nodes[layout.CONTROLLER_EPOCH] == (b"0", 0)
        view.tree.commit(None, [Set(layout.CONTROLLER_EPOCH, former, 0)])
        await one.catch_up()
        controller = await elected(one)
        assert controller.epoch == 2
        assert view.tree.nodes[layout.CONTROLLER_EPOCH] == (b"2", 2)
        await controller.stop()
        await other.catch_up()
        assert (await elected(other)).epoch == 3
        assert view.tree.nodes[layout.CONTROLLER_EPOCH] == (b"3", 3)

    asyncio.run(run())


def test_a_controller_that_was_replaced_changes_nothing_more() -> None:
    async def run() -> None:
        one, other = await two()
        await one.create_topics([TopicSpec("t", 1, 2)])
        old = await elected(one)
        # Its session ends and another is elected; it has not heard of that.
        await one._store.delete(layout.CONTROLLER)
        one._heard([layout.CONTROLLER])
        await other.catch_up()
        new = await elected(other)
        one._followed.nodes[layout.CONTROLLER] = (layout.encode({"broker": 1, "epoch": old._epoch}), 0)
        one._heard([layout.CONTROLLER])
        assert old.is_held and new.is_held
        before = other.image.topics["t"]
        replicas = before.partitions[0].replicas[::-1]
        try:
            results = await old.carry_out(
                lambda image: plan_reassignments(image, [Wanted("t", 0, replicas)], ())
            )
        except NotController:
            results = {}
        assert results == {}
        await other.catch_up()
        assert other.image.topics["t"] == before
        done = await new.carry_out(lambda image: plan_reassignments(image, [Wanted("t", 0, replicas)], ()))
        assert done == {("t", 0): None}
        assert other.image.topics["t"].partitions[0].replicas == replicas

    asyncio.run(run())


async def replaced() -> tuple[ClusterController, ElectedController, ClusterController, ElectedController]:
    """The first was deposed and has not heard of it."""
    one, other = await two()
    old = await elected(one)
    seen = one._followed.nodes[layout.CONTROLLER]
    view = one._followed
    assert isinstance(view, Stored)
    view.tree.commit(None, [Delete(layout.CONTROLLER)])  # as when its session ends
    await other.catch_up()
    new = await elected(other)
    assert view.nodes[layout.CONTROLLER] == seen and old.is_held
    return one, old, other, new


@pytest.mark.promise(
    "cluster",
    "A restarted broker does not become in sync because of what its leader knew about it before, even if "
    "the controller has not noticed the restart",
)
@pytest.mark.parametrize("has_read", [False, True])
@pytest.mark.parametrize("is_back", [False, True])
def test_a_broker_that_was_started_again_is_not_let_in_by_a_controller_that_has_not_heard(
    is_back: bool, has_read: bool
) -> None:
    """It may have lost the end of its log, and is back without having been in sync: it steps back nowhere."""

    async def run() -> None:
        one, other = await two()
        await one.create_topics([TopicSpec("t", assignments=[(0, (1, 2))])])
        controller = await elected(one)
        topic = one.image.topics["t"]
        shrunk = replace(topic.partitions[0], isr=(1,), partition_epoch=1)
        await controller.write(state_ops([PartitionChange("t", topic.id, topic.partitions[0], shrunk)]))
        epoch = one.image.brokers[2].epoch
        view = other._followed
        assert isinstance(view, Stored)
        view.tree.expire(view)
        if is_back:
            again = ClusterController(Stored(view.tree), 2, ManualClock())
            await again.load()
            assert await again.return_to_cluster() == 0
            await again.register_broker("host", 9002)
        if has_read:
            read_ahead(one)
        assert one.image.brokers[2].epoch == epoch, "the controller has not heard"

        def ask(broker_epoch: int) -> Message:
            isr = [Message(broker_id=1, broker_epoch=-1), Message(broker_id=2, broker_epoch=broker_epoch)]
            asked = Message(partition_index=0, leader_epoch=0, partition_epoch=1, new_isr_with_epochs=isr)
            return Message(
                broker_id=1,
                broker_epoch=one.image.brokers[1].epoch,
                topics=[Message(topic_id=topic.id, partitions=[asked])],
            )

        shell: Any = SimpleNamespace(controller=one, elected=controller)
        await Membership.alter_partition(shell, ask(epoch))
        await one.catch_up()
        assert one.image.topics["t"].partitions[0].isr == (1,)
        if is_back:
            await Membership.alter_partition(shell, ask(one.image.brokers[2].epoch))
            assert one.image.topics["t"].partitions[0].isr == (1, 2)

    asyncio.run(run())


@pytest.mark.promise(
    "reassignment",
    "A controller that stops resigns only from its own epoch and never removes another controller",
)
def test_a_controller_that_stops_does_not_depose_another() -> None:
    async def run() -> None:
        _, old, other, new = await replaced()
        await old.stop()
        await other.catch_up()
        assert new.is_held
        await new.stop()
        assert layout.CONTROLLER not in other._followed.nodes

    asyncio.run(run())


@pytest.mark.promise(
    "reassignment",
    "A controller that stops resigns only from its own epoch and never removes another controller",
)
def test_a_controller_that_was_away_does_not_depose_another() -> None:
    """It finds its own node of its former session, in a mirror that is behind."""

    async def run() -> None:
        one, old, other, new = await replaced()
        old.session_lost()
        with pytest.raises(BadVersion):
            await old._look()
        await other.catch_up()
        assert new.is_held
        # The new epoch is heard of before the new controller is.
        view = one._followed
        assert isinstance(view, Stored)
        view.nodes[layout.CONTROLLER_EPOCH] = view.tree.nodes[layout.CONTROLLER_EPOCH]
        with pytest.raises(BadVersion):
            await old._look()
        await other.catch_up()
        assert new.is_held
        await one.catch_up()
        await old._look()
        assert not old.is_held

    asyncio.run(run())


@pytest.mark.promise(
    "reassignment",
    "A controller that stops resigns only from its own epoch and never removes another controller",
)
def test_the_node_of_a_former_session_is_deleted_and_the_controller_elected_again() -> None:
    async def run() -> None:
        one, _ = await two()
        controller = await elected(one)
        controller.session_lost()
        await controller._look()
        assert not controller.is_held
        await controller._look()
        assert controller.is_held

    asyncio.run(run())


def test_many_changes_are_stored_in_parts_that_are_small_enough() -> None:
    async def run() -> None:
        one, _ = await two()
        count = CHUNK + 10
        await one.create_topics([TopicSpec("t", count, 2)])
        controller = await elected(one)
        topic = one.image.topics["t"]
        wanted = [Wanted("t", p.index, p.replicas[::-1]) for p in topic.partitions]
        plan = plan_reassignments(one.image, wanted, ())
        changes = [change for change in plan.values() if isinstance(change, PartitionChange)]
        parts = list(one.transactions_of(changes))
        assert len(parts) > 1
        for part in parts:
            assert sum(not isinstance(op, Check) for op in one.change_ops(part)) <= CHUNK
        assert [change for part in parts for change in part] == changes
        results = await controller.carry_out(lambda image: plan_reassignments(image, wanted, ()))
        assert set(results.values()) == {None} and len(results) == count
        assert [p.replicas for p in one.image.topics["t"].partitions] == [w.replicas for w in wanted]

    asyncio.run(run())


@pytest.mark.promise(
    "cluster", "A broker that fails to apply one changed setting still applies later changes"
)
def test_settings_that_contradict_one_brokers_own_do_not_make_it_deaf(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Altered for all brokers at one that has no objection. The other goes on, and starts again, without."""

    async def run() -> None:
        one, _ = await two()
        config = BrokerConfig.parse({"node.id": "3", "log.cleaner.max.compaction.lag.ms": "1000"})
        strict = ClusterController(Stored(one._followed.tree), 3, ManualClock(), config)
        await strict.load()
        lag = ConfigOp("log.cleaner.min.compaction.lag.ms", "5000")
        altered = await one.incremental_alter_configs([AlterResource(ResourceType.BROKER, "", [lag])])
        assert altered[0].error is None
        await strict.catch_up()
        assert strict.broker_config.log_cleaner_min_compaction_lag_ms == 0
        assert (await one.create_topics([TopicSpec("t", 1, 1)]))[0].error is None
        await strict.catch_up()
        assert "t" in strict.image.topics
        again = ClusterController(Stored(one._followed.tree), 3, ManualClock(), config)
        await again.load()
        assert "t" in again.image.topics
        # What it can take again counts at once.
        lag = ConfigOp("log.cleaner.min.compaction.lag.ms", "500")
        await one.incremental_alter_configs([AlterResource(ResourceType.BROKER, "", [lag])])
        await strict.catch_up()
        assert strict.broker_config.log_cleaner_min_compaction_lag_ms == 500

    asyncio.run(run())
    said = [
        record.getMessage()
        for record in caplog.records
        if "could not apply the altered settings" in record.getMessage()
    ]
    assert len(said) == 2 and "log.cleaner.max.compaction.lag.ms=1000" in said[0]
