"""Thousands of schedules of transactions: none is torn, none hangs, no zombie commits, no epoch goes back."""

from __future__ import annotations

import pytest

from tests.sim.txn_world import World

_WORLDS_OF_A_SEED = 3  # they are small


@pytest.mark.promise(
    "transactions",
    "On every schedule: every transaction is atomic, none hangs, nothing is committed twice, and no "
    "zombie producer commits",
)
def test_every_schedule_of_transactions_keeps_the_promises(seeds: range) -> None:
    for seed in seeds:
        for part in range(_WORLDS_OF_A_SEED):
            try:
                world = World(seed * _WORLDS_OF_A_SEED + part)
                world.run()
                world.check()
            except Exception as error:
                error.add_note(f"replay it: pytest tests/sim/test_transactions_sim.py --seed {seed}")
                raise
