"""The processes of pytest get their tests so that at most three Sparks compute at once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.scheduling import computes, group, scheduler

ENGINE, KILLS, DEMO = "tests/sql/test_engine.py", "tests/sql/test_kills.py", "tests/spark/test_demo.py"
LEADING = "tests/sql/test_leading.py"
FAILOVER, DISKS = "tests/cluster/test_failover.py", "tests/cluster/test_disks.py"
TESTS = [f"{path}::test_{n}" for path in (ENGINE, KILLS, DEMO, LEADING, FAILOVER, DISKS) for n in range(4)]


class Node:
    """A process of pytest, and the tests that it was given."""

    shutting_down = False

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="gw")
        self.given: list[int] = []

    def send_runtest_some(self, indexes: list[int]) -> None:
        self.given += indexes

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(TESTS[index].split("::")[0] for index in self.given))


def test_three_processes_compute_and_the_others_take_tests_that_wait() -> None:
    config = SimpleNamespace(
        getvalue=lambda name: ["popen"] * 4, option=SimpleNamespace(loadscopereorder=False)
    )
    scheduling: Any = scheduler(
        cast(Any, config), cast(Any, SimpleNamespace(loadscopesched=lambda *words: None))
    )
    nodes = [Node() for _ in range(4)]
    for node in nodes:
        scheduling.add_node(node)
    for node in nodes:
        scheduling.add_node_collection(node, TESTS)
    scheduling.schedule()
    assert [node.files for node in nodes] == [[ENGINE], [KILLS], [DEMO], [FAILOVER]]

    # The last is nearly done while the others compute: it gets what waits, too.
    for index in nodes[3].given[:2]:
        scheduling.mark_test_complete(nodes[3], index)
    assert nodes[3].files == [FAILOVER, DISKS]
    # One of the others is nearly done: it goes on with what computes.
    for index in nodes[0].given[:2]:
        scheduling.mark_test_complete(nodes[0], index)
    assert nodes[0].files == [ENGINE, LEADING]


def test_which_files_have_a_spark() -> None:
    assert all(map(computes, ("Spark", "Spark of pipelines", "SQL server", group(Path(ENGINE)), KILLS, DEMO)))


def test_engines_of_one_process_share_its_spark() -> None:
    files = (f"tests/sql/test_{name}.py" for name in ("engine", "json_text", "reach"))
    assert {group(Path(file)) for file in files} == {"Spark of SQL engines"}
    assert group(Path("tests/sql/test_golden.py")) == "SQL server"
    assert not any(map(computes, (FAILOVER, "tests/sql/test_log.py", "tests/spark/test_source_reader.py")))
