"""Finds values that do not fit into a file: alone, or together with the values before them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.connect.api import DataError

T = TypeVar("T")


def misfits(values: Sequence[T], problem: Callable[[Sequence[T]], DataError | None]) -> dict[int, DataError]:
    """Their indexes, in order. The remaining values form a valid file, unless there are none."""
    found: dict[int, DataError] = {}
    good = []
    for at, value in enumerate(values):
        error = problem([value])
        if error is None:
            good.append(at)
        else:
            found[at] = error
    while (error := problem([values[at] for at in good])) is not None:
        # Each value is valid alone: find the first that does not fit with those before it.
        end = bisect_left(
            range(len(good)), True, key=lambda n: problem([values[at] for at in good[: n + 1]]) is not None
        )
        found[good.pop(end)] = error
    return dict(sorted(found.items()))
