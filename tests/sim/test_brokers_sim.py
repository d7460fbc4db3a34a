"""Real brokers in a simulated cluster: whatever the schedule, what clients were answered stays true.

Each seed runs three real brokers in one thread (`tests/sim/brokers`) with transactional and idempotent
producers, readers, chains and commits, while brokers are killed, lose power, stand still and lose
connections, and judges the history of all clients. More of them: `python -m tests.sim.brokers --seeds
1000`; one again, with what happened: `python -m tests.sim.brokers --seed 17 --verbose`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def simulate(seeds: Iterable[int]) -> tuple[int, str]:
    """In a process of its own, with strings hashed as in each other: a seed is the same schedule in all."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.brokers", "--only", *map(str, seeds)],
        cwd=_ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.promise(
    "reassignment",
    "On every schedule of kills, power losses, pauses and lost connections of three real brokers: no "
    "acknowledged record is lost, duplicated or reordered; transactions are atomic, none hangs or is "
    "ended by a marker of its own epoch, and a coordinator decided every marker; LATEST and committed "
    "offsets never decrease; every client finishes",
)
@pytest.mark.timeout(600)
def test_every_schedule_of_real_brokers_keeps_what_clients_were_answered(cluster_seeds: range) -> None:
    code, output = simulate(cluster_seeds)
    assert code == 0, output


@pytest.mark.promise(
    "reassignment",
    "On every schedule of kills, power losses, pauses and lost connections of three real brokers: no "
    "acknowledged record is lost, duplicated or reordered; transactions are atomic, none hangs or is "
    "ended by a marker of its own epoch, and a coordinator decided every marker; LATEST and committed "
    "offsets never decrease; every client finishes",
)
@pytest.mark.timeout(600)
def test_a_seed_is_the_same_schedule_whatever_ran_before() -> None:
    def fingerprints(seeds: list[int]) -> dict[str, str]:
        _, output = simulate(seeds)
        return dict(re.findall(r"^seed (\d+) .* steps, ([0-9a-f]{8})", output, re.MULTILINE))

    assert fingerprints([10, 14])["14"] == fingerprints([14])["14"]
