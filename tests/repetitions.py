"""How often a test repeats what chance decides: `make test` a few times, `make test-long` many times.

A test that asks has the mark `repeated`, so that `make test-long` finds it. Once is enough to show that a
promise holds; the repetitions look for the moment or the seed at which it does not.
"""

from __future__ import annotations

import os

LONG = os.environ.get("PENSTOCK_TEST_LONG", "") not in ("", "0")


def times(short: int, long: int) -> int:
    """`short` in `make test`, `long` in `make test-long`."""
    return long if LONG else short
