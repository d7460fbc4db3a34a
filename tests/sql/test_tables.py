"""FollowedTables in memory, followed from topics of a real broker; no Spark is started."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from penstock.sql.catalog.catalog import Relation
from penstock.sql.catalog.target_topic import topic_config
from penstock.sql.errors import Unavailable, Unknown
from penstock.sql.language.statements import Column
from penstock.sql.pull.materialized import NotInMemory
from penstock.sql.pull.plan import Pull
from penstock.sql.pull.tables import FollowedTables
from penstock.sql.settings import EngineSettings

pytestmark = pytest.mark.penstock(settings={"group.initial.rebalance.delay.ms": 0})


def table(topic, *columns, key=("k",), **fields):
    return Relation(topic, "table", topic, tuple(columns), key_columns=key, **fields)


COUNTS = table("counts", Column("k", "STRING"), Column("n", "BIGINT"))


@pytest.fixture
def tables(penstock) -> Iterator[FollowedTables]:
    made = FollowedTables(EngineSettings(penstock.bootstrap, None, ""))
    yield made
    made.stop()


def pull(*keys, conditions=(), limit=None):
    return Pull(tuple(key if isinstance(key, tuple) else (key,) for key in keys), conditions, True, (), limit)


def put(penstock, topic, *pairs, partition=0):
    records = [(key, None if value is None else json.dumps(value).encode()) for key, value in pairs]
    penstock.produce(topic, records, partition=partition)


def test_a_row_is_found_as_it_was_last_written(penstock, tables):
    penstock.create_topic("counts", partitions=2, config={"cleanup.policy": "compact"})
    put(penstock, "counts", (b"a", {"k": "a", "n": 1}), (b"a", {"k": "a", "n": 2}))
    put(penstock, "counts", (b"b", {"k": "b", "n": 9}), partition=1)
    assert tables.lookup(COUNTS, pull("a")) == [{"k": "a", "n": 2}]
    assert tables.lookup(COUNTS, pull("b", "a", "c")) == [{"k": "b", "n": 9}, {"k": "a", "n": 2}]
    assert tables.lookup(COUNTS, pull("b", "a", limit=1)) == [{"k": "b", "n": 9}]
    assert tables.lookup(COUNTS, pull("a", conditions=(lambda row: row["n"] > 2,))) == []


@pytest.mark.promise("sql", "A pull query sees all records committed before it, and no uncommitted ones")
def test_a_lookup_sees_all_that_was_committed_before_it_was_asked(penstock, tables):
    penstock.create_topic("counts", partitions=1)
    for number in range(50):
        put(penstock, "counts", (b"a", {"k": "a", "n": number}))
        assert tables.lookup(COUNTS, pull("a")) == [{"k": "a", "n": number}]
    put(penstock, "counts", (b"a", None))
    assert tables.lookup(COUNTS, pull("a")) == []


@pytest.mark.promise("sql", "A pull query sees all records committed before it, and no uncommitted ones")
def test_only_committed_records_are_seen(penstock, tables):
    penstock.create_topic("counts", partitions=1)
    producer = Producer({"bootstrap.servers": penstock.bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    for number, commit in ((1, True), (2, False), (3, True)):
        producer.begin_transaction()
        producer.produce("counts", json.dumps({"k": "a", "n": number}), "a", partition=0)
        producer.flush(30)
        seen = tables.lookup(COUNTS, pull("a"))
        assert seen == ([{"k": "a", "n": 1}] if number > 1 else []), (
            "what is open is not waited for, nor seen"
        )
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    assert tables.lookup(COUNTS, pull("a")) == [{"k": "a", "n": 3}]


def test_a_record_that_does_not_decode_leaves_the_row_as_it_was(penstock, tables):
    penstock.create_topic("counts", partitions=1)
    put(penstock, "counts", (b"a", {"k": "a", "n": 1}))
    penstock.produce("counts", [(b"a", b"{broken"), (None, b'{"k": "no key", "n": 1}')])
    assert tables.lookup(COUNTS, pull("a")) == [{"k": "a", "n": 1}]


def test_a_key_of_several_columns_and_windows(penstock, tables):
    windowed = table(
        "windows",
        *(Column("a", "STRING"), Column("b", "INT"), Column("n", "BIGINT")),
        *(Column("window_start", "TIMESTAMP"), Column("window_end", "TIMESTAMP")),
        key=("a", "b", "window_start", "window_end"),
    )
    penstock.create_topic("windows", partitions=1)
    for minute in (2, 0, 1):
        start, end = f"2024-01-01T00:0{minute}:00.000000Z", f"2024-01-01T00:0{minute + 1}:00.000000Z"
        row = {"a": "x", "b": 1, "n": minute, "window_start": start, "window_end": end}
        put(penstock, "windows", (json.dumps(["x", 1, start, end]).encode(), row))
    rows = tables.lookup(windowed, pull(("x", 1)))
    assert [row["n"] for row in rows] == [0, 1, 2], "in the order of the windows"
    assert tables.lookup(windowed, pull(("x", 2))) == []


@pytest.mark.parametrize("form", ["json", "csv", "string"])
def test_columns_of_the_key_are_read_from_it(penstock, tables, form):
    value = {"json": b'{"n": 5}', "csv": b"5", "string": b"5"}[form]
    kind = "STRING" if form == "string" else "BIGINT"
    told = table("keyed", Column("id", "INT", key=True), Column("n", kind), key=("id",), format=form)
    penstock.create_topic("keyed", partitions=1)
    penstock.produce("keyed", [(b"7", value), (b"x", value)])
    assert tables.lookup(told, pull(7)) == [{"n": "5" if form == "string" else 5, "id": 7}]


def test_two_tables_of_one_topic_and_a_topic_that_is_made_again(penstock, tables):
    penstock.create_topic("counts", partitions=1)
    put(penstock, "counts", (b"a", {"k": "a", "n": 1}))
    columns = (Column("k", "STRING"), Column("n", "DOUBLE"))
    other = Relation("other", "table", "counts", columns, key_columns=("k",))
    assert tables.lookup(COUNTS, pull("a")) == [{"k": "a", "n": 1}]
    put(penstock, "counts", (b"b", {"k": "b", "n": 1}))
    assert tables.lookup(other, pull("a")) == [{"k": "a", "n": 1.0}]
    assert tables.lookup(COUNTS, pull("b")) == [{"k": "b", "n": 1}]
    penstock.delete_topic("counts")
    with pytest.raises(Unknown):
        tables.lookup(COUNTS, pull("a"))
    penstock.create_topic("counts", partitions=1)
    assert tables.lookup(COUNTS, pull("a", "b")) == []
    put(penstock, "counts", (b"a", {"k": "a", "n": 3}))
    assert tables.lookup(COUNTS, pull("a", "b")) == [{"k": "a", "n": 3}]


@pytest.mark.promise("sql", "A pull query sees all records committed before it, and no uncommitted ones")
def test_many_threads_ask_for_many_keys_while_the_table_changes(penstock, tables):
    penstock.create_topic("counts", partitions=4)
    for partition in range(4):
        rows = [(f"{partition}-{at}".encode(), {"k": f"{partition}-{at}", "n": 0}) for at in range(2000)]
        put(penstock, "counts", *rows, partition=partition)
    wrong: list[object] = []

    def ask(partition: int) -> None:
        for at in range(100):
            found = tables.lookup(COUNTS, pull(f"{partition}-{at}"))
            if len(found) != 1 or found[0]["n"] > 5:
                wrong.append(found)

    threads = [threading.Thread(target=ask, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for number in range(1, 6):
        put(penstock, "counts", *[(f"0-{at}".encode(), {"k": f"0-{at}", "n": number}) for at in range(100)])
    for thread in threads:
        thread.join()
    assert not wrong
    assert tables.lookup(COUNTS, pull("0-99")) == [{"k": "0-99", "n": 5}]


def test_a_table_that_nobody_asks_for_is_let_go_and_read_again(penstock):
    now = [0.0]
    tables = FollowedTables(
        EngineSettings(penstock.bootstrap, None, ""), forget_seconds=60, clock=lambda: now[0]
    )
    try:
        penstock.create_topic("counts", partitions=1)
        put(penstock, "counts", (b"a", {"k": "a", "n": 1}))
        assert tables.lookup(COUNTS, pull("a")) == [{"k": "a", "n": 1}]
        assert tables.names == ["counts"]
        now[0] = 100.0
        gone = threading.Event()
        while tables.names:
            put(penstock, "counts", (b"z", {"k": "z", "n": 1}))
            gone.wait(0.05)
        assert tables.lookup(COUNTS, pull("a")) == [{"k": "a", "n": 1}]
    finally:
        tables.stop()


@pytest.mark.promise(
    "sql",
    "Table rows that were not updated within `retention` are deleted, and pull queries do not return them",
)
def test_a_row_that_retention_has_deleted_is_not_found(penstock):
    """Of a table that was made with `retention`: rows that were not written for so long are deleted."""
    made = FollowedTables(EngineSettings(penstock.bootstrap, None, ""), expire_seconds=0.0)
    try:
        penstock.create_topic("counts", config=topic_config("table", 3_600_000))
        put(penstock, "counts", (b"old", {"k": "old", "n": 1}), (b"kept", {"k": "kept", "n": 1}))
        assert len(made.lookup(COUNTS, pull("old", "kept"))) == 2
        penstock.clock.advance(seconds=1800)
        put(penstock, "counts", (b"kept", {"k": "kept", "n": 2}))
        penstock.clock.advance(seconds=1900)
        deadline = time.monotonic() + 60
        while found := made.lookup(COUNTS, pull("old")):
            assert time.monotonic() < deadline, found
            penstock.clock.advance(seconds=0)
        assert made.lookup(COUNTS, pull("kept")) == [{"k": "kept", "n": 2}]
    finally:
        made.stop()


def test_a_cluster_that_is_away_is_told(penstock):
    tables = FollowedTables(EngineSettings("127.0.0.1:1", None, ""))
    try:
        with pytest.raises(Unavailable):
            tables.lookup(COUNTS, pull("a"), timeout=0.5)
    finally:
        tables.stop()


def test_a_table_that_is_kept_in_delta_is_looked_up_in_its_files(penstock, tables, tmp_path):
    import pyarrow as pa
    from deltalake import write_deltalake

    columns = (Column("k", "STRING"), Column("n", "BIGINT"))
    kept = Relation("kept", "table", None, columns, key_columns=("k",), path=str(tmp_path / "t"))
    assert tables.lookup(kept, pull("a")) == []
    write_deltalake(tmp_path / "t", pa.table({"k": ["a", "b"], "n": [1, 2]}))
    assert tables.lookup(kept, pull("a", "b")) == [{"k": "a", "n": 1}, {"k": "b", "n": 2}]
    assert tables.names == ["kept"]
    tables.forget("KEPT")
    assert tables.names == []


@pytest.mark.promise(
    "sql", "A pull query that cannot be answered from memory with exactly Spark's result is run by Spark"
)
def test_what_spark_would_convert_is_left_to_spark(penstock, tables):
    penstock.create_topic("raw", partitions=1)
    told = table("raw", Column("n", "BIGINT"), key=("n",), format="string")
    with pytest.raises(NotInMemory):
        tables.lookup(told, pull(1))


@pytest.mark.parametrize("form", ["avro", "json_schema", "protobuf"])
def test_rows_are_decoded_by_the_registry_in_the_schema_they_are_read_with(sql_broker, sql_registry, form):
    from penstock.registry.client import RegistryClient, RegistrySettings, schema_body
    from penstock.registry.serdes import Encoder

    fields = [{"name": "k", "type": "string"}, {"name": "n", "type": "long"}]
    newer = [*fields, {"name": "extra", "type": "string", "default": ""}]
    text = {
        "avro": [json.dumps({"type": "record", "name": "R", "fields": each}) for each in (fields, newer)],
        "json_schema": [
            json.dumps(
                {
                    "type": "object",
                    "properties": {
                        name: {"type": kind} for name, kind in (("k", "string"), ("n", "integer"), *more)
                    },
                }
            )
            for more in ((), (("extra", "string"),))
        ],
        "protobuf": [
            f'syntax = "proto3"; message R {{ string k = 1; int64 n = 2; {more} }}'
            for more in ("", "string extra = 3;")
        ],
    }[form]
    topic, kind = f"rows-{form}", {"avro": "AVRO", "json_schema": "JSON", "protobuf": "PROTOBUF"}[form]
    sql_broker.create_topic(topic, partitions=1)
    settings = RegistrySettings(sql_registry.url)
    with RegistryClient(settings) as registry:
        registry.request("PUT", "config", f"{topic}-value", body={"compatibility": "NONE"})
        for at, schema in enumerate(text):
            body = schema_body(schema, kind)
            registry.register(f"{topic}-value", body)
            found = registry.look_up(f"{topic}-value", body)
            value = {"k": f"key{at}", "n": at} | ({"extra": "x"} if at else {})
            sql_broker.produce(topic, [(f"key{at}".encode(), Encoder(registry, found).encode(value))])
    told = table(topic, Column("k", "STRING"), Column("n", "BIGINT"), format=form, schemas={"value": 1})
    tables = FollowedTables(EngineSettings(sql_broker.bootstrap, sql_registry.url, ""))
    try:
        assert tables.lookup(told, pull("key0", "key1")) == [{"k": "key0", "n": 0}, {"k": "key1", "n": 1}]
    finally:
        tables.stop()


def test_partitions_that_are_added_are_read_too(penstock, tables):
    from confluent_kafka.admin import AdminClient, NewPartitions

    penstock.create_topic("counts", partitions=1)
    put(penstock, "counts", (b"a", {"k": "a", "n": 1}))
    assert tables.lookup(COUNTS, pull("a")) == [{"k": "a", "n": 1}]
    admin = AdminClient({"bootstrap.servers": penstock.bootstrap})
    admin.create_partitions([NewPartitions("counts", 3)])["counts"].result(30)
    put(penstock, "counts", (b"b", {"k": "b", "n": 2}), partition=2)
    assert tables.lookup(COUNTS, pull("a", "b")) == [{"k": "a", "n": 1}, {"k": "b", "n": 2}]


def test_threads_that_ask_for_a_table_first_at_the_same_time_all_get_an_answer(penstock, tables):
    penstock.create_topic("counts", partitions=1)
    put(penstock, "counts", (b"a", {"k": "a", "n": 1}))
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(tables.lookup(COUNTS, pull("a")))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[{"k": "a", "n": 1}]] * 8
