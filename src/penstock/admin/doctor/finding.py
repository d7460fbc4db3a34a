"""What a check has found: where, what, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """`check` is the same word for all findings of a kind. `severity` is error or warning; a warning may be
    in order."""

    check: str
    where: str
    what: str
    remedy: str
    severity: str = "error"
