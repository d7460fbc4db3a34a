"""The settings of single groups: what is allowed, what is in force, and that they last."""

from __future__ import annotations

import pytest

from penstock.config import BrokerConfig, ConfigSource, describe_group, group_setting, validate_group
from penstock.config.group import duration_ms
from penstock.errors import InvalidConfig
from penstock.metadata import layout
from penstock.metadata.image_reader import read_image

BROKER = BrokerConfig.parse({"group.share.heartbeat.interval.ms": "6000"})


@pytest.mark.promise(
    "share groups",
    "A new share group starts at the log end unless its settings say otherwise; its settings survive "
    "restarts",
)
def test_a_groups_setting_is_its_own_or_else_the_brokers() -> None:
    assert group_setting(BROKER, {}, "share.heartbeat.interval.ms") == 6000
    own = {"share.heartbeat.interval.ms": "7000"}
    assert group_setting(BROKER, own, "share.heartbeat.interval.ms") == 7000
    assert group_setting(BROKER, {}, "share.auto.offset.reset") == "latest"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.no.such", "1"),
        ("share.auto.offset.reset", "middle"),
        ("share.auto.offset.reset", "by_duration:1h"),
        ("share.record.lock.duration.ms", "999"),
        ("share.record.lock.duration.ms", "14999"),  # group.share.min.record.lock.duration.ms
        ("share.record.lock.duration.ms", "60001"),
        ("share.isolation.level", "read"),
        ("share.session.timeout.ms", "x"),
    ],
)
def test_a_setting_that_no_group_can_have_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        validate_group(BROKER, {name: value})


def test_describe_tells_where_a_value_comes_from() -> None:
    entries = {
        entry.name: entry for entry in describe_group(BROKER, {"share.isolation.level": "read_committed"})
    }
    assert entries["share.isolation.level"].source is ConfigSource.GROUP
    inherited = entries["share.heartbeat.interval.ms"]
    assert [tuple(synonym) for synonym in inherited.synonyms] == [
        ("share.heartbeat.interval.ms", "6000", ConfigSource.DEFAULT)
    ]
    assert entries["share.session.timeout.ms"].source is ConfigSource.DEFAULT


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1H", 3_600_000),
        ("P1DT2M3.5S", 86_523_500),
        ("PT0S", 0),
        ("P", None),
        ("PT", None),
        ("-PT1H", None),
    ],
)
def test_durations_are_read_as_java_does(text: str, ms: int | None) -> None:
    assert duration_ms(text) == ms


@pytest.mark.promise(
    "share groups",
    "A new share group starts at the log end unless its settings say otherwise; its settings survive "
    "restarts",
)
@pytest.mark.parametrize("group_id", ["g", ".", "a/b", "ä %"])
def test_settings_of_a_group_of_any_name_are_found_again(group_id: str) -> None:
    path = layout.group_config_path(group_id)
    assert path.count("/") == 3
    nodes = {
        layout.CLUSTER_ID: (b"c", 0),
        path: (layout.encode({"share.isolation.level": "read_committed"}), 0),
    }
    image = read_image(nodes, 1)
    assert image.group_configs == {group_id: {"share.isolation.level": "read_committed"}}
