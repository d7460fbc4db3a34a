"""Verifies that the markers of a log match its transactions, as far as the batches of one partition show it.

With transaction version 2 (KIP-890) a transaction ends with a marker of the next epoch, so a marker of the
same epoch is a late one of the previous transaction. Up to version 1 the marker has the same epoch. The log
does not contain the version, which the client chooses. A commit with the next epoch shows that a producer
uses version 2; an abort does not, because a coordinator that fences a producer raises the epoch in every
version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from penstock.wire.batches.records import BatchHeader

Severity = Literal["error", "warning"]


class Finding(NamedTuple):
    severity: Severity
    what: str


class _Marker(NamedTuple):
    kind: str
    epoch: int
    coordinator_epoch: int
    offset: int


@dataclass(slots=True)
class _Producer:
    holes: int  # number of offset gaps when this producer was last seen
    open_at: int | None = None  # the first offset of its transaction
    epoch: int = -1  # of that transaction
    marker: _Marker | None = None  # its last batch, if that was a marker
    version_2: bool = False


class TransactionCheck:
    """`version` is the transaction version of all producers; None derives it from the log."""

    def __init__(self, version: int | None = None) -> None:
        self._version = version
        self._producers: dict[int, _Producer] = {}

    def on_data(self, header: BatchHeader, holes: int) -> None:
        one = self._producers.setdefault(header.producer_id, _Producer(holes))
        if one.open_at is None:
            one.open_at = header.base_offset
        one.epoch, one.marker, one.holes = header.producer_epoch, None, holes

    def on_marker(
        self, header: BatchHeader, kind: str, coordinator_epoch: int, holes: int, *, from_start: bool
    ) -> Finding | None:
        """`from_start`: the log was read from its first offset, so no earlier records are missing."""
        known = self._producers.get(header.producer_id)
        one = known or _Producer(holes)
        self._producers[header.producer_id] = one
        marker = _Marker(kind, header.producer_epoch, coordinator_epoch, header.base_offset)
        complete = one.holes == holes if known is not None else from_start and holes == 0
        finding = self._ends_one(header.producer_id, one, marker)
        if one.open_at is None and complete:
            finding = self._ends_none(header.producer_id, one, marker)
        one.open_at, one.marker, one.holes = None, marker, holes
        return finding

    def _is_version_2(self, one: _Producer) -> bool:
        return one.version_2 if self._version is None else self._version >= 2

    def _ends_one(self, producer_id: int, one: _Producer, marker: _Marker) -> Finding | None:
        if one.open_at is None:
            return None
        if marker.epoch == one.epoch and self._is_version_2(one):
            return Finding(
                "error",
                f"producer {producer_id}: the transaction from offset {one.open_at} on was ended by a"
                f" {marker.kind} marker of its own epoch {one.epoch}; transaction version 2 never writes one",
            )
        if marker.kind == "commit" and marker.epoch > one.epoch:
            one.version_2 = True
        return None

    def _ends_none(self, producer_id: int, one: _Producer, marker: _Marker) -> Finding:
        last = one.marker
        what = f"producer {producer_id}: a {marker.kind} marker of epoch {marker.epoch} ended no transaction"
        if last is None or last.epoch != marker.epoch:
            return Finding("warning", f"{what} (one that wrote nothing here may have been ended by it)")
        what += f", as that of offset {last.offset} with the same epoch had ended it"
        if last.coordinator_epoch != marker.coordinator_epoch:
            return Finding("warning", f"{what} (a coordinator that takes over sends markers again)")
        if self._is_version_2(one):
            return Finding("error", what)
        return Finding(
            "warning", f"{what} (before transaction version 2 an empty transaction looks like that)"
        )
