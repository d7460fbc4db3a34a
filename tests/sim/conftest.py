"""Seeds for the simulator: `pytest tests/sim --seed 17` runs one schedule, `--schedules 5000` many.

`make test` runs some dozens of each kind, `make test-long` thousands.
"""

from __future__ import annotations

import pytest

from tests.repetitions import times

SCHEDULES = times(64, 4000)
BLOCKS = 8
SCHEDULES_OF_A_CLUSTER = times(15, 4)
"""A schedule of real brokers takes a second or two: one for so many of the small ones."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="simulate only this schedule")
    parser.addoption("--schedules", type=int, default=SCHEDULES, help="how many schedules to simulate")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `seeds` or `cluster_seeds` is called for blocks of them, shared by the processes."""
    fixture = next((name for name in ("seeds", "cluster_seeds") if name in metafunc.fixturenames), None)
    if fixture is None:
        return
    # Without tests/sim on the command line pytest reads this file too late for options.
    chosen = metafunc.config.getoption("--seed", default=None)
    count = metafunc.config.getoption("--schedules", default=SCHEDULES)
    if chosen is not None:
        metafunc.parametrize(fixture, [range(chosen, chosen + 1)], ids=[f"seed {chosen}"])
        return
    if fixture == "cluster_seeds":
        count = max(1, count // SCHEDULES_OF_A_CLUSTER)
    size = max(1, -(-count // BLOCKS))
    blocks = [range(start, min(start + size, count)) for start in range(0, count, size)]
    metafunc.parametrize(
        fixture,
        [pytest.param(block, marks=pytest.mark.repeated) for block in blocks],
        ids=[f"seeds {block.start}-{block.stop - 1}" for block in blocks],
    )
