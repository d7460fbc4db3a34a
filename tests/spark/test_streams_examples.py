"""The examples of docs/streams.md: each is run by its main(), with its sample, and its topics are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.testing import PenstockBroker
from tests.spark.stream_examples import DIRECTORY, Example

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.penstock(
        settings={"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    ),
]

Run = Callable[..., Example]


@pytest.fixture
def example(spark: SparkSession, penstock: PenstockBroker, tmp_path: Path) -> Run:
    """Runs an example on its sample, with further options, to its end."""

    def run(name: str, *options: str) -> Example:
        found = Example(name, penstock, tmp_path / name)
        found.run("--sample", *options)
        return found

    return run


@pytest.mark.promise("streams", "Example: filter, map, flatMap")
def test_filter_map_and_flat_map(example: Run) -> None:
    words = [value for _, value in example("filter_map").records("words")]
    assert words == ["the", "log", "is", "the", "truth", "and", "a", "table", "is", "a", "view", "of", "it"]


@pytest.mark.promise("streams", "Example: branch (split), merge")
def test_topics_are_merged_and_branched(example: Run) -> None:
    ran = example("branch_and_merge")
    assert ran.records("orders.large") == [("ann", {"amount": 250, "from": "orders.web"})]
    assert ran.records("orders.refunds") == [("cas", {"amount": -15, "from": "orders.shop"})]
    assert sorted(ran.records("orders.small")) == [
        ("bob", {"amount": 20, "from": "orders.web"}),
        ("dee", {"amount": 30, "from": "orders.shop"}),
    ]


@pytest.mark.promise("streams", "Example: key by (selectKey, repartition)")
def test_what_has_one_key_is_in_one_partition(example: Run, penstock: PenstockBroker) -> None:
    penstock.create_topic("orders.by-product", partitions=4)
    ran = example("key_by")
    orders = sorted((key, value["customer"]) for key, value in ran.records("orders.by-product"))
    assert orders == [("milk", "ann"), ("milk", "bob"), ("tea", "ann"), ("tea", "bob"), ("tea", "cas")]
    places: dict[bytes | None, set[int]] = {}
    for record in penstock.consume("orders.by-product"):
        places.setdefault(record.key, set()).add(record.partition)
    assert [len(partitions) for partitions in places.values()] == [1, 1]


@pytest.mark.promise("streams", "Example: aggregations, a KTable and its changelog")
def test_aggregates_of_each_key(example: Run) -> None:
    assert sorted(example("aggregate").records("totals")) == [
        ("ann", {"orders": 3, "sum": 42, "least": 2, "most": 30}),
        ("bob", {"orders": 1, "sum": 5, "least": 5, "most": 5}),
    ]


@pytest.mark.promise("streams", "Example: tumbling, hopping, session windows")
def test_tumbling_hopping_and_session_windows(example: Run) -> None:
    ran = example("time_windows")

    def windows(topic: str) -> list[tuple[str, str, str, int]]:
        """Who, from when, until when, how often."""
        return sorted(
            (value["who"], value["start"][11:16], value["end"][11:16], value["clicks"])
            for _, value in ran.records(topic)
        )

    assert windows("clicks.tumbling") == [
        ("ann", "10:00", "10:10", 2),
        ("ann", "10:10", "10:20", 1),
        ("ann", "10:40", "10:50", 1),
        ("bob", "10:00", "10:10", 1),
    ]
    assert windows("clicks.hopping") == [
        ("ann", "09:55", "10:05", 1),
        ("ann", "10:00", "10:10", 2),
        ("ann", "10:05", "10:15", 2),
        ("ann", "10:10", "10:20", 1),
        ("ann", "10:35", "10:45", 1),
        ("ann", "10:40", "10:50", 1),
        ("bob", "09:55", "10:05", 1),
        ("bob", "10:00", "10:10", 1),
    ]
    assert windows("clicks.session") == [
        ("ann", "10:01", "10:22", 3),
        ("ann", "10:40", "10:50", 1),
        ("bob", "10:02", "10:12", 1),
    ]


@pytest.mark.promise("streams", "Example: windows of N records")
def test_windows_of_so_many_records(example: Run, penstock: PenstockBroker) -> None:
    ran = example("count_windows")
    first = [
        ("a", {"sensor": "a", "window": 0, "mean": 3.0}),
        ("a", {"sensor": "a", "window": 1, "mean": 11.0}),
    ]
    assert ran.records("means") == first
    # A window that is not full waits, also for the next run of the query.
    penstock.produce("readings", ['{"sensor": "b", "degrees": 54}'])
    ran.run()
    assert ran.records("means") == [*first, ("b", {"sensor": "b", "window": 0, "mean": 52.0})]


@pytest.mark.promise("streams", "Example: stream-stream join")
def test_orders_meet_their_payments_or_leave_without(example: Run) -> None:
    settled = {key: value.get("paid") for key, value in example("join_streams").records("orders.settled")}
    assert settled == {
        "1": "2024-05-01T10:20:00.000Z",
        "2": None,
        "3": "2024-05-01T15:01:00.000Z",
    }


@pytest.mark.promise("streams", "Example: stream-table join")
def test_orders_see_the_table_of_prices_as_it_is(example: Run) -> None:
    priced = example("join_table").records("orders.priced")
    assert sorted(priced) == [
        ("ann", {"product": "tea", "pieces": 2, "cost": 8}),
        ("bob", {"product": "milk", "pieces": 1}),
    ]


@pytest.mark.promise("streams", "Example: deduplication, effectively once")
def test_what_was_sent_twice_goes_on_once(example: Run, penstock: PenstockBroker) -> None:
    ran = example("deduplicate")
    once = [(f"p{number}", {"id": f"p{number}", "amount": 10 * number}) for number in (1, 2, 3)]
    assert sorted(ran.records("payments.once")) == once
    # And also when it is sent again to a query that was stopped and started.
    penstock.produce("payments", ['{"id": "p2", "amount": 20, "at": "2024-05-01T10:05:00Z"}'])
    ran.run()
    assert sorted(ran.records("payments.once")) == once


@pytest.mark.promise("streams", "Example: out-of-order and late records, side output")
def test_late_records_go_to_a_topic(example: Run, penstock: PenstockBroker) -> None:
    ran = example("late_records")
    counted = {key: value["clicks"] for key, value in ran.records("clicks.counted")}
    # 10:08 is out of order and counts; 10:03 comes when 10:31 has closed its window, 10:25 just in time.
    assert counted == {"10:00": 2, "10:10": 1, "10:20": 1, "10:30": 3}
    (late,) = penstock.consume("clicks.late", isolation="read_committed")
    assert (late.key, late.value) == (b"ann", b"2024-05-01 10:03:00")
    told = {name: (value or b"").decode() for name, value in late.headers}
    assert told.pop("penstock.late.timestamp").isdecimal()
    assert told == {
        "penstock.late.topic": "clicks",
        "penstock.late.partition": "0",
        "penstock.late.offset": "6",
        "penstock.late.watermark": "1714559160000",  # 10:26
    }


@pytest.mark.promise("streams", "Example: dead-letter topic")
@pytest.mark.promise("streams", "Only failed records are diverted, with their reason and position")
def test_what_fails_becomes_a_dead_letter(example: Run, penstock: PenstockBroker) -> None:
    ran = example("dead_letters")
    assert ran.records("orders.parsed") == [("ann", {"product": "tea", "pieces": 2})]
    letters = penstock.consume("orders.dead", isolation="read_committed")
    assert [(letter.key, letter.value) for letter in letters] == [
        (b"bob", b"two teas, please"),
        (b"cas", b'{"product": "tea", "pieces": 0}'),
        (b"dee", b'{"product": "tea", "pieces": "many"}'),
    ]
    headers = [{name: (value or b"").decode() for name, value in letter.headers} for letter in letters]
    reasons = [told["penstock.dead.reason"] for told in headers]
    assert reasons[0].startswith("JSONDecodeError: ")
    assert reasons[1] == "ValueError: an order of nothing"
    assert reasons[2].startswith("the result does not fit: ")
    assert [
        tuple(told[f"penstock.dead.{name}"] for name in ("topic", "partition", "offset")) for told in headers
    ] == [("orders", "0", str(offset)) for offset in (1, 2, 3)]


@pytest.mark.promise("streams", "Example: priorities")
@pytest.mark.promise("spark source", "The option `priorityTopics` works as documented")
@pytest.mark.promise("streams", "Urgent topics are served first, and the others are not starved")
def test_urgent_records_are_served_first(example: Run) -> None:
    handled = [value for _, value in example("priorities").records("tickets.handled")]
    assert handled == [f"urgent {n}" for n in range(4)] + [f"ticket {n}" for n in range(30)]


@pytest.mark.promise("streams", "Example: back-pressure")
def test_batches_grow_when_they_are_done_sooner_than_they_should(
    example: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    example("back_pressure", "--target", "1h")
    assert capsys.readouterr().out.splitlines() == ["batch 0: 10000 records", "batch 1: 15000 records"]


@pytest.mark.promise("streams", "Example: event processing")
def test_a_pattern_of_events_raises_an_alert(example: Run, penstock: PenstockBroker) -> None:
    ran = example("event_processing")
    eve = ("eve", {"account": "eve", "second": 40, "failures": 3})
    assert ran.records("alerts") == [eve]
    # Failures are remembered between runs, for a minute.
    again = [("bob", '{"ok": false, "second": 109}'), ("bob", '{"ok": true, "second": 110}')]
    penstock.produce("logins", again)
    ran.run()
    assert ran.records("alerts") == [eve, ("bob", {"account": "bob", "second": 110, "failures": 3})]


@pytest.mark.promise("streams", "Example: continuous querying")
def test_a_query_in_sql_is_answered_continuously(example: Run, penstock: PenstockBroker) -> None:
    ran = example("continuous_query")
    first = [
        ("milk", {"product": "milk", "orders": 1, "revenue": 10}),
        ("tea", {"product": "tea", "orders": 2, "revenue": 20}),
    ]
    assert sorted(ran.records("answers")) == first
    penstock.produce("orders", ['{"product": "tea", "pieces": 1, "price": 5}'])
    ran.run()
    assert ran.newest("answers") == {
        "milk": first[0][1],
        "tea": {"product": "tea", "orders": 3, "revenue": 25},
    }


@pytest.mark.promise("streams", "Every example runs on its sample data and gives the documented result")
def test_every_example_is_on_the_page_and_is_run_here() -> None:
    root = DIRECTORY.parents[1]
    page = (root / "docs" / "streams.md").read_text()
    tests = "".join(path.read_text() for path in (root / "tests" / "spark").glob("test_streams_*.py"))
    for path in DIRECTORY.glob("*.py"):
        if path.stem != "shared":
            assert f"examples/streams/{path.name}" in page
            assert f'"{path.stem}"' in tests
