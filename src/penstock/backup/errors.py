"""Errors of backups and restores. Nothing was changed unless the message says so."""

from __future__ import annotations

from penstock.errors import PenstockError


class BackupError(PenstockError):
    """The message says what failed, the directory or file that caused it, and what to do."""


class TargetNotEmpty(BackupError):
    """The target of the backup or restore is not empty."""

    def __init__(self, target: str, found: str, what_to_do: str) -> None:
        super().__init__(f"{target} is not empty ({found}); {what_to_do}")
        self.target = target
