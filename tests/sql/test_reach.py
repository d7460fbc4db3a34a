"""How far a statement reaches: to what its user may read, and to no file, class or program of the server."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.sql.continuous.preparing import new_session
from penstock.sql.continuous.spark_queries import analysed, withheld
from penstock.sql.errors import NotAllowed, SqlError
from penstock.sql.language.properties import SPARK_SETTINGS
from penstock.sql.server.engine import Engine
from penstock.sql.server.script import Script
from penstock.sql.settings import EngineSettings
from penstock.testing import PenstockBroker
from penstock.web.access import Principal, Role
from tests.registry.conftest import RegistryProcess
from tests.sql.engines import MemoryLog, Sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

SECRET = "hush-4711"
READER = Principal("reader", Role.READ)


class Reach:
    def __init__(self, sql: Sql, spark: SparkSession, home: Path) -> None:
        self.sql = sql
        self.spark = spark
        self.home = home

    def __call__(self, text: str) -> str:
        return text.format(file=self.home / "secret", out=self.home / "out", d="$$")

    def said(self, text: str, principal: Principal = READER) -> str:
        lines: list[bytes] = []
        script = Script(text, {}, {}, self.sql.engine, principal)
        script.run(lines.append)
        return b"".join(lines).decode()


@pytest.fixture(scope="module")
def reach(
    spark: SparkSession,
    sql_broker: PenstockBroker,
    sql_registry: RegistryProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Reach]:
    """An engine that takes no code, a stream `in_reach`, and a file that is nobody's business."""
    home = tmp_path_factory.mktemp("reach")
    (home / "secret").write_text(f"{SECRET}\n")
    settings = EngineSettings(sql_broker.bootstrap, sql_registry.url, str(home / "storage"))
    engine = Engine(settings, MemoryLog(), spark=spark)
    engine.start()
    engine.take_over()
    sql = Sql(engine)
    sql.run(
        "CREATE STREAM in_reach (n INT) WITH (format = 'json'); INSERT INTO in_reach VALUES (1);"
        "CREATE STREAM copied (value STRING) WITH (format = 'json');"
        "CREATE TABLE kept (id INT PRIMARY KEY, v STRING) WITH (format = 'json')"
    )
    # What others have: a view of a session, one of all sessions, and a table of Spark's own catalog.
    others = spark.newSession()
    rows = others.createDataFrame([(SECRET,)], "value STRING")
    rows.createOrReplaceTempView("of_others")
    rows.createOrReplaceGlobalTempView("of_others")
    others.sql(f"CREATE TABLE of_others (value STRING) USING text LOCATION '{home}/secret'")
    yield Reach(sql, spark, home)
    others.sql("DROP TABLE spark_catalog.default.of_others")
    others.catalog.dropGlobalTempView("of_others")
    engine.stop()


READING = [
    "SELECT * FROM text.`{file}`",
    "SELECT * FROM text . /* a */ `{file}` AS t",
    "SELECT * FROM `text`.`{file}`",
    "SELECT * FROM IDENTIFIER('text.`{file}`')",
    "SELECT * FROM IDENTIFIER('text.' || '`{file}`') AS t",
    "SELECT (SELECT max(value) FROM text.`{file}`) AS v",
    "SELECT n FROM in_reach WHERE EXISTS (SELECT 1 FROM text.`{file}`)",
    "SELECT * FROM in_reach JOIN text.`{file}` ON true",
    "SELECT * FROM in_reach, LATERAL (SELECT * FROM text.`{file}`)",
    "WITH t AS (TABLE text.`{file}`) SELECT * FROM t",
    "SELECT * FROM (TABLE text.`{file}`)",
    "SELECT n FROM in_reach UNION ALL SELECT value FROM csv.`{file}`",
    "FROM text.`{file}` |> SELECT value",
    "SELECT * FROM VALUES ((SELECT max(value) FROM text.`{file}`)) AS x(a)",
    "SELECT * FROM binaryFile.`{file}`",
    "SELECT * FROM json.`{file}`",
    "SELECT * FROM penstock.`{file}`",
    "SELECT from_xml('<p><a>1</a></p>', 'a STRING', map('rowValidationXSDPath', '{file}')) AS x",
    "SELECT schema_of_xml('<p><a>1</a></p>', map('rowValidationXSDPath', '{file}')) AS x",
    "SELECT reflect('java.nio.file.Files', 'readString', '{file}') AS x",
    "SELECT IDENTIFIER('re' || 'flect')('java.lang.System', 'getProperty', 'user.dir') AS x",
    "SELECT n, input_file_name() AS x FROM in_reach",
    "SELECT * FROM python_worker_logs()",
    "SELECT * FROM spark_catalog.default.of_others",
    "SELECT * FROM of_others",
    "SELECT * FROM global_temp.of_others",
]


