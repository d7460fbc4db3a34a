"""The source against a real PostgreSQL: snapshot, every kind of change, restarts of either side."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from penstock.connect.api import BadConfig, ConnectError, Header, SourceRecord

if TYPE_CHECKING:
    from tests.connect.postgres.server import Database, PostgresServer

pytest.importorskip("psycopg2")
from penstock.connect.connectors.postgres import PostgresConnector
from tests.connect.capture import Kept, changes, state
from tests.connect.postgres.running import Running, config_of

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text NOT NULL, price numeric(8,2))"


def slot_lsn(database: Database) -> int:
    [(lsn,)] = database.query(
        f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = '{database.name}'"
    )
    return int(lsn)


def ids(records: list[SourceRecord]) -> list[int]:
    return [record.key["id"] for record in records]


def test_a_snapshot_has_all_rows_in_debeziums_envelope(database: Database) -> None:
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'nail', 0.05), (2, 'nut', NULL)")
    with Running(database) as running:
        first, last = running.count(2)
    assert first.topic == "shop.public.items"
    assert first.key == {"id": 1} and first.key_schema is not None
    assert first.key_schema.name == "shop.public.items.Key"
    assert first.value_schema is not None and first.value_schema.name == "shop.public.items.Envelope"
    assert [field.name for field in first.value_schema.fields] == [
        "before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns",
    ]  # fmt: skip
    row = first.value_schema.field("after")
    assert row is not None and row.name == "shop.public.items.Value" and row.optional
    assert [(field.name, field.schema.optional) for field in row.fields] == [
        ("id", False), ("name", False), ("price", True),
    ]  # fmt: skip
    assert first.value["op"] == "r" and first.value["before"] is None
    assert {key: str(value) for key, value in first.value["after"].items()} == {
        "id": "1", "name": "nail", "price": "0.05",
    }  # fmt: skip
    source = first.value["source"]
    assert (source["connector"], source["name"], source["db"]) == ("postgresql", "shop", database.name)
    assert (source["schema"], source["table"], source["snapshot"]) == ("public", "items", "first")
    assert last.value["source"]["snapshot"] == "last" and last.value["after"]["price"] is None
    assert first.source_partition == {"server": "shop"}
    assert first.source_offset["snapshot"] == "INITIAL" and not first.source_offset["snapshot_completed"]
    assert last.source_offset["snapshot_completed"] and last.source_offset["last_snapshot_record"]


@pytest.mark.promise(
    "connect",
    "PostgreSQL: inserts, updates, deletes with tombstones, truncates, key changes, TOASTed values and "
    "table changes become records in Debezium's envelope",
)
def test_each_kind_of_change(database: Database) -> None:
    database.execute(ITEMS)
    with Running(database, skipped_operations="none") as running:
        running.streaming()
        database.execute(
            "INSERT INTO items VALUES (1, 'nail', 0.05)",
            "UPDATE items SET name = 'screw' WHERE id = 1",
            "UPDATE items SET id = 2 WHERE id = 1",
            "DELETE FROM items",
            "TRUNCATE items",
        )
        records = running.count(8)
    nail, screw = ({"id": 1, "name": name, "price": pytest.approx(0.05)} for name in ("nail", "screw"))
    only_key = {"name": "", "price": None}
    for record in records:  # decimals and floats do not compare approximately
        for part in ("before", "after"):
            row = record.value and record.value[part]
            if row and row["price"] is not None:
                row["price"] = float(row["price"])
    assert changes(records) == [
        ("c", None, nail),
        ("u", None, screw),
        ("d", {"id": 1, **only_key}, None),
        (None,),
        ("c", None, {**screw, "id": 2}),
        ("d", {"id": 2, **only_key}, None),
        (None,),
        ("t", None, None),
    ]
    assert [record.key for record in records] == [{"id": n} for n in (1, 1, 1, 1, 2, 2, 2)] + [None]
    assert records[2].headers == (Header("__debezium.newkey", {"id": 2}, records[2].key_schema),)
    assert records[4].headers == (Header("__debezium.oldkey", {"id": 1}, records[4].key_schema),)
    source = records[0].value["source"]
    assert source["snapshot"] == "false" and source["txId"] > 0 and source["lsn"] > 0
    assert abs(source["ts_ms"] - time.time() * 1000) < 600_000
    for record in records:
        assert {"lsn", "txId", "ts_usec", "lsn_proc", "lsn_commit"} <= set(record.source_offset)
        assert "snapshot" not in record.source_offset
    transactions = [record.value["source"]["txId"] for record in records if record.value]
    assert len(set(transactions)) == 5


def test_replica_identity_full_has_the_whole_row_before(database: Database) -> None:
    database.execute(ITEMS, "ALTER TABLE items REPLICA IDENTITY FULL")
    with Running(database, decimal_handling_mode="string", tombstones_on_delete="false") as running:
        running.streaming()
        database.execute(
            "INSERT INTO items VALUES (1, 'nail', 0.05)", "UPDATE items SET price = 1", "DELETE FROM items"
        )
        records = running.count(3)
    old, new = ({"id": 1, "name": "nail", "price": price} for price in ("0.05", "1.00"))
    assert changes(records) == [("c", None, old), ("u", old, new), ("d", new, None)]


@pytest.mark.promise(
    "connect",
    "PostgreSQL: inserts, updates, deletes with tombstones, truncates, key changes, TOASTed values and "
    "table changes become records in Debezium's envelope",
)
def test_a_toasted_value_that_did_not_change_is_a_placeholder_or_the_old_one(database: Database) -> None:
    large = "repeat('x', 100000)"
    for table in ("keyed", "whole"):
        database.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, n int, t text, b bytea, a text[], i int[])",
            f"ALTER TABLE {table} ALTER t SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL,"
            "ALTER a SET STORAGE EXTERNAL, ALTER i SET STORAGE EXTERNAL",
        )
    database.execute("ALTER TABLE whole REPLICA IDENTITY FULL")
    with Running(database) as running:
        running.streaming()
        for table in ("keyed", "whole"):
            database.execute(
                f"INSERT INTO {table} VALUES (1, 1, {large}, {large}::bytea, ARRAY[{large}], "
                "(SELECT array_agg(n) FROM generate_series(1, 5000) n))",
                f"UPDATE {table} SET n = 2",
            )
        created, keyed, _, whole = running.count(4)
    unavailable = "__debezium_unavailable_value"
    assert created.value["after"]["t"] == "x" * 100000
    assert keyed.value["after"] == {
        "id": 1, "n": 2, "t": unavailable, "b": unavailable.encode(), "a": [unavailable],
        "i": list(unavailable.encode()),
    }  # fmt: skip
    assert whole.value["after"]["n"] == 2 and whole.value["before"]["n"] == 1
    assert whole.value["after"]["t"] == "x" * 100000 and whole.value["after"]["i"] == list(range(1, 5001))


@pytest.mark.promise(
    "connect",
    "PostgreSQL: inserts, updates, deletes with tombstones, truncates, key changes, TOASTed values and "
    "table changes become records in Debezium's envelope",
)
def test_the_schema_of_a_table_may_change_while_it_is_captured(database: Database) -> None:
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'nail', 1)")
    with Running(database, decimal_handling_mode="string") as running:
        running.streaming()
        database.execute(
            "ALTER TABLE items ADD COLUMN stock int NOT NULL DEFAULT 5",
            "INSERT INTO items VALUES (2, 'nut', 2, 7)",
            "ALTER TABLE items DROP COLUMN price",
            "INSERT INTO items VALUES (3, 'bolt', 8)",
            "ALTER TABLE items RENAME COLUMN name TO title",
            "ALTER TABLE items ALTER COLUMN stock TYPE text USING stock::text",
            "UPDATE items SET stock = 'many' WHERE id = 3",
            "CREATE TABLE later (id int PRIMARY KEY)",
            "INSERT INTO later VALUES (1)",
            "INSERT INTO items VALUES (4, 'gone', 'x')",
            "DROP TABLE items",
        )
        # While nothing is read, so that the catalogue is ahead of the stream.
        records = running.count(6)
    assert changes(records[1:]) == [
        ("c", None, {"id": 2, "name": "nut", "price": "2.00", "stock": 7}),
        ("c", None, {"id": 3, "name": "bolt", "stock": 8}),
        ("u", None, {"id": 3, "title": "bolt", "stock": "many"}),
        ("c", None, {"id": 1}),
        ("c", None, {"id": 4, "title": "gone", "stock": "x"}),
    ]
    assert [record.topic for record in records[4:]] == ["shop.public.later", "shop.public.items"]
    assert [record.key for record in records[1:]] == [{"id": n} for n in (2, 3, 3, 1, 4)]


def test_a_null_of_the_past_in_a_column_that_is_required_now(database: Database) -> None:
    database.execute(ITEMS)
    with Running(database) as running:
        running.streaming()
        database.execute(
            "INSERT INTO items VALUES (1, 'nail', NULL)",
            "UPDATE items SET price = 1",
            "ALTER TABLE items ALTER price SET NOT NULL",
        )
        records = running.count(2)
    assert records[0].value["after"]["price"] is None  # and of its schema, as `running` checks


def test_only_the_tables_and_columns_of_the_lists_are_captured(database: Database) -> None:
    database.execute(
        ITEMS,
        "CREATE SCHEMA other",
        "CREATE TABLE other.items (id int PRIMARY KEY, secret text, shown text)",
        "CREATE TABLE other.more (id int PRIMARY KEY)",
        "INSERT INTO items VALUES (1, 'no', 1)",
        "INSERT INTO other.items VALUES (1, 'no', 'yes')",
        "INSERT INTO other.more VALUES (1)",
    )
    lists = {"table_include_list": r"other\.items, PUBLIC\.none", "column_exclude_list": r".*\.secret"}
    with Running(database, publication_autocreate_mode="filtered", **lists) as running:
        running.streaming()
        database.execute(
            "INSERT INTO other.more VALUES (2)",
            "INSERT INTO items VALUES (2, 'no', 1)",
            "INSERT INTO other.items VALUES (2, 'no', 'yes')",
        )
        records = running.count(2)
    assert changes(records) == [
        ("r", None, {"id": 1, "shown": "yes"}),
        ("c", None, {"id": 2, "shown": "yes"}),
    ]
    assert database.query("SELECT schemaname, tablename FROM pg_publication_tables") == [("other", "items")]


def test_a_table_without_a_key_has_records_without_one_and_no_tombstones(database: Database) -> None:
    database.execute(
        "CREATE TABLE log (line text)", "ALTER TABLE log REPLICA IDENTITY FULL",
        "INSERT INTO log SELECT n::text FROM generate_series(1, 25) n",
    )  # fmt: skip
    with Running(database, snapshot_fetch_size="10") as running:
        running.streaming()
        database.execute("DELETE FROM log WHERE line = '7'", "INSERT INTO log VALUES ('last')")
        records = running.count(27)
    assert {record.key for record in records} == {None}
    assert [record.value["after"]["line"] for record in records[:25]] == [str(n) for n in range(1, 26)]
    assert changes(records[25:]) == [("d", {"line": "7"}, None), ("c", None, {"line": "last"})]


def test_partitions_and_inherited_rows_are_read_once(database: Database) -> None:
    database.execute(
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)",
        "INSERT INTO parts VALUES (1), (11)",
        "INSERT INTO parent VALUES (100)",
        "INSERT INTO child VALUES (101)",
    )
    with Running(database) as running:
        running.streaming()
        database.execute("INSERT INTO parts VALUES (2)")
        apart = {(record.topic, record.key["id"]) for record in running.count(5)}
    assert apart == {
        ("shop.public.parts_low", 1), ("shop.public.parts_high", 11), ("shop.public.parts_low", 2),
        ("shop.public.parent", 100), ("shop.public.child", 101),
    }  # fmt: skip
    options = {
        "publication_name": "by_root",
        "publish_via_partition_root": "true",
        "slot_name": f"{database.name}r",
    }
    with Running(database, table_include_list=r"public\.parts.*", **options) as running:
        running.streaming()
        database.execute("INSERT INTO parts VALUES (3)")
        assert [(record.topic, record.key["id"]) for record in running.count(4)] == [
            ("shop.public.parts", n) for n in (1, 2, 11, 3)
        ]


@pytest.mark.promise(
    "connect",
    "PostgreSQL: the snapshot is consistent with the changes that follow, and continues after a restart",
)
def test_a_snapshot_is_consistent_with_the_changes_that_follow(database: Database) -> None:
    """Writers are busy all the time: each row is there once, and changes lead to what the table has."""
    database.execute(ITEMS, "INSERT INTO items SELECT n, 'old', 0 FROM generate_series(1, 2000) n")
    stop = threading.Event()

    def write() -> None:
        connection = database.connect()
        with connection.cursor() as cursor:
            number = 2000
            while not stop.is_set():
                number += 1
                cursor.execute("INSERT INTO items VALUES (%s, 'new', 0)", (number,))
                cursor.execute("UPDATE items SET price = price + 1 WHERE id = %s", (number % 2000 + 1,))
                if number % 3 == 0:
                    cursor.execute("DELETE FROM items WHERE id = %s", (number - 1000,))
            cursor.execute("INSERT INTO items VALUES (0, 'end', 0)")
        connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with Running(database, snapshot_fetch_size="100", decimal_handling_mode="double") as running:
            running.streaming()
            running.count(len(running.records) + 500)
            stop.set()
            records = running.until(lambda records: records[-1].key == {"id": 0})
    finally:
        stop.set()
        writer.join()
    snapshot = [record.key["id"] for record in records if record.value and record.value["op"] == "r"]
    assert len(snapshot) == len(set(snapshot)) >= 1000
    created = [record.key["id"] for record in records if record.value and record.value["op"] == "c"]
    assert len(created) == len(set(created)) and not set(created) & set(snapshot)
    rows = database.query("SELECT id, name, price::float8 FROM items")
    assert state(records) == {(row[0],): dict(zip(("id", "name", "price"), row)) for row in rows}


@pytest.mark.promise(
    "connect",
    "PostgreSQL: the snapshot is consistent with the changes that follow, and continues after a restart",
)
def test_a_snapshot_goes_on_after_a_restart_where_it_was_committed(database: Database) -> None:
    database.execute(
        "CREATE TABLE pairs (a text, b int, PRIMARY KEY (a, b))",
        "INSERT INTO pairs SELECT chr(65 + n / 10), n % 10 FROM generate_series(0, 99) n",
        "CREATE TABLE after (id int PRIMARY KEY)",
        "INSERT INTO after SELECT generate_series(1, 5)",
    )
    kept = Kept()
    with Running(database, kept, snapshot_fetch_size="15") as running:
        running.count(20)
        running.poll(commit=False)  # sent, but not committed: comes again
        begun = running.records
    assert len(begun) == 5 + 15 + 15
    database.execute(
        "INSERT INTO pairs VALUES ('A', 99)", "DELETE FROM pairs WHERE a = 'J' AND b = 9",
        "UPDATE pairs SET b = 50 WHERE a = 'J' AND b = 8",
    )  # fmt: skip
    with Running(database, kept, snapshot_fetch_size="15") as running:
        records = begun + running.until(lambda records: any(_moved(record) for record in records))
    read = [tuple(record.key.values()) for record in records if record.value and record.value["op"] == "r"]
    assert len(read) - len(set(read)) == 15
    rows = set(database.query("SELECT a, b FROM pairs")) | {(n,) for n in range(1, 6)}
    assert set(state(records)) == rows


def _moved(record: SourceRecord) -> bool:
    return record.key == {"a": "J", "b": 50} and record.value["op"] == "c"


@pytest.mark.promise(
    "connect",
    "PostgreSQL: restarts of the source at any point, and of the server, lose nothing and repeat only "
    "what was not committed",
)
@pytest.mark.parametrize("batch", ["1", "7", "2048"])
def test_a_restart_anywhere_loses_nothing_and_repeats_only_what_was_not_committed(
    database: Database, batch: str
) -> None:
    """Each restart is in the middle of a transaction; each second batch before it was not committed."""
    database.execute(ITEMS)
    kept = Kept()
    settings = {"max_batch_size": batch, "snapshot_mode": "no_data", "decimal_handling_mode": "string"}
    with Running(database, kept, **settings) as running:
        running.streaming()
    connection = database.connect()
    with connection.cursor() as cursor:
        for transaction in range(5):
            cursor.execute("BEGIN")
            for number in range(10):
                cursor.execute("INSERT INTO items VALUES (%s, 'x', 0)", (transaction * 10 + number,))
            cursor.execute("COMMIT")
    connection.close()
    committed: list[int] = []
    for attempt in range(200):
        with Running(database, kept, **settings) as running:
            running.until(bool)
            running.poll(commit=False) if attempt % 2 else None
            done = [record.key["id"] for record in running.records[: _committed(running)]]
        committed += done
        if committed[-1] == 49:
            break
    assert committed == list(range(50))


def _committed(running: Running) -> int:
    """How many records are up to the committed offset."""
    offsets = [dict(record.source_offset) for record in running.records]
    assert running.kept.last is not None
    return offsets.index(running.kept.last) + 1


def test_a_delete_and_its_tombstone_are_sent_again_together(database: Database) -> None:
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'nail', 1)")
    kept = Kept()
    with Running(database, kept, snapshot_mode="no_data") as running:
        running.streaming()
        database.execute("UPDATE items SET id = 2")
        records = running.count(3, commit=False)
        for number in (0, 1):  # committed up to the delete, or to the tombstone
            running.commit(records[number])
            with Running(database, Kept(), snapshot_mode="no_data") as _:
                pass
    with Running(database, kept, snapshot_mode="no_data") as again:
        assert changes(again.count(3)) == changes(records)


@pytest.mark.promise(
    "connect",
    "PostgreSQL: the replication slot advances only after the commit, and does not retain WAL while idle",
)
def test_the_slot_keeps_what_is_not_committed_and_releases_what_is(database: Database) -> None:
    database.execute(ITEMS)
    with Running(database) as running:
        running.streaming()
        database.execute("INSERT INTO items VALUES (1, 'nail', 1)")
        [record] = running.count(1, commit=False)
        lsn = record.value["source"]["lsn"]
        for _ in range(3):
            running.poll()
        assert slot_lsn(database) <= lsn
        running.commit(record)
        deadline = time.monotonic() + 30
        while slot_lsn(database) <= lsn:
            running.poll()
            assert time.monotonic() < deadline


@pytest.mark.promise(
    "connect",
    "PostgreSQL: the replication slot advances only after the commit, and does not retain WAL while idle",
)
def test_an_idle_slot_does_not_hold_wal_for_changes_of_others(database: Database) -> None:
    database.execute(ITEMS, "CREATE TABLE busy (id int)")
    with Running(database, table_include_list=r"public\.items", heartbeat_interval_ms="200") as running:
        running.streaming()
        database.execute("INSERT INTO busy SELECT generate_series(1, 1000)")
        [(written,)] = database.query("SELECT pg_current_wal_lsn() - '0/0'")
        deadline = time.monotonic() + 30
        while slot_lsn(database) < written:
            running.poll()
            assert time.monotonic() < deadline
        running.until(lambda records: records[-1].source_offset["lsn_commit"] >= written)
        heartbeat = running.records[-1]
    assert heartbeat.topic == "__debezium-heartbeat.shop" and heartbeat.key == {"serverName": "shop"}
    assert set(heartbeat.value) == {"ts_ms"}
    assert {record.topic for record in running.records} == {heartbeat.topic}


def test_heartbeats_run_the_action_query(database: Database) -> None:
    database.execute("CREATE TABLE beats (id serial PRIMARY KEY)")
    query = "INSERT INTO beats DEFAULT VALUES"
    with Running(database, heartbeat_interval_ms="10", heartbeat_action_query=query) as running:
        records = running.until(lambda records: any("beats" in record.topic for record in records))
    assert records[-1].topic in ("shop.public.beats", "__debezium-heartbeat.shop")


@pytest.mark.promise(
    "connect",
    "PostgreSQL: restarts of the source at any point, and of the server, lose nothing and repeat only "
    "what was not committed",
)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
def test_a_server_that_goes_away_and_comes_back_costs_nothing(
    database: Database, shared_postgres: PostgresServer, how: signal.Signals
) -> None:
    database.execute(ITEMS)
    with Running(database) as running:
        running.streaming()
        database.execute("INSERT INTO items SELECT n, 'before', 0 FROM generate_series(1, 100) n")
        running.count(100)
        shared_postgres.stop(how)
        try:
            deadline = time.monotonic() + 30
            while not running.errors:
                running.poll()
                assert time.monotonic() < deadline
            assert "127.0.0.1" in running.errors[-1] or database.name in running.errors[-1]
        finally:
            shared_postgres.start()
        database.execute("INSERT INTO items SELECT n, 'after', 0 FROM generate_series(101, 200) n")
        records = running.count(200)
        assert ids(records) == list(range(1, 201))


@pytest.mark.promise(
    "connect",
    "PostgreSQL: the snapshot is consistent with the changes that follow, and continues after a restart",
)
def test_a_snapshot_survives_a_server_that_restarts(
    database: Database, shared_postgres: PostgresServer
) -> None:
    database.execute(ITEMS, "INSERT INTO items SELECT n, 'x', 0 FROM generate_series(1, 100) n")
    with Running(database, snapshot_fetch_size="10") as running:
        running.count(30)
        shared_postgres.stop()
        shared_postgres.start()
        running.until(lambda records: len(set(ids(records))) == 100)
        running.streaming()
        database.execute("INSERT INTO items VALUES (101, 'x', 0)")
        records = running.until(lambda records: records[-1].key == {"id": 101})
    assert running.errors and ids(records) == list(range(1, 102))


@pytest.mark.promise(
    "connect",
    "PostgreSQL: restarts of the source at any point, and of the server, lose nothing and repeat only "
    "what was not committed",
)
def test_a_lost_connection_in_the_middle_of_a_transaction(database: Database) -> None:
    database.execute(ITEMS)
    with Running(database, max_batch_size="10") as running:
        running.streaming()
        # More than the sockets' buffers hold.
        database.execute("INSERT INTO items SELECT n, repeat('x', 20000), 0 FROM generate_series(1, 1000) n")
        ended = []
        for number in range(1, 6):
            running.count(number * 150)
            ended += database.query(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
                f"WHERE slot_name = '{database.name}'"
            )
        records = running.count(1000)
    assert ids(records) == list(range(1, 1001)) and ended.count((True,)) >= 2


def test_a_lost_slot_is_an_error_or_a_reason_for_a_new_snapshot(database: Database) -> None:
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'nail', 1)")
    kept = Kept()
    with Running(database, kept) as running:
        running.count(1)
        running.streaming()
    database.query(f"SELECT pg_drop_replication_slot('{database.name}')")
    with Running(database, kept) as running, pytest.raises(ConnectError, match="does not exist, but offsets"):
        running.poll()
    with Running(database, kept, snapshot_mode="when_needed") as running:
        assert ids(running.count(1)) == [1]


def test_snapshot_modes(database: Database) -> None:
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'nail', 1)")
    kept = Kept()
    for mode, expected in (("initial", ["r"]), ("initial", []), ("always", ["r"]), ("no_data", [])):
        with Running(database, kept, snapshot_mode=mode) as running:
            running.streaming()
            assert [record.value["op"] for record in running.records] == expected, mode
    with Running(database, snapshot_mode="initial_only", slot_name=f"{database.name}o") as running:
        running.count(1)
        database.execute("INSERT INTO items VALUES (2, 'nut', 1)")
        for _ in range(3):
            assert running.poll() == []


def test_logical_messages_are_records(database: Database) -> None:
    database.execute(ITEMS)
    kept = Kept()
    with Running(database, kept) as running:
        running.streaming()
        database.execute(
            "SELECT pg_logical_emit_message(false, 'audit', 'alone')",
            "SELECT pg_logical_emit_message(true, 'audit', 'within')",
        )
        first, second = running.count(2, commit=False)
    assert first.topic == "shop.message" and first.key == {"prefix": "audit"}
    assert (first.value["op"], first.value["message"]["content"]) == ("m", b"alone")
    assert second.value["message"]["content"] == b"within"
    kept.last = dict(first.source_offset)
    with Running(database, kept) as running:
        assert [record.value["message"]["content"] for record in running.count(1)] == [b"within"]


@pytest.mark.promise("connect", "PostgreSQL: invalid settings are rejected with an error that names them")
@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("database_port", "70000", "between 1 and 65535"),
        ("plugin_name", "wal2json", "one of: pgoutput"),
        ("slot_name", "Upper", "lower-case"),
        ("table_include_list", "(", "not a regular expression"),
        ("topic_prefix", "a b", "letters, digits"),
        ("skipped_operations", "x", "out of c, u, d, t, none"),
        ("snapshot_mode", "sometimes", "one of: always"),
    ],
)
def test_a_bad_setting_is_refused_by_name(database: Database, setting: str, value: str, words: str) -> None:
    name = setting.replace("_", ".")
    with pytest.raises(BadConfig) as refused:
        Running(database, **{setting: value})
    assert words in refused.value.problems[name][0] and name in refused.value.problems[name][0]


def test_what_the_server_does_not_allow_is_refused_by_name(database: Database) -> None:
    assert PostgresConnector.validate(config_of(database)) == {}
    database.execute("CREATE ROLE reader LOGIN")
    try:
        problems = PostgresConnector.validate(config_of(database, database_user="reader"))
        assert "REPLICATION" in problems["database.user"][0]
    finally:
        database.execute("DROP ROLE reader")
    problems = PostgresConnector.validate(config_of(database, database_dbname="nowhere"))
    assert 'database "nowhere" does not exist' in problems["database.hostname"][0]


def test_a_slot_or_publication_that_does_not_fit_is_named(database: Database) -> None:
    with Running(database, publication_autocreate_mode="disabled") as running:
        with pytest.raises(ConnectError, match="Publication 'dbz_publication' does not exist"):
            running.poll()
    database.query(f"SELECT pg_create_logical_replication_slot('{database.name}x', 'test_decoding')")
    with Running(database, slot_name=f"{database.name}x") as running:
        with pytest.raises(ConnectError, match="belongs to plugin 'test_decoding'"):
            running.poll()


def test_offsets_that_a_user_alters_are_checked(database: Database) -> None:
    config = config_of(database)
    assert PostgresConnector.alter_offsets(config, [({"server": "shop"}, {"lsn_commit": 5})])
    assert PostgresConnector.alter_offsets(config, [({"server": "shop"}, None)])
    with pytest.raises(ConnectError, match="source partition"):
        PostgresConnector.alter_offsets(config, [({"server": "else"}, None)])
    with pytest.raises(ConnectError, match="lsn_commit"):
        PostgresConnector.alter_offsets(config, [({"server": "shop"}, {"lsn": "far"})])
