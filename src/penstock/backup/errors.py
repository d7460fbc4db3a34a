"""What keeps a backup from being made or restored; nothing was changed unless the message says so."""

from __future__ import annotations

from penstock.errors import PenstockError


class BackupError(PenstockError):
    """Says what failed, the directory or file that caused it, and what to do."""


class TargetNotEmpty(BackupError):
    """Something is where the backup would be written or restored."""

    def __init__(self, target: str, found: str, what_to_do: str) -> None:
        super().__init__(f"{target} is not empty ({found}); {what_to_do}")
        self.target = target