@pytest.mark.promise(
    "sql",
    "A query can read the relations that it names and is allowed to read, and no file of the server by path",
)
@pytest.mark.parametrize("text", READING)
def test_a_query_reads_nothing_but_relations(reach: Reach, text: str) -> None:
    text = reach(text)
    for written in (
        text,
        f"EXPLAIN {text}",
        f"{text} EMIT CHANGES LIMIT 1",
        f"CREATE STREAM of_files WITH (format = 'json') AS {text}",
        f"INSERT INTO copied {text}",
        f"CREATE TABLE of_files WITH (storage = 'delta') AS {text}",
    ):
        with pytest.raises(SqlError) as refused:
            for result in reach.sql.results(written):
                list(getattr(result, "rows", ()))
        assert SECRET not in str(refused.value), written
    # Without our reading of the text: by what the session has, and what Spark makes of it.
    session = new_session(reach.spark, {}, 1, streaming=False, any_setting=False)
    session.createDataFrame([(1,)], "n INT").createOrReplaceTempView("in_reach")
    with pytest.raises(Exception, match=r"(?s).") as found:
        analysed(session, text, ["in_reach"]).collect()
    assert type(found.value).__name__ in ("NotAllowed", "AnalysisException"), found.value


@pytest.mark.promise(
    "sql",
    "A query can read the relations that it names and is allowed to read, and no file of the server by path",
)
def test_a_pull_query_and_written_values_read_nothing_else(reach: Reach) -> None:
    reach.sql.run("INSERT INTO kept VALUES (1, 'a')")
    reach.sql.eventually("SELECT v FROM kept WHERE id = 1", [["a"]])
    for text in (
        "SELECT upper(v), (SELECT max(value) FROM text.`{file}`) FROM kept WHERE id = 1",
        "SELECT upper(v) FROM kept WHERE id = 1 AND v IN (SELECT value FROM IDENTIFIER('text.`{file}`'))",
        "INSERT INTO kept VALUES (2, (SELECT max(value) FROM text.`{file}`))",
        "INSERT INTO kept VALUES (2, (SELECT max(v) FROM kept))",
        "INSERT INTO kept VALUES (2, reflect('java.lang.System', 'getProperty', 'user.dir'))",
    ):
        with pytest.raises(SqlError) as refused:
            for result in reach.sql.results(reach(text)):
                list(getattr(result, "rows", ()))
        assert SECRET not in str(refused.value)


@pytest.mark.promise("sql", "A query cannot write a file of the server, start a program or run a command")
@pytest.mark.parametrize(
    "text",
    [
        "WITH x AS (SELECT 1 AS a) INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT * FROM x",
        "FROM in_reach INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT *",
        "FROM in_reach INSERT OVERWRITE LOCAL DIRECTORY '{out}' SELECT *",
        "WITH x AS (SELECT 1 AS a) FROM x INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT *",
        "SELECT TRANSFORM(n) USING 'touch {out}' AS (y STRING) FROM in_reach",
        "EXECUTE IMMEDIATE 'CREATE TABLE o USING csv LOCATION \"{out}\" AS SELECT 1 AS a'",
        "BEGIN CREATE TABLE o USING csv LOCATION '{out}' AS SELECT 1 AS a; END",
        "CREATE TABLE o USING csv LOCATION '{out}' AS SELECT 1 AS a",
        "CREATE TEMPORARY VIEW o USING csv OPTIONS (path '{file}')",
        "ADD JAR '{file}'",
        "SET spark.sql.runSQLOnFiles = true",
    ],
)
def test_a_query_does_nothing_else(reach: Reach, text: str) -> None:
    text = reach(text)
    assert '"error"' in reach.said(text) or text.startswith("SET")
    session = new_session(reach.spark, {}, 1, streaming=False, any_setting=False)
    session.createDataFrame([(1,)], "n INT").createOrReplaceTempView("in_reach")
    with pytest.raises(NotAllowed):
        analysed(session, text, ["in_reach"]).collect()
    assert not (reach.home / "out").exists()
    # Spark itself does it.
    if "OVERWRITE DIRECTORY" in text:
        session.sql(text)
        assert (reach.home / "out").is_dir()
        for each in (reach.home / "out").iterdir():
            each.unlink()
        (reach.home / "out").rmdir()


