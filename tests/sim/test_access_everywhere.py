"""A change of ACLs or quotas is in force on all brokers within a second, on a simulated clock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def simulated(*options: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.brokers.access", *options],
        cwd=_ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.promise(
    "access",
    "A change of ACLs or quotas at any broker takes effect on all brokers within a second of its "
    "response: brokers watch ZooKeeper",
)
def test_a_change_at_any_broker_is_in_force_on_all_within_a_second_by_watches_alone() -> None:
    code, output = simulated("--seeds", "5")
    assert code == 0, output


def test_where_watches_are_not_heard_no_change_comes() -> None:
    """So it is watches that bring it, and not a poll that would hide a watch that is lost."""
    code, output = simulated("--seeds", "1", "--deaf")
    assert code == 1 and "a change to be in force" in output, output
