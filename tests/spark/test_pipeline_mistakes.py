"""A project that cannot run is refused with one line: the file, the line in it, what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from penstock.pipelines.errors import BadDefinition, PipelineError
from tests.spark.pipeline_runs import PipelineRun

pytestmark = pytest.mark.timeout(300)

PYTHON = "from pyspark import pipelines as dp\n"
STREAM = 'spark.readStream.format("rate").load()'


@pytest.fixture
def run(spark, tmp_path: Path) -> Iterator[PipelineRun]:
    pipeline = PipelineRun(spark, tmp_path / "shop")
    yield pipeline
    pipeline.drop()


@pytest.mark.promise("pipelines", "An error in a project is reported in one line with its position")
@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("a.py", PYTHON + "@dp.table\ndef t(:\n", "a.py:3: invalid syntax"),
        ("a.py", PYTHON + "\n1 / 0\n", "a.py:3: ZeroDivisionError: division by zero"),
        ("a.py", PYTHON + "@dp.table\ndef t():\n    return spark.nope\n", "a.py:4: flow 't': AttributeError"),
        (
            "a.py",
            PYTHON + "@dp.table\ndef t():\n    pass\n",
            "a.py:2: flow 't' gave NoneType and no DataFrame",
        ),
        (
            "a.py",
            PYTHON + "@dp.table\ndef t():\n    return spark.range(3)\n",
            "must read a stream: use spark.readStream",
        ),
        (
            "a.py",
            PYTHON + f"@dp.materialized_view\ndef m():\n    return {STREAM}\n",
            "'m' reads a stream: use spark.read",
        ),
        (
            "a.py",
            PYTHON + "@dp.table\ndef t():\n    return spark.readStream.format('nope').load()\n",
            "a.py:4: flow 't': [DATA_SOURCE_NOT_FOUND] Failed to find the data source: nope",
        ),
        (
            "a.py",
            PYTHON + f"@dp.table(format='nope')\ndef t():\n    return {STREAM}\n",
            "a.py:2: streaming table 't': [DATA_SOURCE_NOT_FOUND]",
        ),
        (
            "a.py",
            PYTHON + f"@dp.table(format='delta')\ndef t():\n    return {STREAM}\n",
            "create_sink(format='delta')",
        ),
        (
            "a.py",
            PYTHON + "@dp.table\ndef t():\n    return spark.readStream.table('gone')\n",
            "a.py:4: flow 't' reads 'gone', which neither pipeline nor catalog has",
        ),
        (
            "a.sql",
            "CREATE STREAMING TABLE t AS\nSELECT *\nFROM STREAM gone",
            "a.sql:3: flow 't' reads 'gone'",
        ),
        (
            "a.sql",
            "CREATE MATERIALIZED VIEW m AS\n\nSELEC 1",
            "a.sql:3: flow 'm': [PARSE_SYNTAX_ERROR]",
        ),
        ("a.sql", "SET spark.sql.nope", "a.sql:1: expected SET key = value"),
        (
            "a.sql",
            "CREATE MATERIALIZED VIEW a AS SELECT * FROM b;\nCREATE MATERIALIZED VIEW b AS SELECT * FROM a",
            "a.sql:1: flows depend on each other in a cycle: 'a' reads 'b' reads 'a'",
        ),
        (
            "a.py",
            PYTHON + "dp.create_auto_cdc_flow('t', 's', ['k'], 'v')\n",
            "a.py:2: AUTO CDC runs with `penstock pipeline run --once` only",
        ),
        ("notes.txt", "x", "notes.txt: only .py and .sql files"),
    ],
)
def test_a_mistake_is_told_in_one_line(run: PipelineRun, file: str, text: str, says: str):
    run.write(file, text)
    with pytest.raises(BadDefinition) as raised, run.running():
        pass
    message = str(raised.value)
    assert says in message
    assert message.startswith("transformations/")
    assert "\n" not in message
    assert "Traceback" not in message


def test_a_rebuild_of_nothing_is_refused(run: PipelineRun):
    run.write("a.py", PYTHON + f"@dp.table\ndef t():\n    return {STREAM}\n")
    with (
        pytest.raises(PipelineError, match=r"--rebuild x: no such flow or table\. Available: t"),
        run.running(rebuild=("x",)),
    ):
        pass


def test_flows_that_disagree_on_a_column_are_refused(run: PipelineRun):
    flow = "@dp.append_flow(target='t')\ndef {}():\n    return {}.selectExpr('{}')\n"
    run.write(
        "a.py",
        PYTHON
        + "dp.create_streaming_table('t')\n"
        + flow.format("one", STREAM, "1 AS c")
        + flow.format("two", STREAM, "string(1) AS c"),
    )
    with pytest.raises(BadDefinition, match="disagree on column 'c': int and string"), run.running():
        pass
