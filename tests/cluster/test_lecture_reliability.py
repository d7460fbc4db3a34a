"""examples/lectures/validating_reliability.py, as written: six checks on a cluster that it starts itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.lectures.lecture import DIRECTORY


@pytest.mark.promise("lectures", 'The six checks of "validating reliability" pass on three brokers')
@pytest.mark.timeout(600)
def test_the_six_checks_of_reliability_pass() -> None:
    script = str(DIRECTORY / "validating_reliability.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        *(
            f"{check}: all acknowledged records are there, once"
            for check in ("leader election", "controller election", "rolling restart", "lost connection")
        ),
        "restarted clients: each acknowledged record was handled once",
        "unclean election: off, the partition waited and has [17]; on, it went on and has []",
    ]
