"""Seeds for the simulator: `pytest tests/sim --seed 17` runs one schedule, `--schedules 5000` many."""

from __future__ import annotations

import pytest

SCHEDULES = 1000
BLOCKS = 8


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="simulate only this schedule")
    parser.addoption("--schedules", type=int, default=SCHEDULES, help="how many schedules to simulate")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `seeds` is called for blocks of them, which the test processes share."""
    if "seeds" not in metafunc.fixturenames:
        return
    # Without tests/sim on the command line pytest reads this file too late for options.
    chosen = metafunc.config.getoption("--seed", default=None)
    count = metafunc.config.getoption("--schedules", default=SCHEDULES)
    if chosen is not None:
        metafunc.parametrize("seeds", [range(chosen, chosen + 1)], ids=[f"seed {chosen}"])
        return
    size = max(1, -(-count // BLOCKS))
    blocks = [range(start, min(start + size, count)) for start in range(0, count, size)]
    metafunc.parametrize("seeds", blocks, ids=[f"seeds {block.start}-{block.stop - 1}" for block in blocks])
