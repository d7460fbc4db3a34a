"""The source against a real MariaDB: snapshot, every kind of change, restarts of either side."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pymysqlreplication")
from penstock.connect.api import BadConfig, ConnectError, Header, SourceRecord
from penstock.connect.connectors.mysql import MySqlConnector
from tests.connect.capture import Kept, changes, state
from tests.connect.mysql.conftest import BINLOG, Database, started
from tests.connect.mysql.running import Running, config_of

if TYPE_CHECKING:
    from tests.connect.sql.mariadb import MariaDb

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text NOT NULL, price decimal(8,2))"


def ids(records: list[SourceRecord]) -> list[int]:
    return [record.key["id"] for record in records]


def test_a_snapshot_has_all_rows_in_debeziums_envelope(database: Database) -> None:
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'nail', 0.05), (2, 'nut', NULL)")
    with Running(database) as running:
        first, last = running.count(2)
    name = f"shop.{database.name}.items"
    assert first.topic == name and first.key == {"id": 1}
    assert first.key_schema is not None and first.key_schema.name == f"{name}.Key"
    assert first.value_schema is not None and first.value_schema.name == f"{name}.Envelope"
    assert [field.name for field in first.value_schema.fields] == [
        "before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns",
    ]  # fmt: skip
    row = first.value_schema.field("after")
    assert row is not None and row.name == f"{name}.Value" and row.optional
    assert [(field.name, field.schema.optional) for field in row.fields] == [
        ("id", False), ("name", False), ("price", True),
    ]  # fmt: skip
    assert first.value["op"] == "r" and first.value["before"] is None
    assert {key: str(value) for key, value in first.value["after"].items()} == {
        "id": "1", "name": "nail", "price": "0.05",
    }  # fmt: skip
    source = first.value["source"]
    assert (source["connector"], source["name"], source["db"]) == ("mysql", "shop", database.name)
    assert (source["table"], source["snapshot"]) == ("items", "first")
    assert source["file"].startswith("mariadb-bin.") and source["pos"] > 0 and source["server_id"] == 1
    assert last.value["source"]["snapshot"] == "last" and last.value["after"]["price"] is None
    assert first.source_partition == {"server": "shop"}
    assert first.source_offset["snapshot"] and "snapshot" not in last.source_offset
    assert {"file", "pos", "gtids", "server_id", "ts_sec"} <= set(last.source_offset)


@pytest.mark.promise(
    "connect",
    "MySQL: inserts, updates, deletes with tombstones, truncates, key changes and table changes become "
    "records in Debezium's envelope",
)
def test_each_kind_of_change(database: Database) -> None:
    database.execute(ITEMS)
    with Running(database, skipped_operations="none", decimal_handling_mode="string") as running:
        running.streaming()
        database.execute(
            "INSERT INTO items VALUES (1, 'nail', 0.05)",
            "UPDATE items SET name = 'screw' WHERE id = 1",
            "UPDATE items SET id = 2 WHERE id = 1",
            "DELETE FROM items",
            "TRUNCATE items",
        )
        records = running.count(8)
    nail, screw = ({"id": 1, "name": name, "price": "0.05"} for name in ("nail", "screw"))
    moved = {**screw, "id": 2}
    assert changes(records) == [
        ("c", None, nail),
        ("u", nail, screw),
        ("d", screw, None),
        (None,),
        ("c", None, moved),
        ("d", moved, None),
        (None,),
        ("t", None, None),
    ]
    assert [record.key for record in records] == [{"id": n} for n in (1, 1, 1, 1, 2, 2, 2)] + [None]
    assert records[2].headers == (Header("__debezium.newkey", {"id": 2}, records[2].key_schema),)
    assert records[4].headers == (Header("__debezium.oldkey", {"id": 1}, records[4].key_schema),)
    sources = [record.value["source"] for record in records if record.value]
    assert {source["snapshot"] for source in sources} == {"false"}
    assert len({source["gtid"] for source in sources}) == 5
    assert all(source["ts_ms"] > 0 and source["pos"] > 0 for source in sources)
    for record in records:
        assert "snapshot" not in record.source_offset and record.source_offset["gtids"]


@pytest.mark.promise(
    "connect",
    "MySQL: inserts, updates, deletes with tombstones, truncates, key changes and table changes become "
    "records in Debezium's envelope",
)
def test_the_schema_of_a_table_may_change_while_it_is_captured(database: Database) -> None:
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'nail', 1)")
    settings = {"decimal_handling_mode": "string", "include_schema_changes": "true"}
    with Running(database, **settings) as running:
        running.streaming()
        database.execute(
            "ALTER TABLE items ADD COLUMN stock int NOT NULL DEFAULT 5",
            "INSERT INTO items VALUES (2, 'nut', 2, 7)",
            "ALTER TABLE items DROP COLUMN price",
            "INSERT INTO items VALUES (3, 'bolt', 8)",
            "ALTER TABLE items CHANGE COLUMN name title text, MODIFY COLUMN stock text FIRST",
            "UPDATE items SET stock = 'many' WHERE id = 3",
            "CREATE TABLE later (id int PRIMARY KEY)",
            "INSERT INTO later VALUES (1)",
            "INSERT INTO items VALUES ('x', 4, 'gone')",
            "DROP TABLE items",
        )
        # While nothing is read, so that the catalogue is ahead of the stream.
        records = running.count(11)
    rows = [record for record in records if record.topic != "shop"]
    assert changes(rows[1:]) == [
        ("c", None, {"id": 2, "name": "nut", "price": "2.00", "stock": 7}),
        ("c", None, {"id": 3, "name": "bolt", "stock": 8}),
        ("u", {"stock": "8", "id": 3, "title": "bolt"}, {"stock": "many", "id": 3, "title": "bolt"}),
        ("c", None, {"id": 1}),
        ("c", None, {"stock": "x", "id": 4, "title": "gone"}),
    ]
    assert [record.key for record in rows[1:]] == [{"id": n} for n in (2, 3, 3, 1, 4)]
    statements = [record for record in records if record.topic == "shop"]
    assert [record.value["ddl"].split()[:2] for record in statements] == [
        ["ALTER", "TABLE"], ["ALTER", "TABLE"], ["ALTER", "TABLE"], ["CREATE", "TABLE"], ["DROP", "TABLE"],
    ]  # fmt: skip
    first = statements[0]
    assert first.key == {"databaseName": database.name} and first.value["databaseName"] == database.name
    assert first.value["tableChanges"] == [{"type": "ALTER", "id": f'"{database.name}"."items"'}]


def test_only_the_tables_and_columns_of_the_lists_are_captured(database: Database) -> None:
    database.execute(
        ITEMS,
        "CREATE TABLE users (id int PRIMARY KEY, secret text, shown text)",
        "INSERT INTO items VALUES (1, 'no', 1)",
        "INSERT INTO users VALUES (1, 'no', 'yes')",
    )
    lists = {"table_include_list": rf"{database.name}\.USERS", "column_exclude_list": r".*\.secret"}
    with Running(database, **lists) as running:
        running.streaming()
        database.execute("INSERT INTO items VALUES (2, 'no', 1)", "INSERT INTO users VALUES (2, 'no', 'yes')")
        records = running.count(2)
    assert changes(records) == [
        ("r", None, {"id": 1, "shown": "yes"}),
        ("c", None, {"id": 2, "shown": "yes"}),
    ]


def test_a_table_without_a_key_has_records_without_one_and_no_tombstones(database: Database) -> None:
    rows = ", ".join(f"('{n}')" for n in range(1, 26))
    database.execute("CREATE TABLE log (line text)", f"INSERT INTO log VALUES {rows}")
    with Running(database, snapshot_fetch_size="10") as running:
        running.streaming()
        database.execute("DELETE FROM log WHERE line = '7'", "INSERT INTO log VALUES ('last')")
        records = running.count(27)
    assert {record.key for record in records} == {None}
    assert [record.value["after"]["line"] for record in records[:25]] == [str(n) for n in range(1, 26)]
    assert changes(records[25:]) == [("d", {"line": "7"}, None), ("c", None, {"line": "last"})]


KEYS = [
    ("a bigint unsigned", "18446744073709551610 + {n}", "PRIMARY KEY (a)", 5),
    ("a varchar(20), b int", "'it''s {n}', {n}", "PRIMARY KEY (a, b)", 12),
    ("a int, b int", "{n} DIV 4, {n}", "PRIMARY KEY (a, b)", 12),
    ("a binary(3)", "x'00{n:02}'", "PRIMARY KEY (a)", 12),
    ("a decimal(10,2)", "{n} / 4", "PRIMARY KEY (a)", 12),
    ("a datetime(3)", "'2020-01-01 00:00:00.{n:03}'", "PRIMARY KEY (a)", 12),
    ("a time(2)", "'-10:00:00.{n:02}'", "PRIMARY KEY (a)", 12),
    ("a uuid", "'123e4567-e89b-12d3-a456-4266554400{n:02}'", "PRIMARY KEY (a)", 12),
]


@pytest.mark.parametrize(("columns", "values", "key", "count"), KEYS, ids=[each[0] for each in KEYS])
def test_a_snapshot_in_chunks_continues_by_any_key(
    database: Database, columns: str, values: str, key: str, count: int
) -> None:
    rows = ", ".join(f"({values.format(n=n)})" for n in range(count))
    database.execute(f"CREATE TABLE chunked ({columns}, {key})", f"INSERT INTO chunked VALUES {rows}")
    kept = Kept()
    found: list[Any] = []
    for _ in range(20):  # each task reads a chunk, and is then replaced
        with Running(database, kept, snapshot_fetch_size="2") as running:
            records = running.poll()
            found += [tuple(record.key.values()) for record in records]
            if not records or "snapshot" not in records[-1].source_offset:
                break
    assert len(found) == len(set(found)) == count


@pytest.mark.parametrize(("column", "value"), [("enum('z','y','x')", "seq"), ("double", "seq / 3")])
def test_a_table_whose_key_has_no_order_of_literals_is_read_whole(
    database: Database, column: str, value: str
) -> None:
    database.execute(
        f"CREATE TABLE whole (a {column} PRIMARY KEY)", f"INSERT INTO whole SELECT {value} FROM seq_1_to_3"
    )
    with Running(database, snapshot_fetch_size="2") as running:
        assert len({record.key["a"] for record in running.count(3)}) == 3


@pytest.mark.promise(
    "connect", "MySQL: the snapshot is consistent with the changes that follow, and continues after a restart"
)
def test_a_snapshot_is_consistent_with_the_changes_that_follow(database: Database) -> None:
    """Writers are busy all the time: each row is there once, and changes lead to what the table has."""
    database.execute(ITEMS, "INSERT INTO items SELECT seq, 'old', 0 FROM seq_1_to_2000")
    stop = threading.Event()

    def write() -> None:
        connection = database.server.connect(database.name)
        with connection.cursor() as cursor:
            number = 2000
            while not stop.is_set():
                number += 1
                cursor.execute(f"INSERT INTO items VALUES ({number}, 'new', 0)")
                cursor.execute(f"UPDATE items SET price = price + 1 WHERE id = {number % 2000 + 1}")
                if number % 3 == 0:
                    cursor.execute(f"DELETE FROM items WHERE id = {number - 1000}")
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
    rows = database.query("SELECT id, name, price + 0e0 FROM items")
    assert state(records) == {(row[0],): dict(zip(("id", "name", "price"), row)) for row in rows}


@pytest.mark.promise(
    "connect", "MySQL: the snapshot is consistent with the changes that follow, and continues after a restart"
)
def test_a_snapshot_continues_after_a_restart_with_the_changes_meanwhile(database: Database) -> None:
    database.execute(ITEMS, "INSERT INTO items SELECT seq, 'old', 0 FROM seq_1_to_100")
    kept = Kept()
    with Running(database, kept, snapshot_fetch_size="30") as running:
        before = running.count(60)
    database.execute("UPDATE items SET name = 'new' WHERE id <= 10", "DELETE FROM items WHERE id = 100")
    with Running(database, kept, snapshot_fetch_size="30") as running:
        after = running.until(lambda records: any(record.value is None for record in records))
    read = [record for record in before + after if record.value and record.value["op"] == "r"]
    assert ids(read) == list(range(1, 100))
    assert {row["name"] for row in state(before + after).values()} == {"old", "new"}
    assert [ids([record]) for record in after if record.value and record.value["op"] == "u"] == [
        [n] for n in range(1, 11)
    ]


@pytest.mark.promise(
    "connect",
    "MySQL: restarts of the source at any point, and of the server, lose nothing and repeat only what "
    "was not committed",
)
@pytest.mark.parametrize("batch", ["1", "7", "2048"])
def test_a_restart_inside_a_transaction_sends_the_rest_of_it(database: Database, batch: str) -> None:
    """Large enough for several row events, in two tables; updates of keys are three records each."""
    database.execute(ITEMS, "CREATE TABLE other (id int PRIMARY KEY)")
    kept = Kept()
    with Running(database, kept, max_batch_size=batch) as running:
        running.streaming()
        database.execute(
            "BEGIN",
            "INSERT INTO items SELECT seq, repeat('x', 1000), 0 FROM seq_1_to_30",
            "INSERT INTO other SELECT seq FROM seq_1_to_10",
            "UPDATE items SET id = id + 100 WHERE id <= 5",
            "DELETE FROM items WHERE id > 20 AND id < 30",
            "COMMIT",
        )
        found = list(running.poll())
        while not found:
            found = list(running.poll())
    total = 30 + 10 + 5 * 3 + 9 * 2
    restarts = 0
    while len(found) < total:
        with Running(database, kept, max_batch_size=batch) as running:
            while not (records := running.poll()):
                pass
            found += records
            restarts += 1
    assert len(found) == total and (batch == "2048" or restarts > 0)
    shown = [(record.topic[-5:], *record.key.values()) for record in found]
    assert shown[:40] == [("items", n) for n in range(1, 31)] + [("other", n) for n in range(1, 11)]
    with Running(database, kept) as running:
        database.execute("INSERT INTO other VALUES (99)")
        assert ids(running.count(1)) == [99]


@pytest.mark.promise(
    "connect",
    "MySQL: restarts of the source at any point, and of the server, lose nothing and repeat only what "
    "was not committed",
)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_restarts_is_read_again_without_a_gap(
    database: Database, binlog_mariadb: MariaDb, how: signal.Signals
) -> None:
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'before', 0)")
    with Running(database) as running:
        running.streaming()
        database.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1", "SET GLOBAL sync_binlog = 1")
        database.execute("INSERT INTO items VALUES (2, 'change', 0)")
        running.count(2)
        database.execute("INSERT INTO items VALUES (3, 'not read', 0)")
        binlog_mariadb.stop(how)
        while not running.errors:
            running.poll()
        binlog_mariadb.start()
        # Numbers of tables begin again, with other tables.
        database.execute("CREATE TABLE other (id int PRIMARY KEY, x int, y int)")
        database.execute("INSERT INTO other VALUES (1, 2, 3)", "INSERT INTO items VALUES (4, 'after', 0)")
        records = running.until(lambda records: records[-1].key == {"id": 4})
    assert "MySQL 127.0.0.1" in " ".join(running.errors) or "interrupted" in " ".join(running.errors)
    assert [(record.topic.rpartition(".")[2], record.key["id"]) for record in records] == [
        ("items", 1), ("items", 2), ("items", 3), ("other", 1), ("items", 4),
    ]  # fmt: skip


def test_a_crash_of_the_server_while_the_source_is_away_does_not_mix_up_tables(
    database: Database, binlog_mariadb: MariaDb
) -> None:
    """The file before the crash has no end, and the numbers of tables begin again in the next one."""
    kept = Kept()
    database.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1", "SET GLOBAL sync_binlog = 1")
    database.execute(
        "CREATE TABLE one (id int PRIMARY KEY, a int)", "CREATE TABLE two (x text, id int PRIMARY KEY)"
    )
    with Running(database, kept, heartbeat_interval_ms="1") as running:
        running.count(1)
    for number, tables in enumerate((("one", "two"), ("two", "one"))):
        binlog_mariadb.stop(signal.SIGKILL)
        binlog_mariadb.start()
        for table in tables:
            values = f"{number}, 3" if table == "one" else f"'t', {number}"
            database.execute(f"INSERT INTO {table} VALUES ({values})")
    with Running(database, kept) as running:
        records = running.count(4)
    assert [(record.topic.rpartition(".")[2], record.value["after"]) for record in records] == [
        ("one", {"id": 0, "a": 3}), ("two", {"x": "t", "id": 0}),
        ("two", {"x": "t", "id": 1}), ("one", {"id": 1, "a": 3}),
    ]  # fmt: skip


def test_the_binlog_may_rotate_and_others_may_write(database: Database) -> None:
    database.execute(ITEMS)
    with Running(
        database, heartbeat_interval_ms="1", table_include_list=rf"{database.name}\.items"
    ) as running:
        running.streaming()
        database.execute(
            "INSERT INTO items VALUES (1, 'a', 0)",
            "FLUSH BINARY LOGS",
            "CREATE TABLE noise (id int PRIMARY KEY)",
            "INSERT INTO noise SELECT seq FROM seq_1_to_1000",
            "FLUSH BINARY LOGS",
            "INSERT INTO items VALUES (2, 'b', 0)",
        )
        running.until(lambda records: any(record.key == {"id": 2} for record in records))
        [(file, end)] = [row[:2] for row in database.query("SHOW MASTER STATUS")]
        beat = running.until(
            lambda records: (
                (records[-1].source_offset["file"], records[-1].source_offset["pos"]) == (file, end)
            )
        )[-1]
    assert beat.topic == "__debezium-heartbeat.shop" and beat.key == {"serverName": "shop"}


def test_a_heartbeat_runs_its_statement(database: Database) -> None:
    database.execute("CREATE TABLE beats (id int PRIMARY KEY AUTO_INCREMENT)")
    statement = f"INSERT INTO {database.name}.beats VALUES ()"
    with Running(database, heartbeat_interval_ms="100", heartbeat_action_query=statement) as running:
        running.until(lambda records: any(record.topic.endswith(".beats") for record in records))


@pytest.mark.promise(
    "connect",
    "MySQL: restarts of the source at any point, and of the server, lose nothing and repeat only what "
    "was not committed",
)
def test_binlog_that_was_purged_is_an_error_or_leads_to_a_new_snapshot(database: Database) -> None:
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'a', 0)")
    kept = Kept()
    with Running(database, kept) as running:
        running.count(1)
    database.execute("FLUSH BINARY LOGS", "INSERT INTO items VALUES (2, 'lost', 0)")
    [(file, _)] = [row[:2] for row in database.query("SHOW MASTER STATUS")]
    # The server keeps a file for as long as the connection that read it lives.
    deadline = time.monotonic() + 60
    while database.query("SHOW BINARY LOGS")[0][0] != file:
        assert time.monotonic() < deadline, "the binlog is not purged"
        database.execute(f"PURGE BINARY LOGS TO '{file}'")
        time.sleep(0.05)
    with Running(database, kept) as running, pytest.raises(ConnectError, match="no binlog file"):
        running.poll()
    with Running(database, kept, snapshot_mode="when_needed") as running:
        assert ids(running.count(2)) == [1, 2]


def test_modes_of_the_snapshot(database: Database) -> None:
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'a', 0)")
    with Running(database, snapshot_mode="no_data") as running:
        running.streaming()
        database.execute("INSERT INTO items VALUES (2, 'b', 0)")
        assert ids(running.count(1)) == [2]
    kept = Kept()
    with Running(database, kept, snapshot_mode="initial_only") as running:
        running.count(2)
        database.execute("INSERT INTO items VALUES (3, 'c', 0)")
        assert running.poll() == [] and running.poll() == []
    with Running(database, kept, snapshot_mode="always") as running:
        assert ids(running.count(3)) == [1, 2, 3]
        running.streaming()
        database.execute("INSERT INTO items VALUES (4, 'd', 0)")
        assert ids(running.count(4))[3:] == [4]


@pytest.fixture(scope="module")
def replica(binlog_mariadb: MariaDb) -> Iterator[MariaDb]:
    """Replicates the shared server by GTID, with other file names and positions."""
    for server in started(*BINLOG[1:-2], "--log-bin=copy-bin", "--server-id=2", "--log-slave-updates",
                          "--character-set-server=utf8mb4"):  # fmt: skip
        primary = binlog_mariadb.connect().cursor()
        primary.execute("CREATE USER IF NOT EXISTS copier@'127.0.0.1' IDENTIFIED BY 'copy'")
        primary.execute("GRANT REPLICATION SLAVE ON *.* TO copier@'127.0.0.1'")
        primary.execute("SELECT @@gtid_binlog_pos")
        [gtids] = primary.fetchone()
        cursor = server.connect().cursor()
        cursor.execute(f"SET GLOBAL gtid_slave_pos = '{gtids}'")
        cursor.execute(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {binlog_mariadb.port}, "
            "MASTER_USER = 'copier', MASTER_PASSWORD = 'copy', MASTER_USE_GTID = slave_pos"
        )
        cursor.execute("START SLAVE")
        yield server


@pytest.mark.promise(
    "connect", "MySQL: after a failover to a replica of MariaDB, reading continues on the replica by GTID"
)
def test_reading_continues_on_a_replica_by_gtid(replica: MariaDb, binlog_mariadb: MariaDb) -> None:
    cursor = binlog_mariadb.connect().cursor()
    cursor.execute("CREATE DATABASE failover")
    cursor.execute("USE failover")
    cursor.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    cursor.execute("INSERT INTO items SELECT seq, 'a' FROM seq_1_to_10")
    kept = Kept()
    primary = Database(binlog_mariadb, "failover")
    with Running(primary, kept) as running:
        running.count(10)
        running.streaming()
        cursor.execute("INSERT INTO items SELECT seq, repeat('b', 3000) FROM seq_11_to_20")
        running.count(15, commit=False)
        # Inside the transaction: five of its rows are sent.
        running.commit(running.records[14])
    cursor.execute("INSERT INTO items VALUES (21, 'c')")
    cursor.execute("SELECT @@gtid_binlog_pos")
    [gtids] = cursor.fetchone()
    copy = Database(replica, "failover")
    copy.query(f"SELECT MASTER_GTID_WAIT('{gtids}', 60)")
    with Running(copy, kept) as running:
        assert ids(running.count(6)) == list(range(16, 22))
    copy.execute("FLUSH BINARY LOGS", "INSERT INTO items VALUES (22, 'd')")
    with Running(copy, kept) as running:
        assert ids(running.count(1)) == [22]
        assert running.records[0].source_offset["file"].startswith("copy-bin.")
        assert running.records[0].source_offset["server_id"] == 2


@pytest.mark.promise("connect", "MySQL: invalid settings are rejected with an error that names them")
@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("database_port", "70000", "between 1 and 65535"),
        ("database_server_id", "0", "between 1 and"),
        ("table_include_list", "(", "not a regular expression"),
        ("topic_prefix", "a b", "letters, digits"),
        ("skipped_operations", "x", "out of c, u, d, t, none"),
        ("snapshot_mode", "sometimes", "one of: always"),
        ("database_exclude_list", "x", "use one of them"),
        ("database_ssl_cert", "/x", "set together"),
    ],
)
def test_a_bad_setting_is_refused_by_name(database: Database, setting: str, value: str, words: str) -> None:
    name = setting.replace("_", ".")
    with pytest.raises(BadConfig) as refused:
        Running(database, **{setting: value})
    assert words in refused.value.problems[name][0] and name in refused.value.problems[name][0]


@pytest.mark.promise("connect", "MySQL: invalid settings are rejected with an error that names them")
def test_what_the_server_does_not_allow_is_refused_by_name(
    database: Database, binlog_mariadb: MariaDb
) -> None:
    assert MySqlConnector.validate(config_of(database)) == {}
    cursor = binlog_mariadb.connect().cursor()
    cursor.execute("CREATE USER reader@'127.0.0.1'")
    try:
        problems = MySqlConnector.validate(config_of(database, database_user="reader"))
        assert "REPLICATION SLAVE" in problems["database.user"][0]
        cursor.execute("GRANT REPLICATION SLAVE ON *.* TO reader@'127.0.0.1'")
        problems = MySqlConnector.validate(config_of(database, database_user="reader"))
        assert "REPLICATION CLIENT" in problems["database.user"][0]
    finally:
        cursor.execute("DROP USER reader@'127.0.0.1'")
    problems = MySqlConnector.validate(config_of(database, database_user="nobody", database_password="x"))
    assert "Access denied" in problems["database.hostname"][0]
    for name, value, back in (
        ("binlog_row_metadata", "MINIMAL", "FULL"),
        ("binlog_format", "MIXED", "ROW"),
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("log_bin_compress", "ON", "OFF"),
    ):
        cursor.execute(f"SET GLOBAL {name} = '{value}'")
        try:
            [problem] = MySqlConnector.validate(config_of(database))["database.hostname"]
            assert f"{name}={value}" in problem and f"SET GLOBAL {name} = {back}" in problem
        finally:
            cursor.execute(f"SET GLOBAL {name} = '{back}'")


@pytest.mark.parametrize(
    ("sessions", "words"),
    [
        (["SET SESSION binlog_format = STATEMENT"], "instead of its rows. Set binlog_format=ROW"),
        (["SET SESSION binlog_row_image = MINIMAL"], "binlog_row_image=FULL"),
    ],
)
def test_changes_that_the_binlog_does_not_have_stop_the_task_instead_of_being_lost(
    database: Database, sessions: list[str], words: str
) -> None:
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'a', 0)")
    with Running(database) as running:
        running.streaming()
        database.execute(
            "INSERT INTO items VALUES (2, 'sent before', 0)", *sessions, "UPDATE items SET price = 1"
        )
        with pytest.raises(ConnectError, match=words):
            running.count(3)
        assert ids(running.records) == [1, 2]


@pytest.mark.parametrize(
    ("variable", "value", "back"),
    [("binlog_row_metadata", "NO_LOG", "FULL"), ("log_bin_compress", "ON", "OFF")],
)
def test_a_binlog_that_cannot_be_read_stops_the_task(
    database: Database, binlog_mariadb: MariaDb, variable: str, value: str, back: str
) -> None:
    database.execute(ITEMS, "SET GLOBAL log_bin_compress_min_len = 10")
    cursor = binlog_mariadb.connect().cursor()
    with Running(database) as running:
        running.streaming()
        cursor.execute(f"SET GLOBAL {variable} = {value}")
        try:
            database.execute("CREATE TABLE other (id int PRIMARY KEY, t text)")
            database.execute("INSERT INTO other VALUES (1, repeat('x', 1000))")
            with pytest.raises(ConnectError, match=variable):
                running.count(1)
        finally:
            cursor.execute(f"SET GLOBAL {variable} = {back}")


def test_offsets_that_a_user_alters_are_checked(database: Database) -> None:
    config = config_of(database)
    assert MySqlConnector.alter_offsets(config, [({"server": "shop"}, {"file": "x.1", "pos": 5})])
    assert MySqlConnector.alter_offsets(config, [({"server": "shop"}, None)])
    with pytest.raises(ConnectError, match="source partition"):
        MySqlConnector.alter_offsets(config, [({"server": "else"}, None)])
    for bad in (
        {"file": "x.1"},
        {"file": "x.1", "pos": "far"},
        {"file": 5, "pos": 4},
        {"file": "x.1", "pos": -1},
    ):
        with pytest.raises(ConnectError, match="file"):
            MySqlConnector.alter_offsets(config, [({"server": "shop"}, bad)])
