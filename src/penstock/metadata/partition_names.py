"""Names of many partitions in one line of the log."""

from __future__ import annotations

from collections.abc import Sequence

_NAMED = 3
"""So many partitions are named; the others are counted."""


def some_of(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
