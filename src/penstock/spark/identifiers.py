"""Names in Spark's SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A name as SQL takes it whatever it is: in backticks, and those in it twice."""
    return "`" + name.replace("`", "``") + "`"


def unquoted(inside: str) -> str:
    """The name that stands between two backticks."""
    return inside.replace("``", "`")
