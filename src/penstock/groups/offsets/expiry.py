"""Finds expired offsets of all groups, in steps that do not block the broker."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.coordinator import Outcome
from penstock.groups.group import Group
from penstock.groups.offsets import requests as offsets_requests
from penstock.groups.offsets.committed import OffsetStore
from penstock.groups.settings import GroupSettings
from penstock.groups.timers import Timer, Timers

_OFFSETS_A_STEP = 2_000
_RECORD_BYTES_A_STEP = 256 * 1024


class Expiry:
    def __init__(
        self, settings: GroupSettings, groups: Mapping[str, Group], store: OffsetStore, timers: Timers
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._store = store
        self._timers = timers
        self._timer = Timer(self._step)
        self._left: list[str] = []

    def schedule(self, now_ms: int) -> None:
        """Idempotent; the first round is one interval from the first call."""
        if self._timer.at is None:
            self._timers.set(self._timer, now_ms + self._settings.offsets_retention_check_interval_ms)

    def _step(self, out: Outcome, now_ms: int) -> None:
        if not self._left:
            self._left = list(self._groups)
        looked_at = size = 0
        while self._left and looked_at < _OFFSETS_A_STEP and size < _RECORD_BYTES_A_STEP:
            group = self._groups.get(self._left.pop())
            if group is None:
                continue
            tails, nothing_left = offsets_requests.expired(
                group, self._store, self._settings.offsets_retention_ms, now_ms
            )
            looked_at += 1 + len(self._store.by_group.get(group.group_id, ()))
            records = self._store.tombstones(group.group_id, tails)
            if nothing_left and group.is_empty and group.expires:
                records += group.tombstones()
            size += sum(len(record.key) for record in records)
            out.records += records
        out.divide()
        # One millisecond between steps: other requests get their turn.
        pause = 1 if self._left else self._settings.offsets_retention_check_interval_ms
        self._timers.set(self._timer, now_ms + pause)
