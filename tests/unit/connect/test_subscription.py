"""Which topics a sink reads by `topics.regex`."""

from __future__ import annotations

import pytest

from penstock.connect.runtime.clients import WorkerSettings
from penstock.connect.runtime.subscription import Subscription
from penstock.connect.runtime.validation import validation

TOPICS = ["__consumer_offsets", "orders-1", "orders-22", "orders-d", "orders-1-old", "other"]


@pytest.mark.promise(
    "connect",
    "`topics.regex` accepts Kafka Connect's regular expressions, and follows topics that are created later",
)
@pytest.mark.parametrize(
    ("regex", "found"),
    [
        (r"orders-\d+", ["orders-1", "orders-22"]),
        (r"^orders-\d+$", ["orders-1", "orders-22"]),
        (r"(?!orders).*", ["other"]),
        (r"orders-(?:1|22)", ["orders-1", "orders-22"]),
        (r"_*consumer.*", None),
    ],
)
def test_whole_names_match(regex: str, found: list[str] | None) -> None:
    assert Subscription([], regex, 60).changed(lambda: TOPICS, 0) == found


@pytest.mark.promise(
    "connect",
    "`topics.regex` accepts Kafka Connect's regular expressions, and follows topics that are created later",
)
def test_topics_are_looked_for_again() -> None:
    there: list[str] = []
    subscription = Subscription([], "a.*", 60)
    assert subscription.changed(lambda: there, 0) is None
    there.append("a1")
    assert subscription.changed(lambda: there, 0.5) is None
    assert subscription.changed(lambda: there, 1) == ["a1"]
    there.append("a2")
    assert subscription.changed(lambda: there, 60) is None
    assert subscription.changed(lambda: there, 61) == ["a1", "a2"]
    assert subscription.changed(lambda: [], 121) is None


def test_named_topics_are_subscribed_to_once() -> None:
    subscription = Subscription(["b", "a"], "", 60)
    assert subscription.changed(lambda: [], 0) == ["b", "a"]
    assert subscription.changed(lambda: [], 100) is None


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"topics.regex": "[a"}, "topics.regex"),
        ({"topics.regex": "a", "topics": "a"}, "topics.regex"),
        ({"topics.regex": ".*", "errors.deadletterqueue.topic.name": "dead"}, "topics.regex"),
        ({}, "topics"),
    ],
)  # fmt: skip
def test_bad_topics_are_refused_by_name(config: dict[str, str], field: str) -> None:
    config = {"name": "n", "connector.class": "FileStreamSink", "file": "f", **config}
    found = validation("FileStreamSink", config, WorkerSettings({"bootstrap.servers": "127.0.0.1:1"}))
    wrong = [each["value"]["name"] for each in found["configs"] if each["value"]["errors"]]
    assert field in wrong
