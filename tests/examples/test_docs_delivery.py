"""The commands of docs/delivery.md run as they stand there, and give what the page says."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from penstock.testing import PenstockBroker

ROOT = Path(__file__).resolve().parents[2]
RECORDS = 1000


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / "delivery.md").read_text(), re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    # A broker is running, and the tests are run by whoever runs this one. What needs a cluster is run by
    # tests/cluster: test_write_guarantees.py and test_lecture_reliability.py.
    elsewhere = ("penstock up", ".venv/bin/python -m pytest", "python examples/lectures")
    return [line for line in lines if not line.startswith(elsewhere) and "ledger" not in line]


@pytest.mark.promise("delivery", "The commands of the page run as printed")
def test_the_commands_of_the_page_run_and_every_order_counts_once(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with PenstockBroker({"group.initial.rebalance.delay.ms": 0, "auto.create.topics.enable": True}) as broker:
        environment = os.environ | {
            "PENSTOCK_BOOTSTRAP": broker.bootstrap,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        for line in commands():
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", line],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, (line, done.stderr)
            if "consume shouted-orders" in line:
                assert len(set(done.stdout.splitlines())) == len(done.stdout.splitlines()) == RECORDS
    for name in ("most", "least", "effectively", "exactly"):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as results:
            query = "SELECT count(*), count(DISTINCT id) FROM results"
            assert results.execute(query).fetchone() == (RECORDS, RECORDS), name