@pytest.mark.promise(
    "sql", "SET accepts harmless Spark settings, and rejects those that name classes, files or hosts"
)
def test_who_may_read_gives_spark_no_class_file_or_host(reach: Reach, tmp_path: Path) -> None:
    settings = {
        "spark.sql.catalog.evil": "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
        "spark.sql.catalog.evil.url": f"jdbc:derby:{tmp_path}/database;create=true",
        "spark.sql.runSQLOnFiles": "true",
        "spark.sql.streaming.checkpointFileManagerClass": "no.such.Class",
        "spark.sql.queryExecutionListeners": "no.such.Class",
        "spark.sql.sources.default": "text",
        "spark.hadoop.fs.defaultFS": "http://127.0.0.1:1",
        "spark.SQL.ansi.enabled": "false",
    }
    for name, value in settings.items():
        said = reach.said(f"SET '{name}' = '{value}'; SELECT n FROM in_reach;")
        assert '"NotAllowed"' in said and "needs the role admin" in said and '"row"' not in said, said
        for text in (
            "SELECT n FROM in_reach",
            "SELECT n FROM in_reach EMIT CHANGES",
            "EXPLAIN SELECT 1 AS n",
            "INSERT INTO in_reach VALUES (1 + 1)",
            "CREATE STREAM o AS SELECT n FROM in_reach",
        ):
            # Nobody logs in here, and the server was not started to run code.
            with pytest.raises(NotAllowed, match="--allow-python-functions"):
                for result in reach.sql.results(text, {name: value}):
                    list(getattr(result, "rows", ()))
    assert list(tmp_path.iterdir()) == []
    said = reach.said("SET 'spark.sql.ansi.enabled' = 'true'; SELECT n FROM in_reach;")
    assert '{"row":[1]}' in said


@pytest.mark.promise(
    "sql", "A query reveals neither the environment variables of the server nor the settings of its Spark"
)
def test_sparks_variables_are_text(reach: Reach) -> None:
    """`${env:NAME}` as a value of one of our variables, which is not looked at again."""
    for name in ("env:HOME", "system:user.dir", "spark.app.name"):
        written = "${" + name + "}"
        lines: list[bytes] = []
        script = Script("SELECT '${v}' AS x FROM in_reach;", {}, {"v": written}, reach.sql.engine, READER)
        assert script.run(lines.append)
        assert f'{{"row":["{written}"]}}' in b"".join(lines).decode()
        session = new_session(
            reach.spark, {"spark.sql.variable.substitute": "true"}, 1, streaming=False, any_setting=True
        )
        assert analysed(session, f"SELECT '{written}' AS x").collect() == [(written,)]
        assert reach.spark.newSession().sql(f"SELECT '{written}' AS x").collect() != [(written,)]


def test_settings_that_everybody_may_give_are_sparks(reach: Reach) -> None:
    unknown = [name for name in SPARK_SETTINGS if not reach.spark.conf.isModifiable(name)]
    assert unknown == []


@pytest.mark.promise(
    "sql",
    "A query can read the relations that it names and is allowed to read, and no file of the server by path",
)
def test_no_setting_opens_files_to_queries(reach: Reach) -> None:
    engine = reach.sql.engine
    closed, open_ = engine.settings, replace(engine.settings, python_functions=True)
    session = new_session(
        reach.spark,
        {"spark.sql.runSQLOnFiles": "true"},
        1,
        streaming=False,
        any_setting=open_.python_functions,
    )
    assert session.conf.get("spark.sql.runSQLOnFiles") == "false" and not closed.python_functions
    # Without the check of the plan, too.
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        session.sql(reach("SELECT * FROM text.`{file}`"))
    fresh = reach.spark.newSession()
    assert fresh.sql(reach("SELECT * FROM text.`{file}`")).collect() == [(SECRET,)]


