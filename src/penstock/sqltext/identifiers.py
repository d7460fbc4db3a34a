"""Quotes identifiers for Spark SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """The name in backticks, with backticks inside doubled."""
    return "`" + name.replace("`", "``") + "`"


def unquoted(inside: str) -> str:
    """The name between two backticks."""
    return inside.replace("``", "`")
