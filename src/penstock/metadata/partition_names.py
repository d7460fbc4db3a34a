"""Formats the names of many partitions for one log line."""

from __future__ import annotations

from collections.abc import Sequence

_NAMED = 3
"""How many partitions are named; the others are only counted."""


def some_of(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
