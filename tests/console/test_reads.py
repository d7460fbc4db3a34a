"""What the pages show, read from a real broker without a page."""

from __future__ import annotations

import csv
import io
import json
import threading
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from penstock.admin.cluster import Cluster, PartitionInfo, TopicDescription
from penstock.admin.failure import CommandFailed, UnknownTopic
from penstock.admin.reader import StopRequest
from penstock.console.reads import groups, messages, topics, transactions
from penstock.console.reads.messages import (
    Message,
    Progress,
    Query,
    export,
    produce,
    read_messages,
    tail,
)
from penstock.console.reads.samples import Sample, Sampler, between, take_sample
from penstock.console.searching import MOST_AT_ONCE, Result, Search
from penstock.testing import PenstockBroker
from tests.console.stuck import leave_hanging

pytestmark = pytest.mark.timeout(300)
NOW_MS = int(time.time() * 1000)


def write(broker: PenstockBroker, topic: str, count: int, partitions: int = 2) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        value = json.dumps({"order": number, "city": "Berlin" if number % 10 == 0 else "Rome"})
        producer.produce(
            topic,
            value.encode(),
            f"key-{number}".encode(),
            partition=number % partitions,
            timestamp=NOW_MS - count + number,
            headers=[("trace", f"t{number}".encode())],
        )
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def orders(broker: PenstockBroker, cluster: Cluster) -> str:
    topics.create_topic(cluster, "orders", 2, 1, {"retention.ms": "86400000"})
    write(broker, "orders", 100)
    return "orders"


@pytest.mark.promise("console", "The server filters, sorts and paginates lists")
def test_topics_come_page_by_page(cluster: Cluster, orders: str) -> None:
    for number in range(7):
        topics.create_topic(cluster, f"many-{number}", number + 1, 1, {})
    sampler = Sampler(cluster)
    page = topics.list_topics(cluster, sampler, text="MANY-", first=2, count=3)
    assert ([row.name for row in page.rows], page.total) == (["many-2", "many-3", "many-4"], 7)
    page = topics.list_topics(cluster, sampler, text="many", sort="partitions", descending=True, count=2)
    assert [row.partitions for row in page.rows] == [7, 6]
    (row,) = topics.list_topics(cluster, sampler, text="orders").rows
    assert (row.health, row.records, row.replication) == ("ok", 100, 1)
    assert row.size is not None and row.size > 1000


def test_partitions_have_offsets_and_sizes_and_settings_their_documentation(
    cluster: Cluster, orders: str
) -> None:
    rows = topics.partitions_of(cluster, orders)
    assert [(row.partition, row.earliest, row.latest, row.isr) for row in rows] == [
        (0, 0, 50, (1,)),
        (1, 0, 50, (1,)),
    ]
    assert all(row.size for row in rows)
    first = topics.settings_of(cluster, orders)[0]
    assert (first.setting.name, first.setting.value, first.setting.source) == (
        "retention.ms",
        "86400000",
        "topic",
    )
    assert first.doc


def test_a_topic_is_changed_emptied_and_deleted(broker: PenstockBroker, cluster: Cluster) -> None:
    topics.create_topic(cluster, "short-lived", 1, 1, {})
    topics.add_partitions(cluster, "short-lived", 3)
    topics.change_setting(cluster, "short-lived", "retention.ms", "1000000")
    write(broker, "short-lived", 9, partitions=3)
    topics.empty_topic(cluster, "short-lived")
    rows = topics.partitions_of(cluster, "short-lived")
    assert [(row.earliest, row.latest) for row in rows] == [(3, 3)] * 3
    with pytest.raises(CommandFailed, match="has 3 partitions: give a larger number"):
        topics.add_partitions(cluster, "short-lived", 2)
    with pytest.raises(CommandFailed, match="retention"):
        topics.change_setting(cluster, "short-lived", "retention.ms", "soon")
    topics.delete_topic(cluster, "short-lived")
    with pytest.raises(UnknownTopic):
        topics.delete_topic(cluster, "short-lived")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (Query(limit=3), [99, 98, 97]),
        (Query(start="earliest", partition=1, limit=2), [1, 3]),
        (Query(start="48", partition=0), [96, 98]),
        (Query(start="-1"), [98, 99]),
        (Query(search="KEY-42"), [42]),
        (Query(search="key-4[27]$", kind="regex", start="earliest"), [42, 47]),
        (Query(search="t17", start="earliest"), [17]),
        (Query(search="$.city = Berlin", kind="json", limit=2), [90, 80]),
        (Query(search="$.order >= 98", kind="json"), [99, 98]),
        (Query(search="$.refund", kind="json"), []),
    ],
)
@pytest.mark.promise(
    "console", "Messages can be searched by offset, time, text, regular expression and fields of JSON"
)
def test_messages_are_found(cluster: Cluster, orders: str, query: Query, found: list[int]) -> None:
    got = [json.loads(each.value.text)["order"] for each in read_messages(cluster, orders, query)]
    assert (got if query.start == "newest" else sorted(got)) == found
    assert Query.of(query.as_link()) == query


