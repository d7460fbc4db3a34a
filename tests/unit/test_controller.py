"""The controller: topics, partitions, epochs, producer ids; what it refuses; what survives a restart."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from penstock import errors
from penstock.clock import ManualClock
from penstock.config import BrokerConfig
from penstock.controller import Controller, CreateTopicResult, PartitionsSpec, TopicRef, TopicSpec
from penstock.metadata import ClusterImage
from penstock.metadata.local import LocalStore
from penstock.metadata.store import Op

Use = Callable[[Controller], Awaitable[None]]


class SlowStore(LocalStore):
    """Lets a test act while a transaction is under way."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.started = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.transactions = 0

    async def multi(self, ops: Sequence[Op]) -> None:
        self.transactions += 1
        self.started.set()
        await self.go_on.wait()
        await super().multi(ops)


def run(tmp_path: Path, use: Use, settings: dict[str, str] | None = None) -> None:
    async def session() -> None:
        store = SlowStore(str(tmp_path / "metadata.sqlite"))
        config = BrokerConfig.parse({"node.id": "1", **(settings or {})})
        controller = Controller(store, 1, ManualClock(), config)
        controller.store = store  # type: ignore[attr-defined]
        try:
            await controller.load()
            await controller.register_broker("localhost", 9092)
            await use(controller)
        finally:
            await controller.close()

    asyncio.run(session())


def codes(results: list[CreateTopicResult]) -> dict[str, int]:
    return {result.name: result.error.code if result.error else 0 for result in results}


def test_a_created_topic_is_in_the_image_with_a_leader_at_once(tmp_path: Path) -> None:
    seen: list[tuple[ClusterImage, ClusterImage]] = []

    async def use(controller: Controller) -> None:
        controller.subscribe(lambda old, new: seen.append((old, new)))
        spec = TopicSpec("orders", 3, 1, configs={"retention.ms": "1000"})
        (result,) = await controller.create_topics([spec])
        assert (result.error, result.num_partitions, result.replication_factor) == (None, 3, 1)
        topic = controller.image.topics["orders"]
        assert controller.image.topics_by_id[result.topic_id] is topic
        assert topic.id.version == 4
        assert topic.configs == {"retention.ms": "1000"}
        assert [(p.index, p.leader, p.leader_epoch, p.replicas, p.isr) for p in topic.partitions] == [
            (index, 1, 0, (1,), (1,)) for index in range(3)
        ]
        ((old, new),) = seen
        assert "orders" not in old.topics
        assert new is controller.image

    run(tmp_path, use)


