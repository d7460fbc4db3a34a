"""Altering settings: whole and incremental, topics and brokers, and what is refused."""

import asyncio
import uuid
from pathlib import Path

import pytest

from penstock import errors
from penstock.clock import ManualClock
from penstock.config import BrokerConfig, resolve_topic
from penstock.controller import AlterConfigsResult, AlterOp, AlterResource, ConfigOp, Controller, TopicSpec
from penstock.controller.configs import AlterPlan, plan_alter
from penstock.metadata import ClusterImage, PartitionImage, TopicImage
from penstock.metadata.local import LocalStore

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = AlterOp.SET, AlterOp.DELETE, AlterOp.APPEND, AlterOp.SUBTRACT

CONFIG = BrokerConfig.parse({"node.id": "1", "log.cleanup.policy": "compact"})
IMAGE = ClusterImage(
    "cluster", 1, broker_configs={"": {"log.retention.ms": "50"}, "1": {"log.roll.ms": "60"}}
).with_topics(
    [
        TopicImage(
            "a",
            uuid.UUID(int=1),
            (PartitionImage(0, 1, 0, (1,), (1,)),),
            {"retention.ms": "1000", "segment.ms": "2000"},
        )
    ]
)


def alter(
    *resources: AlterResource, incremental: bool = True, config: BrokerConfig = CONFIG
) -> tuple[list[AlterConfigsResult], AlterPlan]:
    return plan_alter(IMAGE, config, resources, incremental=incremental)


def test_an_incremental_change_leaves_the_other_settings() -> None:
    ops = [ConfigOp("retention.ms", "5"), ConfigOp("segment.ms", None, DELETE), ConfigOp("flush.ms", "7")]
    (result,), plan = alter(AlterResource(TOPIC, "a", ops))
    assert result.error is None
    assert plan.topics == {"a": {"retention.ms": "5", "flush.ms": "7"}}


@pytest.mark.promise(
    "protocol",
    "Unused and unknown broker settings are accepted or rejected as in Kafka, with a warning in the log",
)
@pytest.mark.parametrize("incremental", [True, False])
def test_broker_settings_without_effect_are_kept_with_a_note_for_the_log(incremental: bool) -> None:
    ops = [ConfigOp("log.cleaner.threads", "2"), ConfigOp("no.such", "x"), ConfigOp("log.roll.ms", "9")]
    (result,), plan = alter(AlterResource(BROKER, "1", ops), incremental=incremental)
    assert result.error is None
    assert plan.brokers == {"1": {"log.roll.ms": "9", "log.cleaner.threads": "2", "no.such": "x"}}
    assert plan.notes == [
        "log.cleaner.threads is not used by Penstock and has no effect.",
        "no.such is not a broker setting and has no effect.",
    ]


def test_the_old_way_replaces_all_settings() -> None:
    (result,), plan = alter(AlterResource(TOPIC, "a", [ConfigOp("flush.ms", "7")]), incremental=False)
    assert result.error is None
    assert plan.topics == {"a": {"flush.ms": "7"}}


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        (APPEND, "delete", "compact,delete"),
        (APPEND, "compact", "compact"),
        (SUBTRACT, "compact", ""),
        (SUBTRACT, "delete", "compact"),
    ],
)
def test_lists_grow_and_shrink_from_the_value_in_force(op: AlterOp, value: str, expected: str) -> None:
    _, plan = alter(AlterResource(TOPIC, "a", [ConfigOp("cleanup.policy", value, op)]))
    assert plan.topics["a"]["cleanup.policy"] == expected


