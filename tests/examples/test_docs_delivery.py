"""The commands of docs/delivery.md run as they stand there, and give what the page says."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from penstock.testing import PenstockBroker
from tests.doc_blocks import ROOT, commands
from tests.doc_shell import Shell

RECORDS = 1000


@pytest.mark.promise("delivery", "The commands of the page run as printed")
def test_the_commands_of_the_page_run_and_every_order_counts_once(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with PenstockBroker({"group.initial.rebalance.delay.ms": 0, "auto.create.topics.enable": True}) as broker:
        shell = Shell(tmp_path, {"PENSTOCK_BOOTSTRAP": broker.bootstrap})
        for line in commands("docs/delivery.md"):
            printed = shell.run(line)
            if "consume shouted-orders" in line:
                assert len(set(printed.splitlines())) == len(printed.splitlines()) == RECORDS
    for name in ("most", "least", "effectively", "exactly"):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as results:
            query = "SELECT count(*), count(DISTINCT id) FROM results"
            assert results.execute(query).fetchone() == (RECORDS, RECORDS), name