def test_minus_one_means_the_brokers_default(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        (result,) = await controller.create_topics([TopicSpec("a")])
        assert (result.num_partitions, result.replication_factor) == (4, 1)

    run(tmp_path, use, {"num.partitions": "4"})


@pytest.mark.promise("topics", "Metadata changes are atomic and durable")
def test_everything_survives_a_restart(tmp_path: Path) -> None:
    images: list[ClusterImage] = []

    async def write(controller: Controller) -> None:
        await controller.create_topics([TopicSpec("a", 2, configs={"segment.ms": "9"}), TopicSpec("b")])
        await controller.create_partitions([PartitionsSpec("b", 3)])
        await controller.create_topics([TopicSpec("gone")])
        await controller.delete_topics([TopicRef("gone")])
        await controller.bump_leader_epochs()
        images.append(controller.image)

    async def read(controller: Controller) -> None:
        before, after = images[0], controller.image
        assert after.topics == before.topics
        assert after.topics_by_id == before.topics_by_id
        assert after.deleted_epochs == before.deleted_epochs == {"gone": 0}
        assert after.cluster_id == before.cluster_id
        assert len(after.cluster_id) == 22
        assert after.brokers[1].epoch > before.brokers[1].epoch

    run(tmp_path, write)
    run(tmp_path, read)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (TopicSpec(""), errors.InvalidTopicException),
        (TopicSpec("."), errors.InvalidTopicException),
        (TopicSpec(".."), errors.InvalidTopicException),
        (TopicSpec("x" * 250), errors.InvalidTopicException),
        (TopicSpec("a/b"), errors.InvalidTopicException),
        (TopicSpec("a\n"), errors.InvalidTopicException),
        (TopicSpec("größe"), errors.InvalidTopicException),
        (TopicSpec("__cluster_metadata"), errors.InvalidRequest),
        (TopicSpec("there"), errors.TopicAlreadyExists),
        (TopicSpec("with_dots"), errors.InvalidTopicException),
        (TopicSpec("a", 0), errors.InvalidPartitions),
        (TopicSpec("a", -2), errors.InvalidPartitions),
        (TopicSpec("a", 1, 0), errors.InvalidReplicationFactor),
        (TopicSpec("a", 1, 2), errors.InvalidReplicationFactor),
        (TopicSpec("a", 2**31 - 1), errors.PolicyViolation),
        (TopicSpec("a", configs={"retention.ms": "x"}), errors.InvalidConfig),
        (TopicSpec("a", configs={"retention.ms": None}), errors.InvalidConfig),
        (TopicSpec("a", configs={"no.such": "1"}), errors.InvalidConfig),
        (
            TopicSpec("a", configs={"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}),
            errors.InvalidConfig,
        ),
        (TopicSpec("a", 1, assignments=[(0, [1])]), errors.InvalidRequest),
        (TopicSpec("a", -1, 1, assignments=[(0, [1])]), errors.InvalidRequest),
        (TopicSpec("a", assignments=[(0, [1]), (0, [1])]), errors.InvalidReplicaAssignment),
        (TopicSpec("a", assignments=[(1, [1])]), errors.InvalidReplicaAssignment),
        (TopicSpec("a", assignments=[(0, [])]), errors.InvalidReplicaAssignment),
        (TopicSpec("a", assignments=[(0, [1, 1])]), errors.InvalidReplicaAssignment),
        (TopicSpec("a", assignments=[(0, [2])]), errors.InvalidReplicaAssignment),
    ],
)
def test_a_bad_topic_is_refused_and_the_good_one_beside_it_is_created(
    tmp_path: Path, spec: TopicSpec, error: type[errors.ApiError]
) -> None:
    async def use(controller: Controller) -> None:
        await controller.create_topics([TopicSpec("there"), TopicSpec("with.dots")])
        bad, good = await controller.create_topics([spec, TopicSpec("good")])
        assert type(bad.error) is error
        assert bad.error.message
        assert good.error is None
        assert set(controller.image.topics) == {"there", "with.dots", "good"}

    run(tmp_path, use)


def test_a_name_twice_in_one_request_is_refused_once(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        results = await controller.create_topics([TopicSpec("a"), TopicSpec("b"), TopicSpec("a", 2)])
        assert codes(results) == {"a": errors.InvalidRequest.code, "b": 0}
        assert len(results) == 2

    run(tmp_path, use)


def test_names_that_collide_in_one_request_are_not_both_created(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        results = await controller.create_topics([TopicSpec("a.b"), TopicSpec("a_b")])
        assert codes(results) == {"a.b": 0, "a_b": errors.InvalidTopicException.code}

    run(tmp_path, use)


def test_one_request_cannot_create_more_partitions_than_the_limit(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        results = await controller.create_topics(
            [TopicSpec("a", 9_000), TopicSpec("b", 2_000), TopicSpec("c", 10)], validate_only=True
        )
        assert codes(results) == {"a": 0, "b": errors.PolicyViolation.code, "c": 0}

    run(tmp_path, use)


def test_a_manual_assignment_is_taken_as_given(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        (result,) = await controller.create_topics([TopicSpec("a", assignments=[(1, [1]), (0, [1])])])
        assert (result.num_partitions, result.replication_factor) == (2, 1)

    run(tmp_path, use)


def test_validate_only_answers_and_changes_nothing(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        await controller.create_topics([TopicSpec("there")])
        before = controller.image
        results = await controller.create_topics([TopicSpec("a", 2), TopicSpec("there")], validate_only=True)
        assert codes(results) == {"a": 0, "there": errors.TopicAlreadyExists.code}
        (grown,) = await controller.create_partitions([PartitionsSpec("there", 5)], validate_only=True)
        assert grown.error is None
        assert controller.image is before

    run(tmp_path, use)


def test_a_thousand_topics_are_one_transaction(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        store: SlowStore = controller.store  # type: ignore[attr-defined]
        before = store.transactions
        await controller.create_topics([TopicSpec(f"t{i}") for i in range(1000)])
        assert store.transactions == before + 1
        assert len(controller.image.topics) == 1000

    run(tmp_path, use)


def test_topics_are_deleted_by_name_and_by_id(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        a, b, _ = await controller.create_topics([TopicSpec("a"), TopicSpec("b"), TopicSpec("c")])
        results = await controller.delete_topics([TopicRef("a"), TopicRef(topic_id=b.topic_id)])
        assert [(r.name, r.topic_id, r.error) for r in results] == [
            ("a", a.topic_id, None),
            ("b", b.topic_id, None),
        ]
        assert set(controller.image.topics) == {"c"}

    run(tmp_path, use)


def test_a_bad_deletion_is_refused_and_the_good_one_beside_it_is_done(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        created = await controller.create_topics([TopicSpec(name) for name in "abcd"])
        ids = {result.name: result.topic_id for result in created}
        results = await controller.delete_topics(
            [
                TopicRef("missing"),
                TopicRef(topic_id=uuid.UUID(int=7)),
                TopicRef(),
                TopicRef("a", ids["a"]),
                TopicRef("b"),
                TopicRef("b"),
                TopicRef("c"),
                TopicRef(topic_id=ids["c"]),
                TopicRef("d"),
            ]
        )
        assert [type(result.error) for result in results] == [
            errors.UnknownTopicOrPartition,
            errors.UnknownTopicId,
            errors.InvalidRequest,
            errors.InvalidRequest,
            errors.InvalidRequest,
            errors.InvalidRequest,
            errors.InvalidRequest,
            type(None),
        ]
        assert set(controller.image.topics) == {"a", "b", "c"}

    run(tmp_path, use)


def test_deletion_can_be_switched_off(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        await controller.create_topics([TopicSpec("a")])
        with pytest.raises(errors.TopicDeletionDisabled):
            await controller.delete_topics([TopicRef("a")])
        assert "a" in controller.image.topics

    run(tmp_path, use, {"delete.topic.enable": "false"})


def test_a_topic_made_again_starts_above_the_epochs_of_its_forerunner(tmp_path: Path) -> None:
    async def first(controller: Controller) -> None:
        await controller.create_topics([TopicSpec("a", 2), TopicSpec("other")])
        await controller.bump_leader_epochs()
        await controller.bump_leader_epochs()
        await controller.delete_topics([TopicRef("a")])

    async def second(controller: Controller) -> None:
        await controller.create_topics([TopicSpec("a", 1), TopicSpec("fresh")])
        assert controller.image.topics["a"].partitions[0].leader_epoch == 3
        assert controller.image.topics["fresh"].partitions[0].leader_epoch == 0
        await controller.create_partitions([PartitionsSpec("a", 2)])
        assert controller.image.topics["a"].partitions[1].leader_epoch == 3
        await controller.delete_topics([TopicRef("a")])
        await controller.create_topics([TopicSpec("a")])
        assert controller.image.topics["a"].partitions[0].leader_epoch == 4

    run(tmp_path, first)
    run(tmp_path, second)


def test_partitions_are_added_and_the_old_ones_stay(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        await controller.create_topics([TopicSpec("a", 2)])
        before = controller.image.topics["a"]
        (result,) = await controller.create_partitions([PartitionsSpec("a", 4, [[1], [1]])])
        after = controller.image.topics["a"]
        assert result.error is None
        assert after.partitions[:2] == before.partitions
        assert [partition.index for partition in after.partitions] == [0, 1, 2, 3]
        assert (after.id, controller.image.topics_by_id[after.id]) == (before.id, after)

    run(tmp_path, use)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (PartitionsSpec("missing", 5), errors.UnknownTopicOrPartition),
        (PartitionsSpec("a", 2), errors.InvalidPartitions),
        (PartitionsSpec("a", 1), errors.InvalidPartitions),
        (PartitionsSpec("a", -1), errors.InvalidPartitions),
        (PartitionsSpec("a", 2**31 - 1), errors.PolicyViolation),
        (PartitionsSpec("a", 4, [[1]]), errors.InvalidReplicaAssignment),
        (PartitionsSpec("a", 3, [[2]]), errors.InvalidReplicaAssignment),
        (PartitionsSpec("a", 3, [[]]), errors.InvalidReplicaAssignment),
    ],
)
def test_a_bad_growth_is_refused_and_the_good_one_beside_it_is_done(
    tmp_path: Path, spec: PartitionsSpec, error: type[errors.ApiError]
) -> None:
    async def use(controller: Controller) -> None:
        await controller.create_topics([TopicSpec("a", 2), TopicSpec("b", 1)])
        bad, good = await controller.create_partitions([spec, PartitionsSpec("b", 2)])
        assert (type(bad.error), good.error) == (error, None)
        assert len(controller.image.topics["a"].partitions) == 2
        assert len(controller.image.topics["b"].partitions) == 2

    run(tmp_path, use)


def test_producer_ids_are_never_given_out_twice(tmp_path: Path) -> None:
    given: set[int] = set()

    async def use(controller: Controller) -> None:
        for _ in range(3):
            first, count = await controller.allocate_producer_ids()
            block = set(range(first, first + count))
            assert len(block) == 1000
            assert not block & given
            given.update(block)

    run(tmp_path, use)
    run(tmp_path, use)


def test_only_partitions_led_here_get_a_new_epoch(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        await controller.create_topics([TopicSpec("a", 2)])
        assert await controller.bump_leader_epochs() == 2
        partition = controller.image.topics["a"].partitions[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (1, 1)

    run(tmp_path, use)


def test_a_change_whose_caller_went_away_still_reaches_the_image(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        store: SlowStore = controller.store  # type: ignore[attr-defined]
        store.started.clear()
        store.go_on.clear()
        caller = asyncio.ensure_future(controller.create_topics([TopicSpec("a")]))
        await store.started.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        store.go_on.set()
        (again,) = await controller.create_topics([TopicSpec("a")])
        assert type(again.error) is errors.TopicAlreadyExists
        assert "a" in controller.image.topics

    run(tmp_path, use)


def test_a_change_made_by_somebody_else_is_seen_and_the_own_one_planned_anew(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        await controller.create_topics([TopicSpec("a")])
        other = Controller(controller.store, 1, ManualClock())  # type: ignore[attr-defined]
        await other.load()
        await other.create_partitions([PartitionsSpec("a", 3)])
        await other.create_topics([TopicSpec("b")])
        (grown,) = await controller.create_partitions([PartitionsSpec("a", 2)])
        (created,) = await controller.create_topics([TopicSpec("b")])
        assert type(grown.error) is errors.InvalidPartitions
        assert type(created.error) is errors.TopicAlreadyExists
        assert len(controller.image.topics["a"].partitions) == 3

    run(tmp_path, use)


def test_changes_at_the_same_time_are_made_one_after_the_other(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        answers = await asyncio.gather(*(controller.create_topics([TopicSpec("same")]) for _ in range(8)))
        outcomes = [result.error for (result,) in answers]
        assert outcomes.count(None) == 1
        assert all(type(error) is errors.TopicAlreadyExists for error in outcomes if error)

    run(tmp_path, use)


def test_a_store_that_cannot_be_used_is_a_storage_error_and_changes_nothing(tmp_path: Path) -> None:
    async def use(controller: Controller) -> None:
        before = controller.image
        await controller.store.close()  # type: ignore[attr-defined]
        with pytest.raises(errors.KafkaStorageError):
            await controller.create_topics([TopicSpec("a")])
        assert controller.image is before

    run(tmp_path, use)