@pytest.mark.parametrize("op", [APPEND, SUBTRACT])
def test_what_is_no_list_cannot_be_appended_to(op: AlterOp) -> None:
    (result,), plan = alter(AlterResource(TOPIC, "a", [ConfigOp("retention.ms", "1", op)]))
    assert type(result.error) is errors.InvalidConfig
    assert plan.topics == {}


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        (AlterResource(TOPIC, "missing", []), errors.UnknownTopicOrPartition),
        (AlterResource(TOPIC, "", []), errors.InvalidRequest),
        (AlterResource(TOPIC, "a", [ConfigOp("retention.ms", "x")]), errors.InvalidConfig),
        (AlterResource(TOPIC, "a", [ConfigOp("no.such", "x")]), errors.InvalidConfig),
        (AlterResource(TOPIC, "a", [ConfigOp("cleanup.policy", "remove", APPEND)]), errors.InvalidConfig),
        (AlterResource(TOPIC, "a", [ConfigOp("retention.ms", None)]), errors.InvalidRequest),
        (AlterResource(TOPIC, "a", [ConfigOp("retention.ms", "1", 9)]), errors.InvalidRequest),
        (
            AlterResource(TOPIC, "a", [ConfigOp("flush.ms", "1"), ConfigOp("flush.ms", "2")]),
            errors.InvalidRequest,
        ),
        (
            AlterResource(
                TOPIC,
                "a",
                [ConfigOp("min.compaction.lag.ms", "2"), ConfigOp("max.compaction.lag.ms", "1")],
            ),
            errors.InvalidConfig,
        ),
        (AlterResource(BROKER, "1", [ConfigOp("num.partitions", "2")]), errors.InvalidRequest),
        (AlterResource(BROKER, "1", [ConfigOp("log.cleaner.threads", "x")]), errors.InvalidRequest),
        (AlterResource(BROKER, "", [ConfigOp("log.retention.ms", "x")]), errors.InvalidRequest),
        (AlterResource(BROKER, "", [ConfigOp("log.retention.ms", "0")]), errors.InvalidRequest),
        (AlterResource(BROKER, "2", [ConfigOp("log.retention.ms", "1")]), errors.InvalidRequest),
        (AlterResource(BROKER, "one", []), errors.InvalidRequest),
        (AlterResource(8, "1", [ConfigOp("root", "INFO")]), errors.InvalidRequest),
        (AlterResource(16, "a", [ConfigOp("interval.ms", "10")]), errors.InvalidRequest),
        (AlterResource(99, "a", []), errors.InvalidRequest),
    ],
)
def test_a_bad_change_is_refused_and_the_good_one_beside_it_is_planned(
    resource: AlterResource, error: type[errors.ApiError]
) -> None:
    good = AlterResource(BROKER, "1", []) if resource.type == TOPIC else AlterResource(TOPIC, "a", [])
    results, plan = alter(resource, good)
    assert [type(result.error) for result in results] == [error, type(None)]
    assert results[0].error is not None
    assert results[0].error.message
    assert len(plan.topics) + len(plan.brokers) == 1


def test_a_resource_twice_in_one_request_is_refused() -> None:
    one = AlterResource(TOPIC, "a", [ConfigOp("flush.ms", "1")])
    results, plan = alter(one, AlterResource(TOPIC, "a", [ConfigOp("flush.ms", "2")]))
    assert [type(result.error) for result in results] == [errors.InvalidRequest]
    assert plan.topics == {}


def test_broker_settings_are_altered_for_one_broker_and_for_all() -> None:
    results, plan = alter(
        AlterResource(BROKER, "", [ConfigOp("log.retention.ms", "70")]),
        AlterResource(BROKER, "1", [ConfigOp("log.roll.ms", None, DELETE), ConfigOp("max.connections", "5")]),
    )
    assert [result.error for result in results] == [None, None]
    assert plan.brokers == {"": {"log.retention.ms": "70"}, "1": {"max.connections": "5"}}


def test_settings_that_contradict_across_both_levels_of_one_request_are_refused() -> None:
    results, plan = alter(
        AlterResource(BROKER, "", [ConfigOp("log.cleaner.min.compaction.lag.ms", "9")]),
        AlterResource(BROKER, "1", [ConfigOp("log.cleaner.max.compaction.lag.ms", "8")]),
    )
    assert [type(result.error) for result in results] == [type(None), errors.InvalidRequest]
    assert set(plan.brokers) == {""}


def test_altered_settings_are_in_force_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def start() -> Controller:
        store = LocalStore(str(tmp_path / "metadata.sqlite"))
        controller = Controller(store, 1, ManualClock(), BrokerConfig.parse({"log.retention.ms": "1"}))
        await controller.load()
        await controller.register_broker("localhost", 9092)
        return controller

    def retention(controller: Controller, topic: str) -> int:
        return resolve_topic(controller.broker_config, controller.image.topics[topic].configs).retention_ms

    async def session() -> None:
        controller = await start()
        await controller.create_topics([TopicSpec("a"), TopicSpec("b")])
        change = [
            AlterResource(BROKER, "", [ConfigOp("log.retention.ms", "2")]),
            AlterResource(TOPIC, "a", [ConfigOp("retention.ms", "3")]),
        ]
        before = controller.image
        await controller.incremental_alter_configs(change, validate_only=True)
        assert controller.image is before
        await controller.incremental_alter_configs(change)
        assert (retention(controller, "a"), retention(controller, "b")) == (3, 2)
        await controller.close()

        controller = await start()
        assert (retention(controller, "a"), retention(controller, "b")) == (3, 2)
        await controller.alter_configs([AlterResource(TOPIC, "a", []), AlterResource(BROKER, "", [])])
        assert (retention(controller, "a"), retention(controller, "b")) == (1, 1)
        await controller.close()

        controller = await start()
        assert (retention(controller, "a"), retention(controller, "b")) == (1, 1)
        await controller.close()

    asyncio.run(session())
