"""Which values of a file cannot be in it: alone, or together with those before them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.connect.api import DataError

T = TypeVar("T")


def misfits(values: Sequence[T], problem: Callable[[Sequence[T]], DataError | None]) -> dict[int, DataError]:
    """By their place, in order. What remains is a file, if it is not empty."""
    found: dict[int, DataError] = {}
    good = []
    for at, value in enumerate(values):
        error = problem([value])
        if error is None:
            good.append(at)
        else:
            found[at] = error
    while (error := problem([values[at] for at in good])) is not None:
        # Each alone is good: the first that does not go with those before it.
        end = bisect_left(
            range(len(good)), True, key=lambda n: problem([values[at] for at in good[: n + 1]]) is not None
        )
        found[good.pop(end)] = error
    return dict(sorted(found.items()))
