"""The simulator of real brokers finds old faults that are put back: it has not gone blind.

All of them, and the seeds that find them: `python -m tests.sim.brokers.mutants`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_MOST_SEEDS = 200
"""Most are found within the first ten; which one it is changes with every change of the brokers."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", ["overtaking", "markers-sent-twice", "early-answers"])
def test_a_fault_that_is_put_back_is_found(mutant: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.brokers.mutants", mutant, "--seeds", str(_MOST_SEEDS)],
        cwd=_ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
