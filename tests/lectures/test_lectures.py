"""What courses on Kafka show: each program of examples/lectures runs as written and prints what it teaches.

Word count is in tests/spark (it needs Spark's session), the six checks of reliability in tests/cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from penstock.testing import PenstockBroker
from tests.lectures.lecture import DIRECTORY, run_lecture

ELSEWHERE = {"word_count", "validating_reliability"}
# What a student waits minutes for, retention and compaction, comes at once.
SETTINGS = {
    "log.retention.check.interval.ms": 200,
    "log.cleaner.backoff.ms": 200,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
}
Lecture = Callable[[str], list[str]]

# kafka-python would have classes where courses pass functions.
pytestmark = pytest.mark.filterwarnings("ignore:.*does not implement kafka.serializer")


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker(SETTINGS, event_loop="uvloop") as process:
        yield process


@pytest.fixture
def lecture(broker: PenstockBroker) -> Lecture:
    return lambda name: run_lecture(name, broker.bootstrap)


@pytest.mark.promise(
    "lectures",
    "Topics, keys, polling, seeking, groups, rebalances and manual assignment work with kafka-python as "
    "courses show them",
)
def test_a_topic_is_created_with_new_topic(lecture: Lecture, broker: PenstockBroker) -> None:
    partitions = ["0 replicas [1]", "1 replicas [1]", "2 replicas [1]"]
    assert lecture("create_topic") == ["created customers", "True", *partitions]
    assert lecture("create_topic") == ["customers exists already", "True", *partitions]
    broker.delete_topic("customers")


@pytest.mark.promise(
    "lectures",
    "Topics, keys, polling, seeking, groups, rebalances and manual assignment work with kafka-python as "
    "courses show them",
)
def test_records_of_a_key_go_to_one_partition_in_order(lecture: Lecture, broker: PenstockBroker) -> None:
    lines = lecture("send_with_key")
    ann = [re.fullmatch(r"ann \w\w -> partition (\d), offset \d", line) for line in lines if "ann" in line]
    assert len(ann) == 3 and len({match[1] for match in ann if match}) == 1
    values = [record.value for record in broker.consume("keyed-customers") if record.key == b"ann"]
    assert values == [b'{"name": "ann", "country": "%s"}' % country for country in (b"NO", b"SE", b"DK")]


@pytest.mark.promise(
    "lectures",
    "Topics, keys, polling, seeking, groups, rebalances and manual assignment work with kafka-python as "
    "courses show them",
)
def test_poll_returns_batches_by_partition(lecture: Lecture) -> None:
    *batches, total = lecture("poll_batches")
    assert total == "10 records"
    for partition in (0, 1):
        mine = [line for line in batches if line.startswith(f"page-views-{partition} from offset ")]
        views = re.findall(r"view (\d)", " ".join(mine))
        assert views == [str(number) for number in range(10) if number % 2 == partition]
    assert all(len(re.findall("view ", line)) <= 4 for line in batches)


@pytest.mark.promise(
    "lectures",
    "Topics, keys, polling, seeking, groups, rebalances and manual assignment work with kafka-python as "
    "courses show them",
)
def test_a_consumer_seeks_to_an_offset_and_to_a_time(lecture: Lecture) -> None:
    assert lecture("seek") == [
        "offset 7: reading 7",
        "beginning: reading 0",
        "last: reading 9",
        "5 ms after the start: reading 5",
    ]


@pytest.mark.promise(
    "lectures",
    "Topics, keys, polling, seeking, groups, rebalances and manual assignment work with kafka-python as "
    "courses show them",
)
def test_two_groups_have_their_own_offsets(lecture: Lecture) -> None:
    assert lecture("two_groups") == [
        "billing read order 0 to order 5, goes on at 6",
        "shipping read order 0 to order 2, goes on at 3",
    ]


@pytest.mark.promise(
    "lectures",
    "Topics, keys, polling, seeking, groups, rebalances and manual assignment work with kafka-python as "
    "courses show them",
)
def test_who_joins_gets_partitions_and_who_leaves_gives_them_back(lecture: Lecture) -> None:
    assert lecture("join_and_leave") == ["first has 4", "first has 2, second has 2", "first has 4"]


@pytest.mark.promise(
    "lectures",
    "Topics, keys, polling, seeking, groups, rebalances and manual assignment work with kafka-python as "
    "courses show them",
)
def test_partitions_are_assigned_by_hand(lecture: Lecture) -> None:
    assert lecture("manual_assign") == [
        "partitions: [0, 1, 2]",
        "partition 1, offset 0: box 1",
        "partition 1, offset 1: box 4",
        "partition 1, offset 2: box 7",
    ]


def test_customers_are_counted_by_country(lecture: Lecture) -> None:
    assert lecture("customer_countries")[-1] == '{"Norway": 2, "Italy": 1, "France": 1}'


@pytest.mark.promise(
    "lectures",
    "Compaction keeps the last record of each of the keys k1 to k6 at its offset; each retention and "
    "cleanup policy keeps what it documents",
)
def test_compaction_keeps_the_last_of_each_key_at_its_offset(lecture: Lecture) -> None:
    lines = lecture("compaction")
    keys = ["k1", "k2", "k1", "k1", "k3", "k2", "k4", "k5", "k5", "k2", "k6"]
    written = [f"  offset {offset}: {key}=v{offset + 1}" for offset, key in enumerate(keys)]
    left = [written[offset] for offset in (3, 4, 6, 8, 9, 10)]
    assert lines == ["written:", *written, "left:", *left]


@pytest.mark.promise(
    "lectures",
    "Compaction keeps the last record of each of the keys k1 to k6 at its offset; each retention and "
    "cleanup policy keeps what it documents",
)
def test_each_log_policy_keeps_what_it_says(lecture: Lecture) -> None:
    lines = lecture("log_policies")
    left = {name: int(number) for name, number in re.findall(r"(\w+): (\d+) of 20 left", "\n".join(lines))}
    assert left["everything"] == 20
    assert left["time"] == 0
    assert 4 <= left["keys"] <= 8  # four keys, and what the active segment has
    assert 5 <= left["records"] <= 7  # at least five, whole segments
    assert 5 <= left["size"] <= 10  # at least 1000 bytes of about 170 each


@pytest.mark.promise(
    "lectures",
    "These patterns work: retry by pausing and with a retry topic, commit on revoke, order by timestamp, "
    "a custom partitioner, Protobuf without a registry",
)
def test_a_failed_record_is_read_again_after_a_pause_in_order(lecture: Lecture) -> None:
    assert lecture("retry_pause") == [
        "stored order 0",
        "order 1: the database is away, paused",
        "order 1: the database is away, paused",
        "stored order 1",
        "stored order 2",
        "stored order 3",
    ]


@pytest.mark.promise(
    "lectures",
    "These patterns work: retry by pausing and with a retry topic, commit on revoke, order by timestamp, "
    "a custom partitioner, Protobuf without a registry",
)
def test_a_failed_record_goes_to_the_retry_topic_and_then_to_the_dead_letters(
    lecture: Lecture, broker: PenstockBroker
) -> None:
    lines = lecture("retry_topic")
    assert [line for line in lines if "none" in line] == [
        "try 1 of 'none' failed: to retry-orders",
        "try 2 of 'none' failed: to retry-orders",
        "try 3 of 'none' failed: to dead-orders",
    ]
    assert [line for line in lines if "none" not in line] == ["handled 1 of tea", "handled 3 of milk"]
    assert [record.value for record in broker.consume("dead-orders")] == [b"none"]


@pytest.mark.promise(
    "lectures",
    "These patterns work: retry by pausing and with a retry topic, commit on revoke, order by timestamp, "
    "a custom partitioner, Protobuf without a registry",
)
def test_who_commits_when_partitions_are_revoked_does_nothing_twice(lecture: Lecture) -> None:
    lines = lecture("commit_on_revoke")
    assert lines[0] == "first committed {0: 5, 1: 5} and gave its partitions back"
    assert "20 records, each handled 1 time" in lines


@pytest.mark.promise(
    "lectures",
    "These patterns work: retry by pausing and with a retry topic, commit on revoke, order by timestamp, "
    "a custom partitioner, Protobuf without a registry",
)
def test_timestamps_order_the_records_of_several_partitions(lecture: Lecture) -> None:
    *partitions, merged = lecture("order_by_timestamp")
    assert merged == "merged: 0 1 2 3 4 5 6 7 8 9 10 11"
    assert len(partitions) == 3 and all(len(line.split()) > 3 for line in partitions)


@pytest.mark.promise(
    "lectures",
    "These patterns work: retry by pausing and with a retry topic, commit on revoke, order by timestamp, "
    "a custom partitioner, Protobuf without a registry",
)
def test_a_custom_partitioner_gives_one_customer_a_partition_alone(lecture: Lecture) -> None:
    lines = lecture("custom_partitioner")
    assert lines[2] == "2 ['Banana']"
    assert sorted(re.findall(r"'(\w+)'", lines[0] + lines[1])) == ["Apple", "Cherry", "Date", "Elder"]


@pytest.mark.promise(
    "lectures",
    "These patterns work: retry by pausing and with a retry topic, commit on revoke, order by timestamp, "
    "a custom partitioner, Protobuf without a registry",
)
def test_protobuf_bytes_need_no_registry(lecture: Lecture) -> None:
    assert lecture("protobuf_values") == [
        "roof: 21.5° in 22 bytes, as JSON 56",
        "cellar: 12.0° in 24 bytes, as JSON 58",
    ]


def test_an_alert_for_each_time_the_limit_is_reached(lecture: Lecture) -> None:
    assert lecture("sensor_threshold") == [
        "roof {'celsius': 30, 'offset': 1}",
        "roof {'celsius': 30.5, 'offset': 5}",
    ]


def test_a_share_is_reported_once_when_it_has_risen_by_a_tenth(lecture: Lecture) -> None:
    assert lecture("share_price") == ["ACME opened at 100 and is at 110: up 10%", "not risen: BOLT"]


def test_a_burst_is_found_by_the_time_of_the_records(lecture: Lecture) -> None:
    assert lecture("burst") == ["bob sent 5 messages in 9 seconds"]


def test_activity_of_several_topics_is_read_by_a_pattern(lecture: Lecture) -> None:
    assert lecture("activity_tracking") == [
        "ann {'purchases': 1, 'searches': 1, 'views': 2}",
        "bob {'views': 1}",
        "most viewed: ('/tea', 2)",
    ]


def test_log_lines_of_all_services_meet_in_one_topic(lecture: Lecture) -> None:
    assert lecture("log_aggregation") == [
        "ERROR billing: card of ann refused",
        "{'billing': 1, 'shop': 2}",
    ]


def test_two_consumers_read_one_feed_of_metrics(lecture: Lecture) -> None:
    assert lecture("metrics_feed") == [
        "dashboard: {'web-1': 30, 'web-2': 91}",
        "alarm: web-2 is at 92 %",
    ]


def test_state_is_rebuilt_from_events_at_any_point(lecture: Lecture) -> None:
    assert lecture("event_sourcing") == [
        "after 4 events: {'ann': 70, 'bob': 550}",
        "after 5 events: {'ann': 70, 'bob': 100}",
    ]


@pytest.mark.promise("lectures", "Every program in `examples/lectures` is listed and run by a test")
def test_every_lecture_is_run_and_listed() -> None:
    names = {path.stem for path in DIRECTORY.glob("*.py")} - {"classroom"}
    with open(__file__, encoding="utf-8") as source:
        ran = set(re.findall(r'lecture\("(\w+)"\)', source.read()))
    assert ran | ELSEWHERE == names
    listed = re.findall(r"\((\w+)\.py\)", (DIRECTORY / "README.md").read_text(encoding="utf-8"))
    assert set(listed) == names
    assert len(listed) == len(names)
