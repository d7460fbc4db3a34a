"""Which process of pytest runs which tests (`--dist loadgroup`), and in what order.

Tests of a file stay together: they share the brokers and clusters of their module. Files whose tests share a
Spark or a SQL server stay together, too: each takes longer to start than most tests, and gets quicker with
use. The longest come first: begun last, one of them would run alone while the other cores idle.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

SPARK, SQL_SERVER = "Spark", "SQL server"
# What tests/spark and tests/sql have beside the tests with a shared Spark or a shared server.
_ALONE = {
    "spark": {"test_demo", "test_pipeline_process", "test_sink_kills", "test_standalone"}
    | {"test_sink_pieces", "test_source_reader"},
    "sql": {"test_engine", "test_kills", "test_leading", "test_log", "test_tables"},
}
# The groups, files and directories with long tests, the longest first.
_FIRST = (
    SQL_SERVER,
    SPARK,
    "test_engine",
    "test_kills",
    "test_sink_kills",
    "test_demo",
    "test_pipeline_process",
    "test_leading",
    "test_standalone",
    "cluster",
    "tools",
)


def group(path: Path) -> str:
    """What the tests of a file share with those of other files, or the file itself."""
    directory = path.parent.name if path.parent.parent.name == "tests" else ""
    if directory in _ALONE and path.stem not in _ALONE[directory]:
        return SPARK if directory == "spark" else SQL_SERVER
    return path.as_posix()


def rank(path: Path) -> int:
    """Where its tests come in the order of all."""
    names = (group(path), path.stem, path.parent.name)
    return next((at for at, name in enumerate(_FIRST) if name in names), len(_FIRST))


def scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    from xdist.scheduler.loadscope import LoadScopeScheduling

    # The groups of xdist itself are part of node ids, which pytest 9 does not let it change.
    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(Path(nodeid.split("::", 1)[0]))

    return Groups(config, log)
