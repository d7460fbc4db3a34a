"""Which process of pytest runs which tests (`--dist loadgroup`), and in what order.

Tests of a file stay together: they share the brokers and clusters of their module. Files whose tests share a
Spark or a SQL server stay together, too: each takes longer to start than most tests, and gets quicker with
use. There are several Sparks, because one alone would still be at work when all others are done. The longest
come first: begun last, one of them would run alone while the other cores idle.

Tests with Spark compute for most of the time, those of brokers and clusters wait for most of it: for
sessions that end, elections, clients that try again. So only one more of the first run at once than there are
cores, and the other processes run the second beside them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling
    from xdist.workermanage import WorkerController

SHARED = SPARK, SPARK_PIPELINES, SQL_ENGINE, SQL_SERVER = (
    "Spark",
    "Spark of pipelines",
    "Spark of SQL engines",
    "SQL server",
)
# What tests/spark and tests/sql have beside the tests with a shared Spark or a shared server.
_ALONE = {
    "spark": {"test_demo", "test_pipeline_process", "test_sink_kills", "test_standalone"}
    | {"test_sink_pieces", "test_source_reader"},
    "sql": {"test_kills", "test_leading", "test_log", "test_tables"},
}
# The files of tests/sql whose engines are in the process of the tests, with its Spark.
_ENGINES = {"test_engine", "test_json_text", "test_reach"}
# The files of tests/spark that share the second Spark: about half of the time of all.
_PIPELINES = ("test_pipeline_", "test_state_", "test_streams_", "test_dead_", "test_delta", "test_sql_")
# The groups, files and directories with long tests, the longest first.
_FIRST = (
    SQL_SERVER,
    SPARK,
    SPARK_PIPELINES,
    SQL_ENGINE,
    "test_kills",
    "test_sink_kills",
    "test_demo",
    "test_pipeline_process",
    "test_leading",
    "test_standalone",
    "test_streaming_pages",
    "cluster",
    "tools",
    "messaging",
)


# Beside the groups, what has a Spark.
_WITH_SPARK = {"test_demo", "test_pipeline_process", "test_sink_kills", "test_standalone"} | {
    "test_kills",
    "test_leading",
    "test_streaming_pages",
}
_MOST_SPARKS = 3


def group(path: Path) -> str:
    """What the tests of a file share with those of other files, or the file itself."""
    directory = path.parent.name if path.parent.parent.name == "tests" else ""
    if directory in _ALONE and path.stem not in _ALONE[directory]:
        if directory == "sql":
            return SQL_ENGINE if path.stem in _ENGINES else SQL_SERVER
        return SPARK_PIPELINES if path.stem.startswith(_PIPELINES) else SPARK
    return path.as_posix()


def rank(path: Path) -> int:
    """Where its tests come in the order of all."""
    names = (group(path), path.stem, path.parent.name)
    return next((at for at, name in enumerate(_FIRST) if name in names), len(_FIRST))


def computes(name: str) -> bool:
    """Whether the tests of a group have a Spark."""
    path = Path(name)
    return name in SHARED or (path.parent.name in (*_ALONE, "browser") and path.stem in _WITH_SPARK)


def scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    from xdist.scheduler.loadscope import LoadScopeScheduling

    # The groups of xdist itself are part of node ids, which pytest 9 does not let it change.
    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(Path(nodeid.split("::", 1)[0]))

        def _assign_work_unit(self, node: WorkerController) -> None:
            at_work = [
                other
                for other, units in self.assigned_work.items()
                if other is not node
                and any(computes(name) and not all(tests.values()) for name, tests in units.items())
            ]
            if len(at_work) >= _MOST_SPARKS:
                other = next((name for name in self.workqueue if not computes(name)), None)
                if other is not None:
                    self.workqueue.move_to_end(other, last=False)
            super()._assign_work_unit(node)

    return Groups(config, log)
