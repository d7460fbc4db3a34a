"""Many seeds of the simulated cluster: `python -m tests.sim.brokers --seeds 1000`, or one: `--seed 17`.

With strings hashed by the same seed everywhere, a seed is the same schedule in every run.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from tests.sim.brokers.loop import CHECK_EVERY
from tests.sim.brokers.world import LOAD, Schedule, simulate

_TAIL = 120


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.sim.brokers", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--only", type=int, nargs="*", default=None, help="these ones")
    parser.add_argument("--seed", type=int, default=None, help="only this one, with its log")
    parser.add_argument("--faults", default=None, help="only these kinds, comma-separated, none if empty")
    parser.add_argument("--load", default=None, help=f"only these, comma-separated: {', '.join(LOAD)}")
    parser.add_argument(
        "--check-every",
        type=int,
        default=CHECK_EVERY,
        help="steps between checks of what has not changed",
    )
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument("--verbose", action="store_true", help="show what happens")
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.seeds)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    if options.only is not None:
        seeds = options.only
    schedule = Schedule(_names(options.faults), _names(options.load), check_every=options.check_every)
    failed = 0
    for seed in seeds:
        begin = time.process_time()
        result = simulate(seed, schedule, verbose=options.verbose)
        took = time.process_time() - begin
        state = "fails" if result.failures else "holds"
        print(
            f"seed {seed} {state}: {result.virtual_s:.0f} s in {took:.1f} s, {result.steps} steps, "
            f"{result.fingerprint & 0xFFFFFFFF:08x}, {result.counts}",
            flush=True,
        )
        if result.failures:
            failed += 1
            if not options.keep_going:
                print("\n".join(result.log[-_TAIL:]))
            for failure in result.failures[:20]:
                print(f"  {failure}")
            print(f"run it again: python -m tests.sim.brokers --seed {seed}")
            if not options.keep_going:
                return 1
    return 1 if failed else 0


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(filter(None, text.split(",")))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim.brokers", *sys.argv[1:]])
    sys.exit(main())
