"""Matches names against patterns of `patternProperties`, without letting a pattern block the registry.

Python's matcher backtracks: a short pattern such as `(a+)+$` can make it run for years. Only patterns that
are simple enough are matched; for others the result is unknown.
"""

from __future__ import annotations

import functools
import re
import warnings

_MAX_NAME = 200
_MAX_PATTERN = 200
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]")


@functools.lru_cache(maxsize=8192)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """The pattern, if at most two of its parts repeat and none of those is a group."""
    if len(pattern) > _MAX_PATTERN:
        return None
    bare = _CLASS.sub("c", re.sub(r"\\[^0-9pPkuxc]", "e", pattern))
    if "\\" in bare or "(?" in bare or len(re.findall(r"[*+{]", bare)) > 2 or re.search(r"\)[*+{?]", bare):
        return None
    if re.search(r"\{\d{3,}|,\d{3,}\}", bare):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return None


def matches(pattern: str, name: str) -> bool | None:
    """Whether the pattern is found in the name; None if it was not matched."""
    compiled = _compiled(pattern)
    if compiled is None or len(name) > _MAX_NAME:
        return None
    return compiled.search(name) is not None
