"""The engine under real Spark, on a real broker and registry: what a golden file cannot show."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.client import ClientSettings, Cluster
from penstock.sql.catalog.catalog import Record
from penstock.sql.continuous import preparing
from penstock.sql.errors import Clash, Exists, NotAllowed, Place, SqlError, StateLost, Unavailable, Unknown
from penstock.sql.language import parser
from penstock.sql.results import Rows
from penstock.sql.server import selecting
from penstock.sql.server.engine import Engine
from penstock.sql.server.script import Script
from penstock.sql.settings import EngineSettings
from penstock.testing import PenstockBroker
from tests.registry.conftest import RegistryProcess
from tests.sql.engines import MemoryLog, Sql, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)


class Engines:
    """Engines of one test, one after the other on the same catalog and storage."""

    def __init__(self, spark: Any, broker: PenstockBroker, registry: RegistryProcess, storage: Path) -> None:
        self._spark = spark
        self.settings = EngineSettings(broker.bootstrap, registry.url, str(storage), python_functions=True)
        self.log = MemoryLog()
        self._running: list[Engine] = []

    def start(self) -> Sql:
        engine = Engine(self.settings, self.log, spark=self._spark)
        self._running.append(engine)
        engine.start()
        engine.take_over()
        return Sql(engine)

    def stop(self) -> None:
        for engine in self._running:
            engine.stop()
        self._running.clear()


@pytest.fixture
def engines(
    spark: SparkSession, sql_broker: PenstockBroker, sql_registry: RegistryProcess, tmp_path: Path
) -> Iterator[Engines]:
    made = Engines(spark, sql_broker, sql_registry, tmp_path / "storage")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def two_streams(
    spark: SparkSession,
    sql_broker: PenstockBroker,
    sql_registry: RegistryProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Sql, MemoryLog]]:
    """An engine that statements with errors share: they change nothing."""
    made = Engines(spark, sql_broker, sql_registry, tmp_path_factory.mktemp("storage"))
    sql = made.start()
    sql.run(
        "CREATE STREAM err_in (n INT) WITH (format = 'json');"
        "CREATE STREAM err_two (n INT) WITH (format = 'json')"
    )
    yield sql, made.log
    made.stop()


def test_a_restarted_engine_goes_on_with_every_query(engines: Engines) -> None:
    sql = engines.start()
    sql.run(
        """
        CREATE STREAM re_sales (shop STRING, amount INT) WITH (format = 'json', partitions = 2);
        CREATE STREAM re_large AS SELECT shop, amount FROM re_sales WHERE amount > 5;
        CREATE TABLE re_totals AS
          SELECT shop, SUM(amount) AS total, COUNT(*) AS n FROM re_sales GROUP BY shop;
        CREATE TABLE re_ranks AS SELECT n, COUNT(*) AS shops FROM re_totals GROUP BY n;
        CREATE TABLE re_paused AS SELECT shop, COUNT(*) AS n FROM re_sales GROUP BY shop;
        INSERT INTO re_sales VALUES ('a', 10), ('b', 3);
        """
    )
    totals = "SELECT shop, total, n FROM re_totals"
    sql.eventually(totals, [["a", 10, 1], ["b", 3, 1]])
    sql.eventually("SELECT n, shops FROM re_ranks", [[1, 2]])
    sql.eventually("SELECT shop, amount FROM re_large", [["a", 10]])
    sql.eventually("SELECT shop, n FROM re_paused", [["a", 1], ["b", 1]])
    sql.run("PAUSE ctas_re_paused_1")
    engines.stop()

    sql = engines.start()
    sql.run("INSERT INTO re_sales VALUES ('a', 20), ('c', 7)")
    sql.eventually(totals, [["a", 30, 2], ["b", 3, 1], ["c", 7, 1]])
    sql.eventually("SELECT n, shops FROM re_ranks", [[1, 2], [2, 1]])
    sql.eventually("SELECT shop, amount FROM re_large", [["a", 10], ["a", 20], ["c", 7]])
    states = {row["id"]: row["state"] for row in sql.table("SHOW QUERIES")}
    assert states["ctas_re_paused_1"] == "PAUSED"
    assert {state for query, state in states.items() if query != "ctas_re_paused_1"} == {"RUNNING"}
    assert sorted(sql.rows("SELECT shop, n FROM re_paused")) == [["a", 1], ["b", 1]]


@pytest.mark.parametrize(
    ("statement", "properties"),
    [
        ("CREATE STREAM once_out AS SELECT n FROM once_in", {}),
        ("CREATE STREAM once_latest AS SELECT n FROM once_in", {"auto.offset.reset": "latest"}),
        ("CREATE TABLE once_counts AS SELECT n, COUNT(*) AS c FROM once_in GROUP BY n", {}),
        ("INSERT INTO once_to SELECT n FROM once_in", {}),
    ],
)
def test_a_statement_is_parsed_once_and_analysed_once_until_its_query_runs(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, statement: str, properties: dict[str, str]
) -> None:
    parsed: list[str] = []
    analysed: list[str] = []
    parse_one, analyse = parser._Parser.statement, preparing.analysed

    def parsing(self: Any) -> Any:
        parsed.append(self.text)
        return parse_one(self)

    def analysing(session: SparkSession, text: str, *more: Any) -> Any:
        analysed.append(text)
        return analyse(session, text, *more)

    sql = engines.start()
    sql.run(
        "CREATE STREAM once_in (n INT) WITH (format = 'json');"
        "CREATE STREAM once_to (n INT) WITH (format = 'json'); INSERT INTO once_in VALUES (1)"
    )
    monkeypatch.setattr(parser._Parser, "statement", parsing)
    monkeypatch.setattr(preparing, "analysed", analysing)
    sql.run(statement, properties)
    query = engines.log.catalog.queries[next(iter(engines.log.catalog.queries))]
    wait_until(lambda: sql.engine._queries.status(query).state == "RUNNING")
    assert parsed == [statement]
    assert len(analysed) == 1


def test_a_table_of_the_stream_s_own_topic_has_all_rows_whatever_the_stream_begins_with(
    engines: Engines,
) -> None:
    sql = engines.start()
    sql.run(
        "CREATE STREAM own_s (k STRING KEY, ref STRING) WITH (topic = 'own', format = 'json');"
        "CREATE TABLE own_t (k STRING PRIMARY KEY, ref STRING) WITH (topic = 'own', format = 'json');"
        "INSERT INTO own_s VALUES ('a', 'none')"
    )
    sql.run(
        "CREATE STREAM own_out AS SELECT s.k AS k, t.ref AS found FROM own_s s JOIN own_t t ON s.ref = t.k",
        {"auto.offset.reset": "latest"},
    )
    query = next(iter(engines.log.catalog.queries.values()))
    wait_until(lambda: sql.engine._queries.status(query).state == "RUNNING")
    sql.run("INSERT INTO own_s VALUES ('b', 'a')")
    sql.eventually("SELECT k, found FROM own_out", [["b", "none"]])


def test_a_query_that_fails_shows_its_error_and_harms_no_other(engines: Engines) -> None:
    sql = engines.start()
    sql.run(
        """
        CREATE STREAM fail_in (n INT) WITH (format = 'json');
        CREATE FUNCTION inverse (n INT) RETURNS DOUBLE LANGUAGE PYTHON AS 'return 1 / n';
        CREATE STREAM fail_out AS SELECT inverse(n) AS inverse FROM fail_in;
        CREATE STREAM fail_other AS SELECT n FROM fail_in;
        INSERT INTO fail_in VALUES (1);
        """
    )
    sql.eventually("SELECT inverse FROM fail_out", [[1.0]])
    sql.run("INSERT INTO fail_in VALUES (0), (2)")
    sql.eventually("SELECT n FROM fail_other", [[0], [1], [2]])

    def failed() -> bool:
        found = {row["property"]: row["value"] for row in sql.table("DESCRIBE csas_fail_out_1")}
        return "ZeroDivisionError" in (found["error"] or "")

    wait_until(failed)
    # What is wrong is put right, and the query goes on where it was.
    sql.run(
        """
        CREATE OR REPLACE FUNCTION inverse (n INT) RETURNS DOUBLE LANGUAGE PYTHON
          AS 'return 1 / n if n else None';
        CREATE OR REPLACE STREAM fail_out AS SELECT inverse(n) AS inverse FROM fail_in;
        """
    )
    sql.eventually("SELECT inverse FROM fail_out", [[1.0], [None], [0.5]])
    wait_until(lambda: [row["error"] for row in sql.table("SHOW QUERIES")] == [None, None])


def test_what_is_written_has_the_time_of_what_was_read(engines: Engines) -> None:
    sql = engines.start()
    sql.run(
        """
        CREATE STREAM time_in (n INT, at BIGINT) WITH (format = 'json', timestamp = 'at');
        CREATE STREAM time_out AS SELECT n FROM time_in;
        CREATE STREAM time_again AS SELECT n + 1 AS n FROM time_out;
        INSERT INTO time_in VALUES (1, 1735689600123);
        INSERT INTO time_out (n, __key, __timestamp) VALUES (5, 'k', TIMESTAMP '2025-02-01 00:00:00Z');
        """
    )
    times = [["2025-01-01T00:00:00.123000Z", 2, None], ["2025-02-01T00:00:00Z", 6, "k"]]
    sql.eventually("SELECT __timestamp, n, __key FROM time_again", times)


@pytest.mark.promise(
    "sql",
    "CREATE STREAM … AS keeps old records: its topic has the retention of its source, and no retention "
    "limit if a column sets the timestamps of records",
)
def test_what_is_written_of_old_events_is_not_deleted(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    """Retention counts from the time of a record, which is that of an event of long ago."""
    settings = EngineSettings(penstock.bootstrap, None, str(tmp_path / "storage"))
    engine = Engine(settings, MemoryLog(), spark=spark)
    engine.start()
    try:
        engine.take_over()
        sql = Sql(engine)
        sql.run("CREATE STREAM rides (n INT, at BIGINT) WITH (format = 'json', timestamp = 'at')")
        told = sql.run("CREATE STREAM located AS SELECT n FROM rides")
        assert "keeps its records forever, because their times are those of `at`" in told
        assert "retention" not in sql.run(
            "CREATE STREAM short WITH (retention = '1 day') AS SELECT n FROM rides"
        )
        for topic in ("located", "short"):  # as the queries write them
            penstock.produce(topic, [{"value": "{}", "timestamp": 1356998400000}])
        penstock.clock.advance(seconds=600)
        wait_until(lambda: not penstock.consume("short"))
        assert len(penstock.consume("located")) == 1
    finally:
        engine.stop()


@pytest.mark.promise(
    "sql",
    "CREATE … AS does not write to a topic that already has records unless the statement asks for it, "
    "and it names the options that had no effect",
)
def test_a_query_does_not_mix_its_records_with_others(engines: Engines, sql_broker: PenstockBroker) -> None:
    """Those of the same query before it was dropped and created again would all be there twice."""
    sql = engines.start()
    sql.run("CREATE STREAM mix_in (n INT) WITH (format = 'json')")
    create = "CREATE {kind} mix_out WITH ({options} retention = '-1') AS SELECT {what} FROM mix_in {rest}"
    stream = create.format(kind="STREAM", options="{0}", what="n", rest="")
    sql_broker.create_topic("mix_out", partitions=2)
    told = sql.run(stream.format(""))
    assert "Note: the topic `mix_out` already exists, so retention had no effect" in told
    sql.run("DROP STREAM mix_out")
    sql_broker.produce("mix_out", ["{}"], partition=1)
    table = create.format(kind="TABLE", options="", what="n, COUNT(*) AS c", rest="GROUP BY n")
    for again in (stream.format(""), table):
        with pytest.raises(Exists, match=r"`mix_out` has records already.*existing = 'append'"):
            sql.run(again)
    assert sql.rows("SHOW QUERIES") == []
    sql.run(stream.format("existing = 'append',"))
    with pytest.raises(Clash, match="existing='replace' must be one of append"):
        sql.run("CREATE STREAM mix_2 WITH (existing = 'replace') AS SELECT n FROM mix_in")


def test_functions_take_arguments_of_their_types(engines: Engines) -> None:
    sql = engines.start()
    sql.run(
        """
        CREATE FUNCTION shown (n INT, text STRING) RETURNS STRING LANGUAGE PYTHON AS $$
            return f"{n!r} {text!r}"
        $$;
        CREATE FUNCTION kinds (n BIGINT) RETURNS ARRAY<STRING> LANGUAGE PYTHON AS $$
            def names(count):
                return [str(each) for each in range(count)]

            def kinds(n):
                return names(n)
        $$;
        """
    )
    assert sql.rows("SELECT shown(1.7, 5), kinds('2')") == [["1 '5'", ["0", "1"]]]
    with pytest.raises(SqlError, match="`shown` requires 2 parameters but the actual number is 1") as caught:
        sql.rows("SELECT\n shown(1)")
    assert caught.value.place is not None and caught.value.place.line == 2
    with pytest.raises(SqlError, match=r"line 3, column \d+: .* `broken` is not valid Python") as caught:
        sql.run("CREATE FUNCTION broken (x INT) RETURNS INT LANGUAGE PYTHON AS $$\ny = x\nreturn (y\n$$")
    with pytest.raises(Clash, match=r"declares the parameters \(x\), but the Python function takes \(a, b\)"):
        sql.run("CREATE FUNCTION other (x INT) RETURNS INT LANGUAGE PYTHON AS 'def other(a, b): return a'")


def test_a_stream_sees_a_table_outside_as_it_becomes(engines: Engines, tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    path = str(tmp_path / "airports")
    write_deltalake(path, pa.table({"code": ["OSL"], "city": ["Oslo"]}))
    sql = engines.start()
    sql.run(
        f"""
        CREATE TABLE out_airports (code STRING PRIMARY KEY, city STRING)
          WITH (storage = 'delta', path = '{path}');
        CREATE STREAM out_flights (code STRING) WITH (format = 'json');
        CREATE STREAM out_named AS
          SELECT f.code, a.city FROM out_flights f LEFT JOIN out_airports a ON f.code = a.code;
        INSERT INTO out_flights VALUES ('OSL'), ('CPH');
        """
    )
    assert sql.rows("SELECT * FROM out_airports") == [["OSL", "Oslo"]]
    named = "SELECT code, city FROM out_named"
    sql.eventually(named, [["OSL", "Oslo"], ["CPH", None]])
    write_deltalake(path, pa.table({"code": ["CPH"], "city": ["Copenhagen"]}), mode="append")

    def seen() -> bool:
        sql.run("INSERT INTO out_flights VALUES ('CPH')")
        return ["CPH", "Copenhagen"] in sql.rows(named)

    wait_until(seen)
    with pytest.raises(Unknown, match="has no column `ctiy`; did you mean `city`"):
        sql.run(f"CREATE TABLE out_wrong (ctiy STRING) WITH (storage = 'delta', path = '{path}')")


@pytest.mark.promise("sql", "CREATE OR REPLACE cannot write records of another format to a topic")
@pytest.mark.promise(
    "sql",
    "CREATE OR REPLACE is rejected if it changes the input of a stateful query (a window, a computed "
    "key, a Python function), unless it says `state='rebuild'`, which computes everything again (golden "
    "files `replace`)",
)
def test_the_plan_of_a_replacement_says_what_becomes_of_the_state(engines: Engines) -> None:
    sql = engines.start()
    sql.run(
        """
        CREATE STREAM plan_in (k STRING, v INT) WITH (format = 'json');
        CREATE TABLE plan_out AS SELECT k, SUM(v) AS total FROM plan_in GROUP BY k;
        """
    )
    before = list(engines.log.records)

    def action(query: str) -> tuple[str, str]:
        told = sql.rows(f"EXPLAIN CREATE OR REPLACE TABLE plan_out AS {query}")
        return told[0][1], " ".join(str(value) for name, value in told if name == "reason")

    assert action("SELECT k, SUM(v) AS total FROM plan_in GROUP BY k") == ("keep", "")
    kept, why = action("SELECT k, SUM(v) * 2 AS total FROM plan_in GROUP BY k")
    assert kept == "rebuild" and why.endswith(
        "the rows that are in its table were written by the query before"
    )
    lost, why = action("SELECT k, SUM(v) AS total FROM plan_in WHERE v > 0 GROUP BY k")
    assert lost == "rebuild" and "a filter is new: (value.v > 0)" in why
    lost, why = action("SELECT k, SUM(v) AS total, MAX(v) AS most FROM plan_in GROUP BY k")
    assert lost == "rebuild" and "an aggregate is new: max(value.v)" in why
    assert engines.log.records == before
    with pytest.raises(StateLost, match="state='rebuild'"):
        sql.run("CREATE OR REPLACE TABLE plan_out AS SELECT k, MAX(v) AS total FROM plan_in GROUP BY k")
    # Its topic has records of one format; an option that is passed over would be one that lies.
    other = "CREATE OR REPLACE TABLE plan_out WITH (format = 'csv') AS SELECT k, SUM(v) AS total FROM plan_in"
    for statement in (f"{other} GROUP BY k", f"EXPLAIN {other} GROUP BY k"):
        with pytest.raises(Clash, match="are json, those of this query would be csv: write format='json'"):
            sql.run(statement)
    assert engines.log.records == before


def with_state(statement: str, wanted: str) -> str:
    return statement.replace(" AS ", f" WITH (state = '{wanted}') AS ", 1)


FED = """fed_out AS SELECT substr(car, 1, 1) AS make, fed_of(car) AS model, SUM(n) AS n FROM fed_in
    WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY 1, 2"""
HOPPING = "HOPPING (SIZE 1 HOUR, ADVANCE BY 20 MINUTES)"


@pytest.mark.promise(
    "sql",
    "CREATE OR REPLACE is rejected if it changes the input of a stateful query (a window, a computed "
    "key, a Python function), unless it says `state='rebuild'`, which computes everything again (golden "
    "files `replace`)",
)
def test_what_feeds_the_state_of_a_query_is_not_changed_beneath_it(engines: Engines) -> None:
    sql = engines.start()
    sql.run(
        f"""
        CREATE STREAM fed_in (car STRING, n INT, ended TIMESTAMP) WITH (format = 'json', timestamp = 'ended');
        CREATE FUNCTION fed_of (car STRING) RETURNS STRING LANGUAGE PYTHON AS $$ car[:1] $$;
        CREATE TABLE {FED};
        PAUSE ctas_fed_out_1;
        """
    )
    wider = FED.replace("1 HOUR", "2 HOURS")
    changes = {
        wider: "a grouping key changed from window(value.ended, 1 hour) to window(value.ended, 2 hours)",
        FED.replace("TUMBLING (SIZE 1 HOUR)", HOPPING): "to window(value.ended, 1 hour, 20 minutes)",
        FED.replace("1, 1", "1, 2"): "from substring(value.car, 1, 1) to substring(value.car, 1, 2)",
    }
    for changed, why in changes.items():
        with pytest.raises(StateLost) as caught:
            sql.run(f"CREATE OR REPLACE TABLE {changed}")
        assert why in str(caught.value)
        # Other keys lead to other state: there is nothing to go on with.
        assert "state='keep'" not in str(caught.value)
    with pytest.raises(StateLost):
        sql.run(f"CREATE OR REPLACE TABLE {with_state(wider, 'keep')}")
    assert sql.run(f"CREATE OR REPLACE TABLE {FED}") == "query ctas_fed_out_1 is unchanged"
    sql.run("CREATE OR REPLACE FUNCTION fed_of (car STRING) RETURNS STRING LANGUAGE PYTHON AS $$ car[:2] $$")
    with pytest.raises(StateLost, match="a grouping key changed: __python_fed_of"):
        sql.run(f"CREATE OR REPLACE TABLE {FED}")


@pytest.mark.long
@pytest.mark.promise(
    "sql",
    "CREATE OR REPLACE is rejected if it changes the input of a stateful query (a window, a computed "
    "key, a Python function), unless it says `state='rebuild'`, which computes everything again (golden "
    "files `replace`)",
)
def test_windows_of_another_size_begin_with_all_that_is_in_the_topic(engines: Engines) -> None:
    sql = engines.start()
    hourly = "wider_out AS SELECT car, SUM(n) AS n FROM wider_in WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY car"
    sql.run(
        f"""
        CREATE STREAM wider_in (car STRING, n INT, ended TIMESTAMP)
          WITH (format = 'json', timestamp = 'ended');
        CREATE TABLE {hourly};
        INSERT INTO wider_in VALUES ('a', 9, TIMESTAMP '2026-01-01 00:10:00');
        """
    )
    sql.eventually("SELECT n FROM wider_out", [[9]])
    sql.run(f"CREATE OR REPLACE TABLE {with_state(hourly.replace('1 HOUR', '2 HOURS'), 'rebuild')}")
    sql.run("INSERT INTO wider_in VALUES ('a', 30, TIMESTAMP '2026-01-01 01:10:00')")
    sql.eventually("SELECT n FROM wider_out", [[39]])


@pytest.mark.promise(
    "pipelines", "State that an earlier version recorded is used only for an unchanged query"
)
def test_state_that_an_earlier_version_recorded_less_of_is_judged_by_its_query(engines: Engines) -> None:
    import json

    sql = engines.start()
    sql.run(
        """
        CREATE STREAM older_in (k STRING, v INT) WITH (format = 'json');
        CREATE TABLE older_out AS SELECT k, SUM(v) AS total FROM older_in GROUP BY k;
        """
    )
    for at, (key, value) in enumerate(engines.log.records):
        if key == b"query/ctas_older_out_1" and value is not None:
            told = json.loads(value)
            for name in ("lineage", "query"):
                del told["fingerprint"][name]
            engines.log.records[at] = (key, json.dumps(told).encode())
    again = "CREATE OR REPLACE TABLE older_out AS SELECT k, SUM(v) AS total FROM older_in"
    assert sql.run(f"{again} GROUP BY k") == "query ctas_older_out_1 is unchanged"
    with pytest.raises(StateLost, match="a filter is new"):
        sql.run(f"{again} WHERE v > 1 GROUP BY k")


def test_a_rebuilt_table_has_no_rows_of_before(engines: Engines) -> None:
    sql = engines.start()
    sql.run(
        """
        CREATE STREAM anew_in (k STRING, v INT) WITH (format = 'json');
        CREATE TABLE anew_out AS SELECT k, COUNT(*) AS n FROM anew_in GROUP BY k;
        INSERT INTO anew_in VALUES ('a', 1), ('b', 2);
        """
    )
    sql.eventually("SELECT k, n FROM anew_out", [["a", 1], ["b", 1]])
    sql.run(
        "CREATE OR REPLACE TABLE anew_out WITH (state = 'rebuild') AS "
        "SELECT k, COUNT(*) AS n, MAX(v) AS most FROM anew_in WHERE v > 1 GROUP BY k"
    )
    sql.eventually("SELECT k, n, most FROM anew_out", [["b", 1, 2]])


class FailingLog(MemoryLog):
    """A log that cannot be written while `fails`."""

    fails = False

    def write(self, records: Sequence[Record]) -> None:
        if self.fails:
            raise Unavailable("the topic cannot be written")
        super().write(records)


@pytest.mark.promise(
    "sql",
    "If a replacement, TERMINATE or DROP cannot be written to the catalog, the query keeps running with "
    "its rows; if it was written, the old rows are deleted, even if the server dies in between",
)
def test_a_query_that_could_not_be_replaced_or_ended_goes_on_with_its_rows(engines: Engines) -> None:
    engines.log = log = FailingLog()
    sql = engines.start()
    sql.run(
        """
        CREATE STREAM stays_in (k STRING, v INT) WITH (format = 'json');
        CREATE TABLE stays_out AS SELECT k, COUNT(*) AS n FROM stays_in GROUP BY k;
        INSERT INTO stays_in VALUES ('a', 1);
        """
    )
    sql.eventually("SELECT k, n FROM stays_out", [["a", 1]])
    log.fails = True
    rebuilt = with_state("stays_out AS SELECT k, MAX(v) AS n FROM stays_in GROUP BY k", "rebuild")
    with pytest.raises(Unavailable):
        sql.run(f"CREATE OR REPLACE TABLE {rebuilt}")
    for statement in ("TERMINATE ctas_stays_out_1", "DROP TABLE stays_out"):
        with pytest.raises(Unavailable):
            sql.run(statement)
    log.fails = False
    assert sql.rows("SELECT k, n FROM stays_out") == [["a", 1]]
    sql.run("INSERT INTO stays_in VALUES ('a', 2)")
    sql.eventually("SELECT k, n FROM stays_out", [["a", 2]])


@pytest.mark.promise(
    "sql",
    "If a replacement, TERMINATE or DROP cannot be written to the catalog, the query keeps running with "
    "its rows; if it was written, the old rows are deleted, even if the server dies in between",
)
def test_rows_of_before_are_deleted_even_if_the_server_died_after_the_replacement_was_written(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.sql.continuous import running

    sql = engines.start()
    sql.run(
        """
        CREATE STREAM dies_in (k STRING, v INT) WITH (format = 'json');
        CREATE TABLE dies_out AS SELECT k, COUNT(*) AS n FROM dies_in GROUP BY k;
        INSERT INTO dies_in VALUES ('a', 1), ('b', 2);
        """
    )
    sql.eventually("SELECT k, n FROM dies_out", [["a", 1], ["b", 1]])

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(running, "emptied", dies)
        fewer = "dies_out AS SELECT k, COUNT(*) AS n FROM dies_in WHERE v > 1 GROUP BY k"
        rebuilt = with_state(fewer, "rebuild")
        with pytest.raises(KeyboardInterrupt):
            sql.run(f"CREATE OR REPLACE TABLE {rebuilt}")
        engines.stop()
    sql = engines.start()
    sql.eventually("SELECT k, n FROM dies_out", [["b", 1]])


@pytest.mark.promise(
    "sql",
    "A stream whose query starts over gets its records again only if the statement says so; EXPLAIN, the "
    "error and the result name the queries that read them",
)
def test_a_stream_gets_its_records_again_only_if_that_is_said(engines: Engines) -> None:
    sql = engines.start()
    window = "WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 1 SECOND)"
    hourly = f"SELECT k, COUNT(*) AS n FROM again_in {window} GROUP BY k"
    sql.run(
        f"""
        CREATE STREAM again_in (k STRING, at TIMESTAMP) WITH (format = 'json', timestamp = 'at');
        CREATE STREAM again_mid WITH (retention = '-1') AS {hourly};
        CREATE TABLE again_out AS SELECT k, SUM(n) AS n FROM again_mid GROUP BY k;
        PAUSE ctas_again_out_1;
        INSERT INTO again_in VALUES ('a', TIMESTAMP '2026-01-01 00:10:00');
        INSERT INTO again_in VALUES ('b', TIMESTAMP '2026-01-01 05:00:00');
        """
    )
    sql.eventually("SELECT k, n FROM again_mid", [["a", 1]])
    before = list(engines.log.records)
    two = hourly.replace("1 HOUR", "2 HOURS")
    told = sql.rows(f"EXPLAIN CREATE OR REPLACE STREAM again_mid AS {two}")
    assert ["action", "rebuild"] in told and ["appends again", "again_mid"] in told
    assert ["downstream", "ctas_again_out_1"] in told
    with pytest.raises(StateLost, match="ctas_again_out_1 would count them twice"):
        sql.run(f"CREATE OR REPLACE STREAM again_mid WITH (state = 'rebuild') AS {two}")
    assert engines.log.records == before
    done = sql.run(
        f"CREATE OR REPLACE STREAM again_mid WITH (state = 'rebuild', existing = 'append') AS {two}"
    )
    assert "all records are in `again_mid` again; ctas_again_out_1 read them" in str(done)


@pytest.mark.promise(
    "sql", "DROP, TERMINATE and a rebuild delete the exactly-once marks of the queries that end"
)
def test_queries_that_end_leave_no_marks(engines: Engines, sql_broker: PenstockBroker) -> None:
    def marks() -> set[bytes]:
        found: dict[bytes, bytes | None] = {}
        for record in sql_broker.consume("__penstock_marks", isolation="read_committed"):
            found[record.key or b""] = record.value
        return {key for key, value in found.items() if value is not None}

    sql = engines.start()
    sql.run(
        """
        CREATE STREAM mark_in (k STRING, v INT) WITH (format = 'json');
        CREATE STREAM mark_seed AS SELECT * FROM mark_in;
        INSERT INTO mark_in VALUES ('a', 1), ('b', 2);
        """
    )
    sql.eventually("SELECT COUNT(*) AS n FROM mark_seed", [[2]])
    before = marks()
    counted = "SELECT k, COUNT(*) AS n FROM mark_in GROUP BY k"
    sql.run(
        f"""
        CREATE STREAM mark_copy AS SELECT * FROM mark_in;
        CREATE TABLE mark_counts AS {counted};
        CREATE TABLE mark_again AS SELECT k, n FROM mark_counts WHERE n > 0;
        """
    )
    sql.eventually("SELECT k, n FROM mark_again", [["a", 1], ["b", 1]])
    sql.eventually("SELECT COUNT(*) AS n FROM mark_copy", [[2]])
    first = marks() - before
    assert {key.partition(b"-")[0] for key in first} >= {b"ctas_mark_counts_1", b"ctas_mark_again_1"}
    sql.run(f"CREATE OR REPLACE TABLE mark_counts WITH (state = 'rebuild') AS {counted} HAVING COUNT(*) > 1")
    sql.run("INSERT INTO mark_in VALUES ('a', 3)")
    sql.eventually("SELECT k, n FROM mark_again", [["a", 2]])
    # Those of the query before have gone; of what emptied the table one stays, as long as its successor.
    counts = {key for key in marks() if key.startswith(b"ctas_mark_counts")}
    assert counts and not counts & first
    sql.run("DROP TABLE mark_again; DROP TABLE mark_counts; TERMINATE csas_mark_copy_1")
    assert marks() <= before


def test_nothing_waits_for_a_query_that_was_ended(engines: Engines, sql_broker: PenstockBroker) -> None:
    sql = engines.start()
    sql.run(
        """
        CREATE STREAM end_in (n INT) WITH (format = 'json', partitions = 2);
        CREATE STREAM end_out AS SELECT n FROM end_in;
        """
    )
    going = threading.Event()

    def feed() -> None:
        while not going.wait(0.01):
            sql_broker.produce("end_in", [(None, b'{"n": 1}')] * 200)

    feeding = threading.Thread(target=feed)
    feeding.start()
    try:
        wait_until(lambda: sql.rows("SELECT COUNT(*) FROM end_out")[0][0] > 1000)
        sql.run("TERMINATE csas_end_out_1")
    finally:
        going.set()
        feeding.join()
    # What is written now is read at once: no transaction of the query is open before it.
    sql.run("INSERT INTO end_out VALUES (99)")
    assert sql.rows("SELECT n FROM end_out WHERE n = 99") == [[99]]
    assert sql.rows("SHOW QUERIES") == []
    assert not (Path(engines.settings.storage) / "queries" / "csas_end_out_1").exists()


@pytest.mark.promise(
    "sql",
    "When its client disconnects, a SELECT cancels its Spark jobs, and counts as a running request until "
    "they have ended",
)
def test_a_select_whose_reader_has_gone_ends_its_jobs(engines: Engines, spark: SparkSession) -> None:
    sql = engines.start()
    sql.run("CREATE STREAM gone_in (n INT) WITH (format = 'json');INSERT INTO gone_in VALUES (1)")
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getActiveJobsIds())
    # Longer than any test: a million times a million rows.
    views = " ".join(f"LATERAL VIEW explode(sequence(1, 10000)) v{at} AS n{at}" for at in range(3))
    endless = f"SELECT COUNT(*) FROM gone_in {views} WHERE n0 * n1 * n2 < 0"
    lines: list[bytes] = []
    script = Script(f"{endless};SELECT 1 FROM gone_in", {}, {}, sql.engine)
    running = threading.Thread(target=lambda: script.run(lines.append))
    running.start()
    wait_until(lambda: set(tracker.getActiveJobsIds()) - before)
    script.cancel()
    running.join(30)
    assert not running.is_alive()
    wait_until(lambda: not set(tracker.getActiveJobsIds()) - before, 30)
    assert [b'"error":"Unavailable"' in line for line in lines] == [False, True], lines
    # The next one in the thread of one that has ended is not of its group.
    assert sql.rows("SELECT n FROM gone_in") == [[1]]


def test_a_push_query_ends_when_nobody_listens(engines: Engines, spark: SparkSession) -> None:
    sql = engines.start()
    sql.run("CREATE STREAM push_in (n INT) WITH (format = 'json')")
    found = sql.results("SELECT n * 2 AS twice FROM push_in EMIT CHANGES")[0]
    assert isinstance(found, Rows) and found.live
    assert found.columns == (("twice", "INT"),)
    # It begins with what comes after it was asked for, however long Spark takes to start it.
    sql.run("INSERT INTO push_in VALUES (1), (2)")
    assert [next(found.rows), next(found.rows)] == [[2], [4]]
    found.close()
    assert list(found.rows) == []


@pytest.mark.promise(
    "sql", "A push query has no consumer group; the group of a query that is terminated or dropped is deleted"
)
def test_queries_that_end_leave_no_groups_behind(
    engines: Engines, sql_broker: PenstockBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = engines.start()
    sql.run("CREATE STREAM left_in (n INT) WITH (format = 'json')")
    for name in ("left_out", "left_by"):
        sql.run(f"CREATE STREAM {name} AS SELECT n FROM left_in")
    with Cluster(ClientSettings.from_kafka({"bootstrap.servers": sql_broker.bootstrap})) as cluster:
        groups = ["penstock-csas_left_out_1", "penstock-csas_left_by_1"]
        place = ("left_in", 0)
        for group in groups:  # as the query does when its first batch is done
            cluster.commit_offsets(group, {place: 0})
        sql.run("TERMINATE csas_left_out_1")
        sql.run("DROP STREAM left_by")
        assert [cluster.committed(group, [place]) for group in groups] == [{place: None}] * 2
    read: list[Any] = []
    original = selecting.prepare
    monkeypatch.setattr(
        selecting, "prepare", lambda *given, **named: read.append(named) or original(*given, **named)
    )
    pushed = sql.results("SELECT n FROM left_in EMIT CHANGES")[-1]
    assert isinstance(pushed, Rows)
    pushed.close()
    assert [each["commits"] for each in read] == [False]


@pytest.mark.promise(
    "sql",
    "A query does not continue with its state if a module that its Python function uses has changed: it "
    "fails, and the error says what to write",
)
@pytest.mark.timeout(600)
def test_a_changed_module_is_not_put_beneath_state(
    engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "penstock_test_rates"
    source = tmp_path / "modules" / f"{name}.py"
    source.parent.mkdir()
    source.write_text("RATE = 2\n")
    monkeypatch.syspath_prepend(source.parent)
    sql = engines.start()
    sql.run("CREATE STREAM rated_in (k STRING, n INT) WITH (format = 'json')")
    body = f"import {name}\n\ndef rated(n):\n    return n * {name}.RATE\n"
    sql.run(f"CREATE FUNCTION rated(n INT) RETURNS INT LANGUAGE PYTHON AS $$\n{body}$$")
    table = "AS SELECT k, SUM(rated(n)) AS n FROM rated_in GROUP BY k"
    sql.run(f"CREATE TABLE rated_sums {table}; CREATE STREAM rated_out AS SELECT rated(n) AS n FROM rated_in")

    def states() -> dict[str, str]:
        return {each["id"]: each["state"] for each in sql.engine.describe_queries()}

    table_id, stream_id = "ctas_rated_sums_1", "csas_rated_out_1"
    wait_until(lambda: set(states().values()) == {"RUNNING"})
    engines.stop()
    source.write_text("RATE = 3\n")
    sys.modules.pop(name)
    sql = engines.start()
    wait_until(lambda: states() == {table_id: "FAILED", stream_id: "RUNNING"})
    shown = sql.engine.describe_query(table_id)
    assert shown is not None and "CREATE OR REPLACE TABLE rated_sums" in shown["error"]
    with pytest.raises(StateLost, match="an aggregate changed"):
        sql.run(f"CREATE OR REPLACE TABLE rated_sums {table}")
    sql.run(f"CREATE OR REPLACE TABLE rated_sums WITH (state = 'keep') {table}")
    assert "is unchanged" in str(sql.run(f"CREATE OR REPLACE TABLE rated_sums {table}"))


@pytest.mark.promise(
    "sql",
    "A query that is replaced by one over other topics keeps no offsets of the previous topics in its "
    "consumer group",
)
def test_a_replaced_query_leaves_no_offsets_of_topics_that_it_no_longer_reads(
    engines: Engines, sql_broker: PenstockBroker
) -> None:
    sql = engines.start()
    for name in ("moved_from", "moved_to"):
        sql.run(f"CREATE STREAM {name} (n INT) WITH (format = 'json')")
    sql.run("CREATE STREAM moved AS SELECT n FROM moved_from; PAUSE csas_moved_1")
    with Cluster(ClientSettings.from_kafka({"bootstrap.servers": sql_broker.bootstrap})) as cluster:
        group, place = "penstock-csas_moved_1", ("moved_from", 0)
        cluster.commit_offsets(group, {place: 0})
        # What counts only for a topic that is made is not left out without a word.
        kept = sql.run("CREATE OR REPLACE STREAM moved WITH (partitions = 3) AS SELECT n FROM moved_from")
        assert "is unchanged. Note: the topic `moved` already exists, so partitions had no effect" in str(
            kept
        )
        assert cluster.committed(group, [place]) == {place: 0}
        sql.run("CREATE OR REPLACE STREAM moved WITH (state = 'rebuild') AS SELECT n FROM moved_to")
        assert cluster.committed(group, [place]) == {place: None}


@pytest.mark.promise(
    "sql",
    "A push query keeps its state in the server's storage; if its process starts too late it is started "
    "again; if it ends or cannot start, nothing is left behind",
)
def test_a_push_query_keeps_its_state_in_the_storage_and_leaves_nothing_behind(
    engines: Engines, spark: SparkSession
) -> None:
    def left() -> tuple[list[Path], int, int]:
        session: Any = spark
        running = session._jsparkSession.sharedState().activeStreamingQueries().size()
        return list(home.iterdir()) if home.exists() else [], len(sql.engine._selects._pushes), running

    # Where every machine of a Spark cluster can write, not in a directory of the driver.
    home = Path(engines.settings.storage) / "push"
    (home / "of a server that was killed" / "state").mkdir(parents=True)
    sql = engines.start()
    sql.run("CREATE STREAM push_fails_in (n INT) WITH (format = 'json')")
    before = left()
    assert before[0] == []
    # Spark looks for it when the query has been analysed and its checkpoint is made.
    setting = {"spark.sql.streaming.checkpointFileManagerClass": "no.such.FileManager"}
    with pytest.raises(SqlError, match=r"no\.such\.FileManager") as caught:
        sql.results("SELECT n FROM push_fails_in EMIT CHANGES", setting)
    assert caught.value.place == Place(1, 1)
    assert left() == before

    found = sql.results("SELECT n, COUNT(*) AS c FROM push_fails_in GROUP BY n EMIT CHANGES")[0]
    assert isinstance(found, Rows)
    sql.run("INSERT INTO push_fails_in VALUES (7)")
    assert next(found.rows) == [7, 1]
    directories, pushes, running = left()
    assert (len(directories), pushes, running) == (1, before[1] + 1, before[2] + 1)
    assert (directories[0] / "state").is_dir()
    found.close()
    wait_until(lambda: left() == before)


def test_a_server_that_does_not_lead_changes_nothing(engines: Engines) -> None:
    sql = engines.start()
    sql.run(
        "CREATE STREAM lead_in (n INT) WITH (format = 'json');CREATE STREAM lead_out AS SELECT n FROM lead_in"
    )
    sql.engine.give_up()
    with pytest.raises(Unavailable):
        sql.run("DROP STREAM lead_out")
    assert sql.table("SHOW QUERIES")[0]["state"] == "STOPPED"
    sql.engine.take_over()
    wait_until(lambda: sql.table("SHOW QUERIES")[0]["state"] == "RUNNING")


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("SELECT v.n FROM err_in v WHERE v.nn = 1", Unknown,
         "line 1, column 32: no column `v.nn`; did you mean `n`"),
        ("SELECT n FROM err_in GROUP BY m", Unknown, "no column `m`"),
        ("CREATE TABLE t AS SELECT COUNT(*) AS c FROM err_in GROUP BY n", Clash, "`n` is part of the table"),
        ("CREATE STREAM s AS SELECT a.n FROM err_in a JOIN err_two b ON a.n = b.n", Clash, "WITHIN"),
        ("CREATE STREAM s AS SELECT n, NULL AS x FROM err_in", Clash, "`x` has no type"),
        ("CREATE STREAM s AS SELECT a.n, b.n FROM err_in a JOIN err_two b WITHIN 1 HOUR ON a.n = b.n", Clash,
         "Duplicate column `n`"),
        ("CREATE STREAM err_in2 WITH (topic = 'err_in') AS SELECT n FROM err_in", Clash, "would write to it"),
        ("CREATE STREAM s (a INT) AS SELECT n FROM err_in", SqlError, "columns"),
        ("CREATE STREAM s (a INT) WITH (format = 'json', timestamp = 'b')", Unknown, "no column `b`"),
        ("CREATE STREAM s (a INT) WITH (format = 'json', watermark = 'soon')", Clash, "not a length of time"),
        ("CREATE TABLE t (a INT, b INT) WITH (format = 'json')", Clash, "PRIMARY KEY"),
        ("CREATE STREAM s (a INT, b INT) WITH (format = 'string')", Clash, "exactly one value column"),
        ("INSERT INTO err_in VALUES (1, 2)", Clash, "has 1 columns"),
        ("INSERT INTO err_in VALUES (1.5)", Clash, "line 1, column 28: `n` is INT, and 1.5 is DECIMAL"),
        ("INSERT INTO err_in VALUES (99999999999)", Clash, "`n` is INT"),
        ("SELECT n FROM err_in EMIT CHANGES", Clash, "auto.offset.reset must be"),
        ("EXPLAIN DROP STREAM err_in", SqlError, "EXPLAIN"),
        ("SELECT n FORM err_in", SqlError, "line 1, column 15: syntax error at or near 'err_in'"),
        ("SELECT n FROM err_in WHER n > 1", SqlError, "did you mean WHERE, not `WHER`?"),
        ("CREATE STREAM s AS SELECT n FROM err_in ORDER BY n", SqlError, "line 1, column 20: Sorting"),
        ("CREATE STREAM s WITH (format = 'string') AS SELECT n, n + 1 AS m FROM err_in", Clash,
         "line 1, column 23: format='string' supports exactly one value column; got 2: n, m"),
        ("CREATE STREAM s WITH (topic = 'no topic!') AS SELECT n FROM err_in", Clash,
         "line 1, column 23: `no topic!` cannot be the name of a topic"),
        ("CREATE STREAM `__penstock_sql` AS SELECT n FROM err_in PARTITION BY n", Clash,
         "line 1, column 15: The topic `__penstock_sql` is reserved"),
        ("CREATE TABLE t WITH (topic = '_schemas') AS SELECT n, COUNT(*) AS c FROM err_in GROUP BY n", Clash,
         "The topic `_schemas` is reserved"),
        ("DESCRIBE err_inn", Unknown, "did you mean `err_in`"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_anything_is_done(
    two_streams: tuple[Sql, MemoryLog], text: str, kind: type[SqlError], said: str
) -> None:
    sql, log = two_streams
    before = list(log.records)
    properties = {"auto.offset.reset": "sometime"} if "EMIT" in text else {}
    with pytest.raises(kind) as caught:
        sql.results(text, properties)
    assert said in str(caught.value)
    assert log.records == before


def test_a_star_brings_no_columns_of_the_record(engines: Engines) -> None:
    sql = engines.start()
    sql.run("CREATE STREAM star_in (n INT) WITH (format = 'json'); INSERT INTO star_in VALUES (7)")

    def columns(query: str) -> list[str]:
        found = sql.results(query)[0]
        assert isinstance(found, Rows)
        assert len(list(found.rows)) == 1
        return [name for name, _ in found.columns]

    assert columns("SELECT * FROM star_in WHERE __offset = 0") == ["n"]
    assert columns("SELECT *, __key, __offset FROM star_in") == ["n", "__key", "__offset"]
    assert columns("SELECT __offset, * FROM star_in") == ["__offset", "n"]
    assert columns("SELECT a.*, b.__offset FROM star_in a JOIN star_in b ON a.n = b.n") == ["n", "__offset"]


def test_who_only_looks_writes_no_dead_letters(engines: Engines, sql_broker: PenstockBroker) -> None:
    sql = engines.start()
    sql.run("CREATE STREAM look_in (n INT) WITH (format = 'json')")
    sql_broker.produce("look_in", [(None, b"no JSON"), (None, b'{"n": 1}')])
    assert sql.rows("SELECT n FROM look_in") == [[1]]
    topics = "SELECT n FROM look_in EMIT CHANGES LIMIT 1"
    assert sql.rows(topics, {"auto.offset.reset": "earliest"}) == [[1]]
    assert "look_in-dead-letters" not in [row[0] for row in sql.rows("SHOW TOPICS")]
    sql.run("CREATE STREAM look_out AS SELECT n FROM look_in")
    sql.eventually("SELECT n FROM look_out", [[1]])
    assert [record.value for record in sql_broker.consume("look_in-dead-letters")] == [b"no JSON"]


@pytest.mark.long
@pytest.mark.promise("spark source", "A dead letter names the query that wrote it")
def test_each_query_writes_a_letter_that_names_it(engines: Engines, sql_broker: PenstockBroker) -> None:
    sql = engines.start()
    sql.run(
        """
        CREATE STREAM dl_in (n INT) WITH (format = 'json');
        CREATE STREAM dl_copy AS SELECT n FROM dl_in;
        CREATE TABLE dl_sums AS SELECT n, COUNT(*) AS times FROM dl_in GROUP BY n;
        CREATE TABLE dl_refreshed AS SELECT n, times + 1 AS more FROM dl_sums;
        INSERT INTO dl_copy SELECT n + 100 AS n FROM dl_in
        """
    )
    sql_broker.produce("dl_in", [b"no JSON", b'{"n": 1}'])
    sql.eventually("SELECT n FROM dl_copy", [[1], [101]])
    sql.eventually("SELECT n, more FROM dl_refreshed", [[1, 2]])
    queries = [row["id"] for row in sql.table("SHOW QUERIES")]
    letters = sql_broker.consume("dl_in-dead-letters")
    assert {letter.value for letter in letters} == {b"no JSON"}
    told = sorted(dict(letter.headers)["penstock.dead.query"].decode() for letter in letters)
    assert told == sorted(each for each in queries if "dl_refreshed" not in each)
    # Where there was no letter there is no topic for them.
    there = [row[0] for row in sql.rows("SHOW TOPICS")]
    assert [each for each in there if each.startswith("dl_") and each.endswith("-dead-letters")] == [
        "dl_in-dead-letters"
    ]
    sql.run("DROP TABLE dl_refreshed DELETE TOPIC")
    assert "dl_refreshed" not in [row[0] for row in sql.rows("SHOW TOPICS")]


@pytest.mark.promise(
    "spark source",
    "The dead-letter topic is created with the first dead letter, by one task or by many at once, and no "
    "dead letter is lost; if it cannot be created, the error says what to do",
)
def test_letters_that_cannot_be_written_are_shown_and_not_lost(
    engines: Engines, sql_broker: PenstockBroker
) -> None:
    sql = engines.start()
    long = "dl_" + "l" * 240  # with -dead-letters no name of a topic any more
    sql.run(
        f"""
        CREATE STREAM dl_long (n INT) WITH (topic = '{long}', format = 'json');
        CREATE STREAM dl_short AS SELECT n FROM dl_long
        """
    )
    sql_broker.produce(long, [b"no JSON", b'{"n": 1}'])

    def shown() -> str:
        return next(row["error"] or "" for row in sql.table("SHOW QUERIES"))

    wait_until(shown)
    assert f"dead.letter.topic={long}-dead-letters does not exist and cannot be created" in shown()
    assert "name another with dead.letter.topic (in SQL: dead_letter_topic)" in shown()
    with pytest.raises(Clash, match=r"`not so` cannot be the name of a topic.*dead_letter_topic='…'"):
        sql.run("CREATE STREAM dl_bad (n INT) WITH (format = 'json', dead_letter_topic = 'not so')")
    with pytest.raises(Clash, match="reserved for internal use"):
        sql.run("CREATE STREAM dl_bad (n INT) WITH (format = 'json', dead_letter_topic = '__penstock_sql')")
    sql.run(
        f"""
        CREATE OR REPLACE STREAM dl_long (n INT)
          WITH (topic = '{long}', format = 'json', dead_letter_topic = 'dl_named');
        CREATE OR REPLACE STREAM dl_short AS SELECT n FROM dl_long
        """
    )
    sql.eventually("SELECT n FROM dl_short", [[1]])
    assert [letter.value for letter in sql_broker.consume("dl_named", 1)] == [b"no JSON"]


def test_a_row_without_its_key_is_no_row_of_a_delta_table(engines: Engines, tmp_path: Path) -> None:
    sql = engines.start()
    sql.run(
        f"""
        CREATE TABLE nk_left (id INT PRIMARY KEY, city STRING, n INT) WITH (format = 'json');
        INSERT INTO nk_left VALUES (1, 'Oslo', 1), (2, NULL, 2), (3, 'Oslo', 3);
        CREATE TABLE nk_sums WITH (storage = 'delta', path = '{tmp_path}/sums') AS
          SELECT city, SUM(n) AS n FROM nk_left GROUP BY city;
        """
    )
    sql.eventually("SELECT city, n FROM nk_sums", [["Oslo", 4]])
    sql.run("INSERT INTO nk_left VALUES (3, NULL, 3), (4, 'Rome', 5)")
    sql.eventually("SELECT city, n FROM nk_sums", [["Oslo", 1], ["Rome", 5]])


def test_what_is_not_ours_to_delete_is_not_dropped_either(engines: Engines, tmp_path: Path) -> None:
    sql = engines.start()
    sql.run(
        f"""
        CREATE STREAM del_in (k STRING, n INT) WITH (format = 'json');
        INSERT INTO del_in VALUES ('a', 1);
        CREATE TABLE del_there WITH (storage = 'delta', path = '{tmp_path}/there') AS
          SELECT k, SUM(n) AS n FROM del_in GROUP BY k;
        CREATE TABLE del_here WITH (storage = 'delta') AS SELECT k, SUM(n) AS n FROM del_in GROUP BY k;
        """
    )
    sql.eventually("SELECT n FROM del_there", [[1]])
    sql.eventually("SELECT n FROM del_here", [[1]])
    with pytest.raises(Clash, match="an external table"):
        sql.run("DROP TABLE del_there DELETE TOPIC")
    assert sql.rows("SELECT n FROM del_there") == [[1]]
    files = Path(engines.settings.storage) / "tables"
    assert list(files.iterdir())
    sql.run("DROP TABLE del_here DELETE TOPIC; DROP TABLE del_there")
    assert not list(files.iterdir()) and (tmp_path / "there").is_dir()


def test_an_insert_writes_the_key_that_it_selects(engines: Engines, sql_broker: PenstockBroker) -> None:
    sql = engines.start()
    sql.run(
        """
        CREATE STREAM ik_in (id STRING KEY, name STRING, n INT) WITH (format = 'json');
        CREATE STREAM ik_out (name STRING KEY, n INT) WITH (format = 'json');
        CREATE STREAM ik_other (name STRING KEY, n INT) WITH (format = 'json');
        INSERT INTO ik_in VALUES ('1', 'ada', 5), ('2', NULL, 6);
        INSERT INTO ik_out SELECT name, n FROM ik_in;
        INSERT INTO ik_other SELECT name, n FROM ik_in PARTITION BY id;
        """
    )
    sql.eventually("SELECT name, n FROM ik_out", [["ada", 5], [None, 6]])
    sql.eventually("SELECT name, n FROM ik_other", [["1", 5], ["2", 6]])


def test_explain_says_which_select_is_a_pull_query(engines: Engines) -> None:
    sql = engines.start()
    sql.run("CREATE TABLE ep (id INT PRIMARY KEY, n INT) WITH (format = 'json')")
    assert ["kind", "pull"] in sql.rows("EXPLAIN SELECT n FROM ep WHERE id = 1")
    assert ["kind", "batch"] in sql.rows("EXPLAIN SELECT n FROM ep WHERE n = 1")


@pytest.mark.promise(
    "sql",
    "A server runs code from clients only if it was started with that option: Python functions, and "
    "Spark's ways to call Java or start a program",
)
def test_a_server_that_takes_no_python_runs_no_query_with_a_function(engines: Engines) -> None:
    sql = engines.start()
    sql.run(
        """
        CREATE STREAM np_in (x INT) WITH (format = 'json');
        CREATE FUNCTION np_twice (x INT) RETURNS INT LANGUAGE PYTHON AS $$ x * 2 $$;
        CREATE STREAM np_out AS SELECT np_twice(x) AS y FROM np_in;
        CREATE STREAM np_plain AS SELECT x + 1 AS y FROM np_in;
        INSERT INTO np_in VALUES (1);
        """
    )
    sql.eventually("SELECT y FROM np_out", [[2]])
    engines.stop()
    allowed = engines.settings
    engines.settings = replace(allowed, python_functions=False)
    sql = engines.start()
    sql.run("INSERT INTO np_in VALUES (2)")
    sql.eventually("SELECT y FROM np_plain", [[2], [3]])

    def told() -> list[str]:
        queries = sql.engine.describe_queries()
        return [str(each["error"]) for each in queries if each.get("error")]

    wait_until(told)
    assert len(told()) == 1 and "`np_twice` is one" in told()[0] and "--allow-python-functions" in told()[0]
    for text in ("SELECT np_twice(x) FROM np_in", "SELECT reflect('java.lang.Math', 'abs', x) FROM np_in",
                 "SELECT TRANSFORM(x) USING 'cat' AS (y STRING) FROM np_in"):  # fmt: skip
        with pytest.raises(NotAllowed):
            sql.rows(text)
    assert sql.rows("SELECT y FROM np_out") == [[2]]
    engines.stop()
    engines.settings = allowed
    sql = engines.start()
    sql.eventually("SELECT y FROM np_out", [[2], [4]])
    with pytest.raises(NotAllowed):  # programs are for no server
        sql.rows("SELECT TRANSFORM(x) USING 'cat' AS (y STRING) FROM np_in WHERE x = 1")