def test_messages_are_found_by_time(cluster: Cluster, orders: str) -> None:
    middle = read_messages(cluster, orders, Query(search="key-50"))[0].timestamp
    assert middle is not None
    later = read_messages(cluster, orders, Query(start=f"@{middle}", limit=1000))
    assert {json.loads(each.value.text)["order"] for each in later} >= set(range(50, 100))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (Query(search="(", kind="regex"), "'\\(' is not a regular expression"),
        (Query(search="!!", kind="json"), "is not a field of JSON"),
        (Query(start="yesterday"), "'yesterday' is not earliest, latest"),
        (Query(start="@soon"), "'soon' is not a time"),
        (Query(partition=9), "has no partition 9: it has 0 to 1"),
    ],
)
def test_a_wrong_question_gets_a_reason(cluster: Cluster, orders: str, query: Query, reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        read_messages(cluster, orders, query)


def search_results(search: Search) -> Result:
    while not isinstance(report := search.next(), Result):
        pass
    return report


@pytest.mark.promise(
    "console",
    "A search that never ends does not delay other requests, and stops when it is cancelled",
)
def test_a_search_without_end_is_cancelled(broker: PenstockBroker, cluster: Cluster) -> None:
    topics.create_topic(cluster, "backtracking", 1, 1, {})
    produce(cluster, "backtracking", key=None, value=b"a" * 60 + b"!", headers={})
    query = Query(search="(a+)+$", kind="regex")
    searches = [Search(broker.bootstrap, {}, None, "backtracking", query, 60.0) for _ in range(MOST_AT_ONCE)]
    with pytest.raises(CommandFailed, match="searches are running already"):
        Search(broker.bootstrap, {}, None, "backtracking", query, 60.0)
    for each in searches:
        each.close()
        assert not each._process.is_alive()
    again = Search(broker.bootstrap, {}, None, "backtracking", Query(search="aaa!"), 60.0)
    assert [each.offset for each in search_results(again).found] == [0]


def test_new_messages_are_shown_as_they_come(cluster: Cluster) -> None:
    topics.create_topic(cluster, "live", 1, 1, {})
    stop, came = StopRequest(), threading.Event()
    seen: list[Message] = []

    def show(messages: list[Message]) -> None:
        seen.extend(messages)
        came.set()

    follower = threading.Thread(
        target=tail, args=(cluster, "live", None), kwargs={"describe": None, "stop": stop, "show": show}
    )
    follower.start()
    while not came.wait(1.0):
        produce(cluster, "live", key=b"k", value=b"v", headers={"h": "1"})
    stop.requested = True
    follower.join(60)
    assert not follower.is_alive()
    assert (seen[0].key.text, seen[0].value.text, seen[0].headers[0][0]) == ("k", "v", "h")


@pytest.mark.promise(
    "console",
    "A read of messages holds at most 64 MiB and shows where it stopped; it ends when it is cancelled",
)
def test_a_read_is_bounded_and_can_be_cancelled(
    broker: PenstockBroker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create_topic(cluster, "large", 1, 1, {})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(40):
        producer.produce("large", bytes([65 + number]) * (300 << 10), timestamp=NOW_MS + number)
        producer.poll(0)
    assert producer.flush(60) == 0
    monkeypatch.setattr(messages, "MOST_BYTES", 1 << 20)
    for query, offsets in (
        (Query(start="earliest"), [0, 1, 2]),
        (Query(), [39, 38, 37]),
        (Query(search="A", kind="regex"), [0]),
        (Query(limit=3), [39, 38, 37]),
    ):
        cut = len(offsets) < query.limit and not query.search
        reports: list[Progress] = []
        found = read_messages(cluster, "large", query, report=reports.append)
        assert [each.offset for each in found] == offsets
        assert [note.partition(":")[0] for note in reports[-1].notes] == ["Cut at 1 MiB"] * cut
    stop = StopRequest()
    stop.requested = True
    assert read_messages(cluster, "large", Query(start="earliest"), stop=stop) == []


@pytest.mark.promise(
    "console",
    "A search continues if retention deletes records before it reads them, and shows how many it missed",
)
def test_a_search_survives_retention(
    broker: PenstockBroker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create_topic(cluster, "expiring", 2, 1, {})
    write(broker, "expiring", 100)
    real = messages.find_range

    def then_expired(*arguments: Any, **named: Any) -> Any:
        found = real(*arguments, **named)
        gone = [TopicPartition("expiring", 0, 30), TopicPartition("expiring", 1, 50)]
        deleted = cluster.admin.delete_records(gone)
        for each in deleted.values():
            each.result(60)
        return found

    monkeypatch.setattr(messages, "find_range", then_expired)
    reports: list[Progress] = []
    found = read_messages(
        cluster, "expiring", Query(start="earliest", limit=1000, search="city"), report=reports.append
    )
    assert [(each.partition, each.offset) for each in found] == [(0, offset) for offset in range(30, 50)]
    assert reports[-1].notes == ("80 offsets were deleted before they could be read.",)


@pytest.mark.promise(
    "console", "An export of messages loses no byte, and a spreadsheet executes nothing in it"
)
def test_exports_are_complete_and_harmless(broker: PenstockBroker, cluster: Cluster) -> None:
    topics.create_topic(cluster, "odd", 1, 1, {})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    odd = [b"\xff\x00" * 600, b"=HYPERLINK(1)", None, "größe".encode(), b'{"a": [1, 2]}', b"\x00\x00\x00"]
    for value in odd:
        producer.produce("odd", value)
    assert producer.flush(60) == 0
    found = read_messages(cluster, "odd", Query(start="earliest"))
    assert [each.value.kind for each in found] == ["bytes", "text", "null", "text", "json", "bytes"]
    lines = export(found, "jsonl").decode().splitlines()
    # What `penstock produce --format json` makes of them.
    from penstock.cli.records.formats import line_decoder

    read_back = line_decoder("json", key_separator=None, null_value=None)
    assert [read_back(line.encode()).value for line in lines] == odd
    rows = list(csv.DictReader(io.StringIO(export(found, "csv").decode())))
    assert rows[1]["value"] == "'=HYPERLINK(1)"


def test_groups_have_lag_and_a_reset_does_what_its_preview_showed(cluster: Cluster, orders: str) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "billing"})
    consumer.commit(
        offsets=[TopicPartition(orders, 0, 20), TopicPartition(orders, 1, 50)], asynchronous=False
    )
    consumer.close()
    sampler = Sampler(cluster)
    sampler.last = take_sample(cluster, now=1.0)
    (row,) = groups.page_of_groups(cluster, sampler, text="bill", sort="lag", descending=True).rows
    assert (row.group, row.state, row.lag) == ("billing", "Empty", 30)
    found = groups.find_group(cluster, "billing")
    assert [(each.committed, each.lag) for each in found.partitions] == [(20, 30), (50, 0)]

    preview = groups.preview_reset(cluster, "billing", groups.position_of("shift", "-5"))
    assert [(move.committed, move.new) for move in preview.moves] == [(20, 15), (50, 45)]
    assert preview.refused is None
    still = groups.find_group(cluster, "billing")
    assert [each.committed for each in still.partitions] == [20, 50]
    groups.apply_reset(cluster, "billing", preview.moves)
    moved = groups.find_group(cluster, "billing")
    assert [each.committed for each in moved.partitions] == [15, 45]
    with pytest.raises(CommandFailed, match="'ten' is not a whole number"):
        groups.position_of("offset", "ten")


def test_a_group_with_members_is_not_reset(cluster: Cluster, orders: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "busy", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([orders])
    while consumer.poll(1.0) is None:
        pass
    consumer.commit(asynchronous=False)
    preview = groups.preview_reset(cluster, "busy", groups.position_of("earliest", ""))
    assert preview.refused is not None and "1 active member" in preview.refused
    with pytest.raises(CommandFailed, match="stop every member first"):
        groups.apply_reset(cluster, "busy", preview.moves)
    consumer.close()


@pytest.mark.promise(
    "console",
    "Transactions are shown, hanging ones first, and aborted only after the user has typed their name",
)
def test_transactions_are_listed_by_age_and_ended(broker: PenstockBroker, cluster: Cluster) -> None:
    topics.create_topic(cluster, "ledger", 2, 1, {})
    producers = {}
    for name in ("first", "second", "done"):
        producers[name] = made = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
        made.init_transactions()
        made.begin_transaction()
        made.produce("ledger", b"x", partition=1)
        made.flush()
    producers["done"].commit_transaction()
    leave_hanging(broker, "ledger", 4711)

    def open_ids(**asked: Any) -> list[str]:
        return [each.id for each in transactions.page_of_transactions(cluster, **asked).rows if each.seconds]

    assert open_ids() == ["first", "second"]
    assert open_ids(descending=False) == ["second", "first"]
    assert open_ids(text="SEC") == ["second"]
    found = transactions.page_of_transactions(cluster, sort="id", descending=False, first=1, count=1)
    assert ([each.id for each in found.rows], found.total) == (["first"], 3)
    assert found.rows[0].partitions == 1 and found.rows[0].state == "Ongoing"

    assert transactions.hanging(cluster, 3600.0) == []
    (stuck,) = transactions.hanging(cluster, 0.0, now=lambda: time.time() + 60)
    assert (stuck.topic, stuck.partition, stuck.start_offset, stuck.producer_id) == ("ledger", 0, 0, 4711)
    transactions.abort_hanging(cluster, stuck)
    assert transactions.hanging(cluster, 0.0, now=lambda: time.time() + 60) == []
    with pytest.raises(CommandFailed, match="no open transaction of offset 0 in ledger-0"):
        transactions.abort_hanging(cluster, stuck)

    transactions.abort(cluster, "first")
    assert not transactions.transaction_of(cluster, "first").under_way
    with pytest.raises(CommandFailed, match="'first' has no open transaction"):
        transactions.abort(cluster, "first")
    with pytest.raises(CommandFailed, match="no transactional id 'nobody'"):
        transactions.transaction_of(cluster, "nobody")
    producers["second"].commit_transaction()
    with pytest.raises(KafkaException):
        producers["first"].commit_transaction()


def test_rates_count_what_grew_between_two_samples() -> None:
    info = TopicDescription("t", (PartitionInfo(0, 1, (1,), (1,)),))

    def sample(at: float, end: int, size: int, committed: int) -> Sample:
        ends = {("t", 0): end, ("__offsets", 0): end * 9}
        return Sample(at, 1, {1: "b:1"}, {"t": info}, ends, {"t": size}, {}, {"g": 4}, {"g": committed})

    point = between(sample(10.0, 100, 5000, 40), sample(12.0, 160, 9000, 50))
    assert (point.records_in, point.bytes_in, point.records_out) == (30.0, 2000.0, 5.0)
    assert between(sample(10.0, 100, 5000, 40), sample(12.0, 0, 0, 0)).records_in == 0.0


def test_health_names_the_worst() -> None:
    def topic(*partitions: PartitionInfo) -> TopicDescription:
        return TopicDescription("t", partitions)

    fine, behind = PartitionInfo(0, 1, (1, 2), (1, 2)), PartitionInfo(1, 1, (1, 2), (1,))
    assert topics.health_of(topic(fine)) == "ok"
    assert topics.health_of(topic(fine, behind)) == "under-replicated"
    assert topics.health_of(topic(behind, PartitionInfo(2, -1, (1,), ()))) == "offline"
