"""Groups of topics that a source connector creates (KIP-158)."""

from __future__ import annotations

import pytest

from penstock.connect.runtime.topic_creation import NewTopicSettings, problems_of_groups, settings_for

CONFIG = {
    "topic.creation.default.partitions": "3",
    "topic.creation.default.replication.factor": "-1",
    "topic.creation.default.retention.ms": "1000",
    "topic.creation.groups": "tables,wide",
    "topic.creation.tables.include": "shop\\..*, other",
    "topic.creation.tables.exclude": "shop\\.log",
    "topic.creation.tables.cleanup.policy": "compact",
    "topic.creation.wide.include": ".*wide.*",
    "topic.creation.wide.partitions": "12",
    "topic.creation.wide.replication.factor": "2",
}


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("shop.orders", NewTopicSettings(3, None, {"cleanup.policy": "compact"})),
        ("other", NewTopicSettings(3, None, {"cleanup.policy": "compact"})),
        ("shop.wide", NewTopicSettings(3, None, {"cleanup.policy": "compact"})),  # the first group that fits
        ("a-wide-one", NewTopicSettings(12, 2, {})),
        ("shop.log", NewTopicSettings(3, None, {"retention.ms": "1000"})),
        ("another", NewTopicSettings(3, None, {"retention.ms": "1000"})),
    ],
)
def test_a_topic_has_the_settings_of_the_first_group_that_fits(
    topic: str, expected: NewTopicSettings
) -> None:
    assert settings_for(topic, CONFIG) == expected
    assert not problems_of_groups(CONFIG)


def test_without_settings_the_broker_decides() -> None:
    assert settings_for("t", {}) == NewTopicSettings(None, None, {})


@pytest.mark.parametrize(
    ("config", "field", "says"),
    [
        ({"topic.creation.groups": "a"}, "topic.creation.a.include", "Missing required"),
        ({"topic.creation.groups": "default"}, "topic.creation.groups", "always there"),
        (
            {"topic.creation.groups": "a", "topic.creation.a.include": "[x"},
            "topic.creation.a.include",
            "not a regular expression",
        ),
        (
            {
                "topic.creation.groups": "a",
                "topic.creation.a.include": "x",
                "topic.creation.a.partitions": "0",
            },
            "topic.creation.a.partitions",
            "1 or more",
        ),
        (
            {"topic.creation.default.replication.factor": "many"},
            "topic.creation.default.replication.factor",
            "Not a number",
        ),
    ],
)
def test_bad_groups_are_refused_by_the_name_of_the_setting(
    config: dict[str, str], field: str, says: str
) -> None:
    assert says in problems_of_groups(config)[field][0]
