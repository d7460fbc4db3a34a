"""The sink's parts without Spark: marks, rows to records, a Java producer's settings."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from pyspark.sql.types import StringType, StructField, StructType

from penstock.client.errors import BadClientSetting
from penstock.client.librdkafka_names import translate
from penstock.spark.errors import BadOption, BadRow, BatchChanged, Fenced, NotDelivered
from penstock.spark.sink import writers as sink
from penstock.spark.sink.finish_batch import TaskDone, WhichBatch
from penstock.spark.sink.producer import BY_KEY, Layout, ProducerSettings, Rows, TaskProducer, split
from penstock.spark.sink.written_tasks import Mark, MarksReader, MarksView, mark_key, partition_of
from penstock.testing import PenstockBroker
from penstock.wire.batches.records import Record, build_batch, control_marker

# ---- marks ----


class Log:
    """A partition of the marks topic, as bytes."""

    def __init__(self) -> None:
        self.data = b""
        self.offset = 0

    def mark(self, producer: int, query: str, task: int, batch: int) -> Log:
        record = Record(0, 0, mark_key(query, task), Mark(batch, "run", 1, 0).encode())
        self.data += build_batch(
            [record], base_offset=self.offset, producer_id=producer, producer_epoch=0, transactional=True
        )
        self.offset += 1
        return self

    def end(self, producer: int, how: str) -> Log:
        assert how in ("commit", "abort")
        self.data += control_marker(how, 0, producer, 0, 0, base_offset=self.offset)  # type: ignore[arg-type]
        self.offset += 1
        return self


def batches(view: MarksView, query: str = "q") -> tuple[dict[int, int], dict[int, int]]:
    found = view.of_query(query)
    return {t: m.batch for t, m in found.settled.items()}, {t: m.mark.batch for t, m in found.open.items()}


@pytest.mark.promise(
    "spark sinks",
    "A mark of a finished task counts once its transaction is committed, whatever other transactions are "
    "open",
)
def test_a_committed_mark_counts_although_another_task_writes_before_it() -> None:
    log = Log().mark(1, "q", 0, 7).mark(2, "q", 1, 7).end(2, "commit")
    view = MarksView()
    view.feed(memoryview(log.data))
    # read_committed would end before the first mark, and see neither.
    assert batches(view) == ({1: 7}, {0: 7})


def test_an_aborted_mark_never_counts_and_the_last_committed_one_does() -> None:
    log = Log().mark(1, "q", 0, 1).end(1, "commit").mark(1, "q", 0, 2).end(1, "abort")
    view = MarksView()
    view.feed(memoryview(log.data))
    assert batches(view) == ({0: 1}, {})


def test_marks_are_those_of_the_query_alone() -> None:
    log = Log().mark(1, "q", 0, 1).end(1, "commit").mark(1, "q/1", 0, 5).end(1, "commit")
    log.mark(3, "other", 0, 9).end(3, "commit")
    view = MarksView()
    view.feed(memoryview(log.data))
    assert batches(view) == ({0: 1}, {})
    assert batches(view, "other") == ({0: 9}, {})


@pytest.mark.parametrize("seed", range(20))
def test_marks_are_the_same_however_the_log_is_cut_into_fetches(seed: int) -> None:
    chance = random.Random(seed)
    log, writing = Log(), set()
    for batch in range(60):
        producer = chance.randrange(4)
        if producer in writing:
            log.end(producer, chance.choice(["commit", "abort"]))
            writing.remove(producer)
        else:
            log.mark(producer, "q", producer, batch)
            writing.add(producer)
    whole = MarksView()
    whole.feed(memoryview(log.data))
    starts = [0]
    while starts[-1] < len(log.data):
        starts.append(starts[-1] + 12 + int.from_bytes(log.data[starts[-1] + 8 : starts[-1] + 12], "big"))
    pieces = MarksView()
    while pieces.position < log.offset:
        # A fetch may begin before what was asked for, has one whole batch at least, and may end within one.
        first = max(0, pieces.position - chance.randrange(3))
        end = starts[pieces.position + 1] + chance.randrange(400)
        pieces.feed(memoryview(log.data)[starts[first] : end])
    assert batches(pieces) == batches(whole)


@pytest.mark.promise(
    "spark sinks",
    "A mark of a finished task counts once its transaction is committed, whatever other transactions are "
    "open",
)
def test_the_reader_makes_its_topic_and_reads_on(penstock: PenstockBroker) -> None:
    settings = {"bootstrap.servers": penstock.bootstrap}
    reader = MarksReader(settings, "__penstock_marks")
    assert reader.read("q").settled == {}
    producers = ProducerSettings.from_kafka(settings, transactional=True)
    held = TaskProducer(producers, "held")
    held.take_over()
    held.send_mark("__penstock_marks", partition_of("q"), mark_key("q", 9), Mark(0, "r", 1, 0).encode())
    held.flush()
    for batch in range(3):
        for task in range(2):
            producer = TaskProducer(producers, f"q-{task}")
            producer.take_over()
            producer.send_mark(
                "__penstock_marks", partition_of("q"), mark_key("q", task), Mark(batch, "r", 1, 0).encode()
            )
            producer.commit()
        found = reader.read("q")
        assert {task: mark.batch for task, mark in found.settled.items()} == {0: batch, 1: batch}
        assert set(found.open) == {9}
    held.abandon()
    assert reader.read("q").open == {}
    assert MarksReader(settings, "__penstock_marks").read("q").settled == found.settled
    penstock.create_topic("small")
    with pytest.raises(BadOption, match="has 1 partitions and must have 8"):
        MarksReader(settings, "small").read("q")


@pytest.mark.promise(
    "spark sinks",
    "If two attempts of a task run, only the later one can commit; the other fails with a clear error",
)
def test_of_two_attempts_of_a_task_only_the_later_can_commit(penstock: PenstockBroker) -> None:
    penstock.create_topic("out")
    producers = ProducerSettings.from_kafka({"bootstrap.servers": penstock.bootstrap}, transactional=True)
    rows = Rows("out", BY_KEY, None, [b"x"], None, None, 1, 0)
    first, second = TaskProducer(producers, "t"), TaskProducer(producers, "t")
    first.take_over()
    first.send(rows)
    first.flush()
    second.take_over()
    second.send(rows)
    with pytest.raises(Fenced, match="another task has taken it over"):
        first.commit()
    second.commit()
    assert len(penstock.consume("out", isolation="read_committed")) == 1


# ---- tasks of a batch, run by run ----


class Query:
    """Runs of a query that writes letters, without Spark: tasks are called as Spark calls them."""

    def __init__(self, penstock: PenstockBroker, **options: str) -> None:
        penstock.create_topic("out")
        self._penstock = penstock
        self._parse(options)
        self._done: list[TaskDone] = []

    def _parse(self, options: dict[str, str]) -> None:
        given = {"kafka.bootstrap.servers": self._penstock.bootstrap, "topic": "out", **options}
        columns = StructType([StructField("value", StringType()), StructField("key", StringType())])
        self._options = sink.parse_sink_options(columns, given, streaming=True)

    def changed(self, **options: str) -> Query:
        """The same query with other options."""
        other = copy.copy(self)
        other._parse(options)
        other._done = []
        return other

    def task(self, run: str, index: int, letters: str, batch: int = 0) -> str:
        """A task with rows of these values; with spaces between them, each has its key before it."""
        keyed = letters.split() if letters[1:2].isdigit() else []
        values = [each[1] for each in keyed] or list(letters)
        keys = pa.array([each[0] for each in keyed] or [None] * len(values), pa.string())
        rows = [pa.record_batch({"value": pa.array(values, pa.string()), "key": keys})] if letters else []
        which = WhichBatch("q", batch, run)
        done = sink._write_exactly_once(iter(rows), self._options, which, index)
        self._done.append(done)
        return done.state

    def end(self) -> None:
        """What Spark does when all tasks have ended well."""
        done, self._done = self._done, []
        sink.settle(list(done), self._options)

    def crash(self) -> None:
        self._done = []

    def written(self) -> str:
        records = self._penstock.consume("out", isolation="read_committed")
        return "".join(sorted(record.value.decode() for record in records if record.value))


def test_tasks_of_a_new_batch_commit_at_once(penstock: PenstockBroker) -> None:
    query = Query(penstock)
    assert [query.task("r1", 0, "ab"), query.task("r1", 1, ""), query.task("r1", 2, "c")] == [
        "committed", "empty", "committed",
    ]  # fmt: skip
    query.end()
    assert query.task("r1", 0, "d", batch=1) == "committed"
    assert query.written() == "abcd"


def test_a_task_that_is_tried_again_in_one_run_writes_nothing(penstock: PenstockBroker) -> None:
    query = Query(penstock)
    assert query.task("r1", 0, "ab") == "committed"
    assert query.task("r1", 0, "ab") == "confirmed"
    assert query.written() == "ab"


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch that was written in part is completed; if it is split into other tasks it fails, and "
    "nothing is lost or duplicated",
)
def test_a_batch_written_in_part_is_completed_by_the_next_run(penstock: PenstockBroker) -> None:
    query = Query(penstock)
    query.task("r1", 1, "cd")
    query.crash()
    assert [query.task("r2", 0, "ab"), query.task("r2", 1, "cd"), query.task("r2", 2, "e")] == [
        "prepared", "confirmed", "prepared",
    ]  # fmt: skip
    assert query.written() == "cd"
    query.end()
    assert query.written() == "abcde"
    # Should Spark's note of it be lost, the batch is run once more.
    assert [query.task("r3", 0, "ab"), query.task("r3", 1, "cd"), query.task("r3", 2, "e")] == [
        "confirmed"
    ] * 3
    query.end()
    assert query.written() == "abcde"


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch that was written in part is completed; if it is split into other tasks it fails, and "
    "nothing is lost or duplicated",
)
def test_a_driver_that_dies_before_it_commits_what_is_prepared_loses_nothing(
    penstock: PenstockBroker,
) -> None:
    query = Query(penstock)
    query.task("r1", 1, "cd")
    query.crash()
    query.task("r2", 0, "ab")
    query.crash()
    assert [query.task("r3", 0, "ab"), query.task("r3", 1, "cd")] == ["prepared", "confirmed"]
    query.end()
    assert query.written() == "abcd"


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch that was written in part is completed; if it is split into other tasks it fails, and "
    "nothing is lost or duplicated",
)
def test_fewer_tasks_than_were_written_commit_nothing(penstock: PenstockBroker) -> None:
    query = Query(penstock)
    query.task("r1", 2, "ef")
    query.crash()
    query.task("r2", 0, "abc")
    query.task("r2", 1, "def")
    with pytest.raises(BatchChanged, match=r"its task\(s\) 2 had rows that no such task has now"):
        query.end()
    assert query.written() == "ef"
    # What it had before is still the way on.
    for index, letters in enumerate(("ab", "cd", "ef")):
        query.task("r3", index, letters)
    query.end()
    assert query.written() == "abcdef"


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch that was written in part is completed; if it is split into other tasks it fails, and "
    "nothing is lost or duplicated",
)
def test_other_rows_than_were_written_are_refused(penstock: PenstockBroker) -> None:
    query = Query(penstock)
    query.task("r1", 0, "abc")
    query.crash()
    for letters in ("ab", ""):
        with pytest.raises(BatchChanged, match=f"task 0 wrote 3 rows, and has {len(letters)} now"):
            query.task("r2", 0, letters)
    assert query.written() == "abc"


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch that was written in part is completed; if it is split into other tasks it fails, and "
    "nothing is lost or duplicated",
)
def test_as_many_rows_that_are_others_are_refused(penstock: PenstockBroker) -> None:
    """Rows that have moved from one task to another would be lost there, and doubled here."""
    query = Query(penstock)
    query.task("r1", 0, "abc")
    query.crash()
    assert query.task("r2", 0, "cab") == "confirmed", "a shuffle brings rows in any order"
    query.crash()
    with pytest.raises(BatchChanged, match="the 3 rows of task 0 are not those that it wrote"):
        query.task("r3", 0, "abd")
    assert query.written() == "abc"


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch that was written in part is completed; if it is split into other tasks it fails, and "
    "nothing is lost or duplicated",
)
@pytest.mark.parametrize(
    ("change", "same"),
    [({}, "whole"), ({"values": [b"other", b"2"]}, "keys"), ({"values": [b"1", b"other"]}, "nothing"),
     ({"keys": [b"b", None]}, "nothing"), ({"keys": [None, b"a"]}, "nothing"), ({"topic": "u"}, "nothing"),
     ({"partition": 1}, "nothing"), ({"keys": [None, b"a"], "values": [b"2", b"1"]}, "whole"),
     ({"keys": [b"a", b"b"]}, "nothing"), ({"values": [None, b"2"]}, "keys"),
     ({"values": [b"", b"2"]}, "keys"),
     ({"headers": [[("h", b"1")], []]}, "keys"), ({"timestamps": [5, None]}, "keys")],
)  # fmt: skip
def test_rows_are_known_by_their_keys_and_by_all_that_they_have(change: Any, same: str) -> None:
    rows = Rows("t", 0, [b"a", None], [b"1", b"2"], None, None, 1, 1)
    now, then = replace(rows, **change).identity(), rows.identity()
    assert (now.by_key == then.by_key) is (same != "nothing")
    assert (now.whole == then.whole) is (same == "whole")


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch that was written in part is completed; if it is split into other tasks it fails, and "
    "nothing is lost or duplicated",
)
@pytest.mark.parametrize("keyed", ["by one key", "by their own keys", "by no key"])
def test_rows_that_have_swapped_their_values_are_others(keyed: str) -> None:
    """Sums of CRCs of such rows are often the same."""
    chance = random.Random(1)
    for _ in range(20_000):
        one, two = sorted(chance.sample(range(1000), 2))
        bit = 1 << chance.randrange(8)
        was = [f"{one:04}".encode(), f"{two:04}".encode()]
        now = [f"{one ^ bit:04}".encode(), f"{two ^ bit:04}".encode()]
        if sorted(was) == sorted(now):
            continue
        keys = {"by one key": [b"k", b"k"], "by their own keys": [b"a", b"b"], "by no key": None}[keyed]
        then = Rows("t", 0, keys, list(was), None, None, 1, 1)
        assert then.identity().whole != replace(then, values=list(now)).identity().whole
        if keyed == "by their own keys":
            assert then.identity().whole != replace(then, values=was[::-1]).identity().whole
        else:
            assert then.identity().whole == replace(then, values=was[::-1]).identity().whole


def test_a_mark_of_an_earlier_version_is_compared_as_far_as_it_says() -> None:
    old = Mark.decode(b'{"batch":3,"run":"r","rows":2,"keyBytes":5}')
    assert old.same_rows(Mark(3, "s", 2, 5, 77, 78))
    assert not old.same_rows(Mark(3, "s", 2, 6, 77, 78))
    newer = Mark.decode(b'{"batch":3,"run":"r","rows":2,"keyBytes":5,"identity":77}')
    assert newer.same_rows(Mark(3, "s", 2, 5, 77, 78))
    assert not newer.same_rows(Mark(3, "s", 2, 5, 76, 78))
    for mark in (Mark(3, "r", 2, 5, 77), Mark(3, "r", 2, 5, 77, 78, "v")):
        assert Mark.decode(mark.encode()) == mark


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch that was written in part and now has other values fails, so that no micro-batch comes "
    "half from one version of a query and half from another",
)
def test_other_values_of_the_same_keys_are_refused(penstock: PenstockBroker) -> None:
    query = Query(penstock)
    query.task("r1", 0, "a1 b2")
    query.crash()
    assert query.task("r2", 1, "c3") == "prepared"
    with pytest.raises(BatchChanged, match="the 2 rows of task 0 have other values than those that it wrote"):
        query.task("r2", 0, "a7 b9")
    query.crash()
    assert query.written() == "12"
    # What it had before is still the way on.
    assert [query.task("r3", 0, "b2 a1"), query.task("r3", 1, "c3")] == ["confirmed", "prepared"]
    query.end()
    assert query.written() == "123"


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch that was written in part is completed; if it is split into other tasks it fails, and "
    "nothing is lost or duplicated",
)
def test_tasks_with_rows_of_one_key_are_known_by_their_values(penstock: PenstockBroker) -> None:
    """Cut otherwise, 3 would be doubled, and 2 lost."""
    query = Query(penstock)
    query.task("r1", 0, "k1 k2")
    query.crash()
    with pytest.raises(BatchChanged, match="other values"):
        query.task("r2", 0, "k1 k3")


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch that was written in part and now has other values fails, so that no micro-batch comes "
    "half from one version of a query and half from another",
)
@pytest.mark.parametrize("check", ["keys", "off"])
def test_where_values_are_not_compared_the_version_of_the_query_is(
    penstock: PenstockBroker, check: str
) -> None:
    query = Query(penstock, rerunCheck=check, queryVersion="one")
    query.task("r1", 0, "a1 b2")
    query.crash()
    assert query.task("r2", 0, "a7 b9") == "confirmed", "a sum of doubles depends on its order"
    query.crash()
    other = query.changed(rerunCheck=check, queryVersion="two")
    for index, rows in ((0, "a1 b2"), (1, "c3")):
        with pytest.raises(BatchChanged, match="another version of the query wrote task 0"):
            other.task("r3", index, rows)
    query.task("r4", 0, "a1 b2")
    query.task("r4", 1, "c3")
    query.end()
    assert query.written() == "123"
    assert other.task("r5", 0, "d4", batch=1) == "committed"


def test_what_does_not_fit_by_key_is_refused_by_key_too(penstock: PenstockBroker) -> None:
    query = Query(penstock, rerunCheck="keys")
    query.task("r1", 0, "a1 b2")
    query.crash()
    with pytest.raises(BatchChanged, match="the 2 rows of task 0 are not those that it wrote"):
        query.task("r2", 0, "a1 c2")


def test_without_the_check_marks_alone_decide(penstock: PenstockBroker) -> None:
    query = Query(penstock, rerunCheck="off")
    query.task("r1", 0, "abc")
    query.crash()
    assert [query.task("r2", 0, "xy"), query.task("r2", 1, "z")] == ["confirmed", "committed"]
    assert query.written() == "abcz"


def test_a_prepared_task_whose_transaction_is_gone_fails_its_batch(penstock: PenstockBroker) -> None:
    query = Query(penstock)
    query.task("r1", 1, "cd")
    query.crash()
    query.task("r2", 0, "ab")
    query.task("r2", 1, "cd")
    taken = TaskProducer(
        ProducerSettings.from_kafka({"bootstrap.servers": penstock.bootstrap}, transactional=True),
        "penstock-q-0",
    )
    taken.take_over()
    with pytest.raises(NotDelivered, match=r"the transactions of task\(s\) 0 have ended before their batch"):
        query.end()
    assert query.written() == "cd"


@pytest.mark.promise(
    "spark sinks",
    "If one transaction of such a micro-batch ended too early, the others count, and the next run writes "
    "only the rest",
)
def test_what_is_still_open_counts_although_another_transaction_has_ended_too_soon(
    penstock: PenstockBroker,
) -> None:
    """Else each run would write all of it again, and lose the same transaction to the timeout again."""
    query = Query(penstock)
    query.task("r1", 1, "cd")
    query.crash()
    for index, letters in enumerate(("ab", "cd", "ef", "gh")):
        query.task("r2", index, letters)
    for index in (0, 2):  # as the coordinator does when transaction.timeout.ms has passed
        taken = TaskProducer(
            ProducerSettings.from_kafka({"bootstrap.servers": penstock.bootstrap}, transactional=True),
            f"penstock-q-{index}",
        )
        taken.take_over()
    with pytest.raises(
        NotDelivered, match=r"the transactions of task\(s\) 0, 2 have ended before their batch"
    ):
        query.end()
    assert query.written() == "cdgh"
    assert [query.task("r3", index, letters) for index, letters in enumerate(("ab", "cd", "ef", "gh"))] == [
        "prepared", "confirmed", "prepared", "confirmed",
    ]  # fmt: skip
    query.end()
    assert query.written() == "abcdefgh"


@pytest.mark.promise("spark sinks", "A checkpoint that is older than what was written is rejected")
def test_a_task_of_an_earlier_batch_is_left_over(penstock: PenstockBroker) -> None:
    query = Query(penstock)
    query.task("r1", 0, "a", batch=1)
    with pytest.raises(BatchChanged, match="has written batch 1 already, and this is batch 0"):
        query.task("r0", 1, "z", batch=0)
    assert query.written() == "a"


@pytest.mark.promise(
    "spark sinks",
    "Batch writes without `txnAppId`, such as INSERT … VALUES, leave no marks that others have to read, "
    "and none for longer than a day",
)
def test_writes_without_a_name_leave_nothing_that_others_have_to_read(penstock: PenstockBroker) -> None:
    """Such as INSERT … VALUES: each would leave a mark forever, which every task of every query reads."""
    query = Query(penstock)
    assert query.task("r1", 0, "a") == "committed"
    given = {"kafka.bootstrap.servers": penstock.bootstrap, "topic": "out", "delivery": "exactly_once"}
    schema = StructType([StructField("value", StringType())])
    for number in range(3):
        writer = sink.batch_writer(schema, given, overwrite=False)
        which = WhichBatch(writer._run, 0, writer._run)
        for expected in ("committed", "confirmed"):  # a task that is tried again
            rows = iter([pa.record_batch({"value": pa.array([str(number)], pa.string())})])
            assert sink._write_exactly_once(rows, writer._options, which, 0).state == expected
        assert writer._options.marks_topic == "__penstock_marks_once"
    assert query.written() == "012a"
    assert [each.key for each in penstock.consume("__penstock_marks")] == [mark_key("q", 0)]
    admin = AdminClient({"bootstrap.servers": penstock.bootstrap})
    (asked,) = admin.describe_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, "__penstock_marks_once")]
    ).values()
    config = asked.result(30)
    assert (config["cleanup.policy"].value, config["retention.ms"].value) == ("delete", "86400000")


@pytest.mark.promise(
    "spark sinks",
    "Batch writes without `txnAppId`, such as INSERT … VALUES, leave no marks that others have to read, "
    "and none for longer than a day",
)
def test_a_write_without_a_name_reads_no_marks_of_others(penstock: PenstockBroker) -> None:
    settings = {"bootstrap.servers": penstock.bootstrap}
    reader = MarksReader(settings, "__penstock_marks_once")
    assert reader.end("q") == 0
    producer = TaskProducer(ProducerSettings.from_kafka(settings, transactional=True), "t")
    producer.take_over()
    place = "__penstock_marks_once", partition_of("q")
    producer.send_mark(*place, mark_key("q", 0), Mark(0, "r", 1, 0).encode())
    producer.commit()
    since = reader.end("q")
    assert since == 2, "a mark, and the end of its transaction"
    assert reader.read("q").settled.keys() == {0}
    assert reader.read("q", since).settled == {}


# ---- rows ----


def test_rows_are_split_by_topic_and_partition_in_their_order() -> None:
    batch = pa.record_batch(
        {
            "value": pa.array([b"0", b"1", b"2", b"3", None]),
            "topic": pa.array(["b", "a", "b", "a", "b"]),
            "partition": pa.array([1, None, 1, None, 0], pa.int32()),
            "key": pa.array(["k0", None, "k2", "k3", "k4"]),
        }
    )
    found = {(r.topic, r.partition): r for r in split(batch, Layout(value=0, topic=1, partition=2, key=3))}
    assert {place: rows.values for place, rows in found.items()} == {
        ("b", 1): [b"0", b"2"],
        ("a", BY_KEY): [b"1", b"3"],
        ("b", 0): [None],
    }
    assert found["a", BY_KEY].keys == [None, b"k3"]
    assert sum(rows.key_bytes for rows in found.values()) == 8


def test_a_null_topic_and_a_negative_partition_are_refused() -> None:
    batch = pa.record_batch({"value": pa.array([b"0"]), "topic": pa.array([None], pa.string())})
    with pytest.raises(BadRow, match="null topic"):
        list(split(batch, Layout(value=0, topic=1)))
    batch = pa.record_batch({"value": pa.array([b"0"]), "partition": pa.array([-1], pa.int32())})
    with pytest.raises(BadRow, match="partition -1"):
        list(split(batch, Layout(value=0, partition=1, fixed_topic="t")))


# ---- settings ----


def test_java_names_become_librdkafkas() -> None:
    assert translate(
        {
            "bootstrap.servers": "b:1",
            "delivery.timeout.ms": "1000",
            "max.request.size": "2000000",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
            ' username="u\\"x" password=\'p w;\';',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "ca.pem",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "me.pem",
            "ssl.endpoint.identification.algorithm": "",
            "metrics.num.samples": "2",
            "compression.type": "zstd",
        }
    ) == {
        "bootstrap.servers": "b:1",
        "message.timeout.ms": "1000",
        "message.max.bytes": "2000000",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": 'u"x',
        "sasl.password": "p w;",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "me.pem",
        "ssl.key.location": "me.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "compression.type": "zstd",
    }


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sasl.jaas.config": "Krb5LoginModule required;"}, "PlainLoginModule or Scram"),
        ({"sasl.jaas.config": "x.plain.PlainLoginModule required username=u;"}, "no username or no password"),
        ({"sasl.jaas.config": "plain.PlainLoginModule required username=u password=p;"}, "sasl.mechanism"),
        ({"ssl.truststore.location": "x.jks"}, "convert it"),
        ({"ssl.keystore.type": "JKS"}, "convert it"),
        ({"partitioner.class": "com.example.Mine"}, "column partition"),
        ({"key.serializer": "x"}, "use DataFrame operations"),
    ],
)  # fmt: skip
def test_what_librdkafka_cannot_do_is_refused(settings: dict[str, str], says: str) -> None:
    with pytest.raises(BadClientSetting, match=says):
        translate(settings)
    with pytest.raises(BadOption, match=says):
        ProducerSettings.from_kafka({"bootstrap.servers": "x:1", **settings}, transactional=False)


def test_a_broker_that_goes_away_in_a_transaction_does_not_break_it(penstock: PenstockBroker) -> None:
    penstock.create_topic("out")
    producers = ProducerSettings.from_kafka({"bootstrap.servers": penstock.bootstrap}, transactional=True)
    producer = TaskProducer(producers, "t")
    producer.take_over()
    producer.send(Rows("out", BY_KEY, None, [b"1"], None, None, 1, 0))
    producer.flush()
    penstock.kill()
    penstock.restart()
    producer.send(Rows("out", BY_KEY, None, [b"2"], None, None, 1, 0))
    producer.commit()
    assert [r.value for r in penstock.consume("out", isolation="read_committed")] == [b"1", b"2"]
