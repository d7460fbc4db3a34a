"""The code blocks of the pages: which test runs each command and program, and which ones no test can run.

A block in `sh` or `console` is a list of commands; one in `python` or `sql` is a program. Each of them has
tests (`RUN_BY`) or a reason (`NOT_RUN`); tests/unit/test_doc_blocks.py fails for one that has neither. A test
takes what it runs from here, so that a new command of its page reaches it: the commands of a page or of one
of its sections (`commands`), all programs (`programs`), or one that it names by a text in it (`program`).
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ("sh", "console")
PROGRAMS = ("python", "sql")
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for directory in (ROOT, ROOT / "docs", ROOT / "examples")
    for path in (directory.rglob("*.md") if directory.name == "examples" else directory.glob("*.md"))
    # Made from golden files, which the tests of SQL run (tests/sql/docs.py).
    if path != ROOT / "docs" / "sql.md"
)
# Beginnings of commands that are run on no page.
ANYWHERE = {
    "make ": "make would run itself; tests/unit/test_docs.py checks that the targets exist",
    ".venv/bin/": "programs of the tests themselves",
    "pip install": "`make dist` tries the wheel and its extras in an empty environment",
    "source .venv/bin/activate": "the tests run in such an environment",
    "docker ": "needs a container engine; tests/unit/test_deploy.py checks the files",
    "kubectl ": "needs a Kubernetes cluster; tests/unit/test_deploy.py checks the files",
}
UP = "starts what the page's commands use, on fixed ports; the page's test has its own"
SYSTEM = "changes the system as root; tests/unit/test_deploy.py checks the units"
KAFKA = "needs Apache Kafka: tests/tools/test_data_directory_moves.py runs it"
CLUSTER = "needs a cluster: tests/cluster/test_write_guarantees.py runs it"
DATABASE = "needs a database: tests/spark/test_pipeline_connectors.py runs it"
# Beginnings of commands and programs of one page.
NOT_RUN = {
    "CONTRIBUTING.md": {'@pytest.mark.promise("log"': "shows the form of a marker"},
    "README.md": {"penstock up": UP},
    "docs/cluster.md": {"penstock up --brokers 3": "tests/cluster/test_up_brokers.py does, on free ports"},
    "docs/connect.md": {
        "penstock up": UP,
        "penstock connect --bootstrap kafka-1": "every test of tests/connect does, with its own cluster",
    },
    "docs/connect-mysql.md": {
        "CREATE USER penstock": "tests/connect/mysql makes the users of its servers with such statements",
    },
    "docs/console.md": {"penstock up": "tests/connect/test_up.py and tests/browser do"},
    "docs/delivery.md": {
        "penstock up": UP,
        "penstock topics create ledger": CLUSTER,
        "echo 'alice:12' | penstock produce ledger": CLUSTER,
        "python examples/lectures/": "needs a cluster: tests/cluster/test_lecture_reliability.py runs it",
    },
    "docs/demo.md": {
        "RUN_SECONDS=90 make run": "tests/spark/test_demo.py runs `penstock demo` with RUN_SECONDS",
        "penstock demo": "takes minutes of all cores; tests/spark/test_demo.py runs it in a shorter way",
    },
    "docs/install.md": {
        "python3 -m venv ": "`make dist` does it with each Python that is there",
        "~/penstock/bin/": "`make dist` does it with each Python that is there",
    },
    "docs/operate.md": {
        "useradd ": SYSTEM,
        "python3 -m venv ": SYSTEM,
        "/opt/penstock/bin/pip ": SYSTEM,
        "install ": SYSTEM,
        "systemctl ": SYSTEM,
        "for host in ": "restarts other machines' services; tests/cluster/test_versions.py does it here",
        "penstock backup data /var/lib/kafka": KAFKA,
        "penstock broker --set node.id=1 --set log.dirs=/var/lib/kafka": KAFKA,
        "penstock log verify /var/lib/kafka": KAFKA,
    },
    "docs/pipelines.md": {
        "penstock up": UP,
        "penstock pipeline run shop": "starts a Spark of its own: tests/spark/test_pipeline_process.py does",
        "export SHOP_PASSWORD=": DATABASE,
        "penstock pipeline init shop --from": DATABASE,
        "penstock pipeline status shop": DATABASE,
        "python examples/etl/run.py": "needs databases: tests/spark/test_etl.py runs it",
    },
    "docs/registry.md": {
        "penstock up": UP,
        "penstock registry": "tests/registry/test_several.py and test_security.py do, with their own cluster",
    },
    "docs/security.md": {
        "kafka-delegation-tokens.sh": "a tool of Kafka's: tests/tools/test_delegation_token_tools.py runs it",
        "penstock up --secure": "tests/clients/test_up_secure.py does, on free ports",
    },
    "docs/sql-server.md": {
        "penstock sql --server": "a shell on a terminal: tests/sql/test_shell.py runs it on one",
        "penstock acls allow User:sql create-tokens": "tests/clients/test_sql_rights.py does, for its server",
        "SELECT n FROM views_per_minute": "its table is an example; tests/sql/golden/windows_tumbling.test",
    },
    "docs/streams.md": {
        "penstock up": UP,
        "python examples/streams/time_windows.py": "starts a Spark of its own; "
        "tests/spark/test_streams_examples.py runs it, with these options, in the one that tests share",
        "penstock consume clicks.session": "tests/spark/test_streams_examples.py reads it",
    },
    "examples/lectures/README.md": {"penstock up": UP},
}
_LECTURES = ("tests/lectures/test_docs_pages.py",)
_UP = ("tests/connect/test_docs_up.py",)
_SPARK = ("tests/spark/test_docs_spark.py",)
_SQL = ("tests/sql/test_examples.py",)
# The tests that run what is left of a page, in a language; `sh` stands for `console`, too.
RUN_BY = {
    ("README.md", "sh"): _UP,
    ("README.md", "python"): (*_SPARK, "tests/clients/test_docs_testing.py"),
    ("README.md", "sql"): _SQL,
    ("docs/cluster.md", "sh"): ("tests/cluster/test_docs_cluster.py",),
    ("docs/concepts.md", "sh"): _LECTURES,
    ("docs/connect.md", "sh"): _UP,
    ("docs/connect-messaging.md", "sh"): _UP,
    ("docs/connect-mysql.md", "sh"): _UP,
    ("docs/connect-postgres.md", "sh"): _UP,
    ("docs/connect-sql.md", "sh"): _UP,
    ("docs/console.md", "sh"): ("tests/console/test_docs_console.py",),
    ("docs/delivery.md", "sh"): ("tests/examples/test_docs_delivery.py",),
    ("docs/demo.md", "sh"): ("tests/spark/test_demo.py",),
    ("docs/from-kafka.md", "sh"): _LECTURES,
    ("docs/from-ksqldb.md", "sql"): _SQL,
    ("docs/from-spark-kafka.md", "python"): ("tests/spark/test_docs_from_spark_kafka.py",),
    ("docs/metrics.md", "sh"): ("tests/clients/test_broker_metrics.py",),
    ("docs/mirror.md", "sh"): ("tests/connect/mirror/test_docs_mirror.py",),
    ("docs/operate.md", "sh"): (
        "tests/cluster/test_docs_operate.py",
        "tests/connect/mirror/test_docs_mirror.py",
    ),
    ("docs/pipelines.md", "sh"): ("tests/spark/test_pipeline_topics.py",),
    ("docs/pipelines.md", "python"): _SPARK,
    ("docs/registry.md", "sh"): _UP,
    ("docs/registry.md", "python"): _UP,
    ("docs/security.md", "sh"): (
        *_UP,
        "tests/clients/test_up_secure.py",
        "tests/clients/test_cli_access.py",
    ),
    ("docs/spark.md", "sh"): _SPARK,
    ("docs/spark.md", "python"): _SPARK,
    ("docs/spark-sink.md", "python"): _SPARK,
    ("docs/sql-server.md", "sh"): _SQL,
    ("docs/sql-server.md", "python"): _SQL,
    ("docs/streams.md", "python"): _SPARK,
    ("docs/testing.md", "python"): ("tests/clients/test_docs_testing.py",),
    ("docs/troubleshooting.md", "sh"): _LECTURES,
    ("examples/lectures/README.md", "sh"): _LECTURES,
}


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    section: str
    """The heading that it is below."""

    @property
    def units(self) -> list[str]:
        """What is run or not run as one: a command, or the whole program."""
        if self.language in PROGRAMS:
            return [self.text]
        text = self.text.replace("\\\n", " ")
        lines = text.splitlines()
        if self.language == "console":
            return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        found: list[str] = []
        for line in lines:
            if found and found[-1].startswith("for ") and not found[-1].endswith("\ndone"):
                found[-1] += "\n" + line
            elif line.strip() and not line.lstrip().startswith("#"):
                found.append(line)
        return found


def blocks(page: str, *languages: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found, section = [], ""
    for each in re.finditer(r"^#+ (?P<heading>[^\n]*)$|^( *)```(\w*)\n(.*?)^\2```", text, re.M | re.S):
        if each["heading"] is not None:
            section = each["heading"]
        elif not languages or each[3] in languages:
            line = text.count("\n", 0, each.start()) + 1
            found.append(Block(page, line, each[3], textwrap.dedent(each[4]), section))
    return found


def reason(page: str, unit: str) -> str | None:
    """Why no test runs a command or a program, or runs it elsewhere; None if the page's test runs it."""
    for begins, why in (ANYWHERE | NOT_RUN.get(page, {})).items():
        if unit.startswith(begins):
            return why
    return None


def commands(page: str, section: str | None = None) -> list[str]:
    """The commands of a page, or of one of its sections, that its test runs, in their order."""
    found = [block for block in blocks(page, *COMMANDS) if section in (None, block.section)]
    return [unit for block in found for unit in block.units if reason(page, unit) is None]


def programs(page: str, language: str = "python") -> list[str]:
    """The programs of a page that its test runs, in their order."""
    return [block.text for block in blocks(page, language) if reason(page, block.text) is None]


def program(page: str, having: str, language: str = "python") -> str:
    """The program of a page that has this text in it."""
    (found,) = (text for text in programs(page, language) if having in text)
    return found
