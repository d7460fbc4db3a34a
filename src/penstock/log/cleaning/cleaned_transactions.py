"""Tracks the transactions of a cleaning pass, to find aborted data and markers that are no longer needed.

A marker can be removed when a pass finds no data of its transaction. The pass that removes the data still
finds it, so the marker outlives the data by at least one pass, and then by its delete horizon.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.fs import Fs
from penstock.log.index import AbortedTxn, TransactionIndex
from penstock.log.recovery.scan import segment_path
from penstock.wire.batches.records import BatchHeader, Buffer, iter_records, parse_control

_TXN_INDEX = ".txnindex"


def read_aborted(directory: str, base_offsets: Sequence[int], before: int, fs: Fs) -> list[AbortedTxn]:
    """The aborted transactions that started before an offset, in order.

    A transaction is in the index of the segment that has its marker, which may be long after its data: so the
    indexes of all segments to the end of the log are read.
    """
    found = []
    for base_offset in base_offsets:
        path = segment_path(directory, base_offset, _TXN_INDEX)
        found += [txn for txn in TransactionIndex(path, fs) if txn.first_offset < before]
    return sorted(found, key=lambda txn: txn.first_offset)


class CleanedTransactions:
    """Called with every batch in order, up to the end offset of the pass."""

    def __init__(self, aborted: Sequence[AbortedTxn]) -> None:
        self._aborted = aborted
        self._next = 0
        self._ongoing_aborted: dict[int, AbortedTxn] = {}
        self._with_data: set[int] = set()  # producer ids: their aborted transaction has data here
        self._ongoing_committed: set[int] = set()
        self._retained: list[AbortedTxn] = []

    def on_data(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        producer_id = header.producer_id
        if producer_id in self._ongoing_aborted:
            self._with_data.add(producer_id)
            return True
        self._ongoing_committed.add(producer_id)
        return False

    def on_control(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether no data of the marker's transaction is left, so that the marker may be removed too."""
        self._advance(header.last_offset)
        record = next(iter_records(batch), None)
        if record is None:
            return True  # a header alone, which is only kept for its producer's state
        kind, _ = parse_control(record)
        producer_id = header.producer_id
        if kind == "abort":
            txn = self._ongoing_aborted.pop(producer_id, None)
            if txn is None or producer_id not in self._with_data:
                return True
            self._with_data.discard(producer_id)
            self._retained.append(txn)
            return False
        if kind == "commit":
            if producer_id not in self._ongoing_committed:
                return True
            self._ongoing_committed.discard(producer_id)
        return False

    def on_copied(self, header: BatchHeader) -> None:
        """A marker past the end of the pass is copied unchanged, with its index entry."""
        offset = header.last_offset
        self._retained += [txn for txn in self._aborted if txn.last_offset == offset]

    def take_retained(self) -> list[AbortedTxn]:
        """The index entries of the markers retained since the last call."""
        retained, self._retained = self._retained, []
        return retained

    def _advance(self, offset: int) -> None:
        while self._next < len(self._aborted) and self._aborted[self._next].first_offset <= offset:
            txn = self._aborted[self._next]
            self._ongoing_aborted.setdefault(txn.producer_id, txn)
            self._next += 1
