"""Errors and exit codes of commands: 0 done, 1 the operation failed, 2 wrong usage, 130 interrupted.

What fails on a cluster is reported by `penstock.admin.failure`; commands raise the same errors.
"""

from __future__ import annotations

from penstock.admin.failure import (
    FAILED,
    CommandFailed,
    UnknownTopic,
    Unreachable,
    did_you_mean,
    needs_extra,
    reason,
)

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "OK",
    "USAGE",
    "CommandFailed",
    "UnknownTopic",
    "Unreachable",
    "did_you_mean",
    "needs_extra",
    "reason",
]

OK = 0
USAGE = 2
INTERRUPTED = 130
