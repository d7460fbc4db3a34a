"""The simulator of real brokers finds old faults that are put back: it has not gone blind.

`make test` puts back one that is found soon, `make test-long` all of them. The seeds that find them:
`python -m tests.sim.brokers.mutants`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repetitions import LONG
from tests.sim.brokers.mutants import MUTANTS

_ROOT = Path(__file__).parents[2]
_MOST_SEEDS = 200
"""Most are found within the first ten; which one it is changes with every change of the brokers."""
_SOON_FOUND = ["markers-sent-twice"]


@pytest.mark.promise(
    "reassignment",
    "The simulator finds known faults when they are put back into the code (all of them: `python -m "
    "tests.sim.brokers.mutants`)",
)
@pytest.mark.repeated
@pytest.mark.timeout(1800 if LONG else 600)
@pytest.mark.parametrize("mutant", list(MUTANTS) if LONG else _SOON_FOUND)
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