@pytest.mark.promise(
    "sql",
    "A query can read the relations that it names and is allowed to read, and no file of the server by path",
)
def test_the_plan_alone_refuses_what_is_no_view_of_the_session(reach: Reach) -> None:
    """In a session that still reads files: the second lock holds without the first."""
    session = new_session(reach.spark, {}, 1, streaming=False, any_setting=False)
    session.conf.set("spark.sql.runSQLOnFiles", "true")
    session.createDataFrame([(1,)], "n INT").createOrReplaceTempView("in_reach")
    for text in (
        "SELECT * FROM text.`{file}`",
        "SELECT * FROM IDENTIFIER('text.' || '`{file}`')",
        "SELECT (SELECT max(value) FROM text.`{file}`)",
        "WITH t AS (SELECT * FROM text.`{file}`) SELECT count(*) FROM t",
        "SELECT 1 IN (SELECT length(value) FROM text.`{file}`)",
        "FROM text.`{file}` |> AGGREGATE max(value)",
        "SELECT n FROM in_reach ORDER BY (SELECT max(value) FROM text.`{file}`)",
        "SELECT sum(n) OVER (ORDER BY (SELECT max(value) FROM text.`{file}`)) FROM in_reach",
        "SELECT n FROM in_reach GROUP BY n HAVING (SELECT count(*) FROM text.`{file}`) > 0",
        "SELECT * FROM explode((SELECT collect_list(value) FROM text.`{file}`))",
        "SELECT CASE WHEN EXISTS (SELECT 1 FROM text.`{file}`) THEN n END FROM in_reach",
        "SELECT * FROM in_reach JOIN in_reach b ON (SELECT count(*) FROM text.`{file}`) > 0",
        "WITH RECURSIVE r AS (SELECT value FROM text.`{file}` UNION ALL SELECT value FROM r WHERE false) "
        "SELECT * FROM r",
        "FROM in_reach |> EXTEND (SELECT max(value) FROM text.`{file}`) AS x",
        "FROM in_reach |> SELECT CAST(n AS STRING) AS n |> UNION ALL TABLE text.`{file}`",
        "SELECT max(a) FILTER (WHERE a IN (SELECT value FROM text.`{file}`)) FROM VALUES ('a') AS t (a)",
        "SELECT * FROM in_reach UNPIVOT (v FOR k IN (n)) WHERE v < (SELECT count(*) FROM text.`{file}`)",
    ):
        with pytest.raises(NotAllowed):
            analysed(session, reach(text), ["in_reach"])
    session.createDataFrame([(1,)], "n INT").createOrReplaceTempView("unchecked")
    with pytest.raises(NotAllowed):
        analysed(session, "SELECT * FROM unchecked", ["another"])


@pytest.mark.promise(
    "sql",
    "A query can read the relations that it names and is allowed to read, and no file of the server by path",
)
def test_functions_of_spark_that_reach_outside_are_not_there(reach: Reach) -> None:
    names = withheld(reach.spark)
    assert {
        "reflect",
        "java_method",
        "try_reflect",
        "input_file_name",
        "from_xml",
        "python_worker_logs",
    } <= set(names)
    session = new_session(reach.spark, {}, 1, streaming=False, any_setting=False)
    for name in names:
        for call in (
            f"SELECT {name}('a', 'b')",
            f"SELECT builtin.{name}('a', 'b')",
            f"SELECT * FROM {name}()",
        ):
            with pytest.raises(Exception, match=r"UNRESOLVED_ROUTINE|UNRESOLVABLE_TABLE_VALUED_FUNCTION"):
                analysed(session, call)


@pytest.mark.promise(
    "sql", "Tables over files that an administrator has declared can be read like other tables"
)
def test_declared_tables_over_files_are_read(reach: Reach) -> None:
    path = reach.home / "prices"
    reach.spark.createDataFrame([(1, "a"), (2, "b")], "id INT, v STRING").write.parquet(str(path))
    reach.sql.run(
        f"CREATE TABLE prices (id INT PRIMARY KEY, v STRING) WITH (storage = 'parquet', path = '{path}')"
    )
    assert sorted(reach.sql.rows("SELECT v FROM prices")) == [["a"], ["b"]]
    joined = "SELECT p.v FROM in_reach i JOIN prices p ON p.id = i.n"
    assert reach.sql.rows(joined) == [["a"]]


@pytest.mark.promise("sql", "Another user of the machine cannot use the ports of a server's Spark")
def test_who_connects_to_sparks_port_needs_its_secret(spark: SparkSession) -> None:
    port = int(spark.sparkContext.getConf().get("spark.driver.port") or 0)
    body = b"the bytes of Java objects, which a Spark without a secret makes"
    request = struct.pack(">BqI", 3, 1, len(body)) + body  # an RpcRequest of Spark's protocol
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(struct.pack(">q", 8 + len(request)) + request)
        answer = connection.recv(65536)
    assert answer[8] == 5 and b"Expected SaslMessage" in answer  # an RpcFailure
