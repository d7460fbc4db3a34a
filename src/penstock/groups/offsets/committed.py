"""Committed offsets by group, and pending offsets of open transactions. Changed only by replay.

An offset is kept as two byte strings of its record, the tail of the key and the value, and decoded on demand:
so a million offsets load in seconds and need little memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.coordinator import StateRecord
from penstock.groups.offsets import records as records_offsets
from penstock.groups.offsets.records import CommittedOffset

Offsets = dict[bytes, bytes]
"""Value by tail of the key."""

_OVERTAKEN = b""
"""A pending offset that a plain commit came after: the partition stays unstable, but it counts no more."""

_TAILS_KEPT = 65_536


class OffsetStore:
    def __init__(self) -> None:
        self.by_group: dict[str, Offsets] = {}
        self.pending: dict[int, dict[str, Offsets]] = {}
        """By producer id and group: counts when the transaction commits."""
        self._open: dict[str, set[int]] = {}  # the producers with pending offsets in a group
        self._written = 0
        self._order: dict[tuple[int, str, bytes], int] = {}  # when a pending offset was written
        self._tails: dict[bytes, bytes] = {}  # many groups read the same partitions: one tail for all

    # queries

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        offsets = self.by_group.get(group_id)
        value = None if offsets is None else offsets.get(records_offsets.key_tail(topic, partition))
        return None if value is None else records_offsets.decode_value(value)

    def committed(self, group_id: str, topic: str, partition: int) -> int | None:
        """Only the offset."""
        offsets = self.by_group.get(group_id)
        value = None if offsets is None else offsets.get(records_offsets.key_tail(topic, partition))
        return None if value is None else records_offsets.committed(value)

    def is_open(self, group_id: str) -> bool:
        """Whether a transaction has offsets of the group."""
        return group_id in self._open

    def is_pending(self, group_id: str, tail: bytes) -> bool:
        return any(tail in self.pending[producer][group_id] for producer in self._open.get(group_id, ()))

    def tails(self, group_id: str) -> Iterator[bytes]:
        """All offsets of a group, committed or pending, each once."""
        committed = self.by_group.get(group_id, {})
        yield from committed
        if group_id in self._open:
            seen: set[bytes] = set()
            for producer in self._open[group_id]:
                for tail in self.pending[producer][group_id]:
                    if tail not in committed and tail not in seen:
                        seen.add(tail)
                        yield tail

    # records

    def tombstones(self, group_id: str, tails: Collection[bytes] | None = None) -> list[StateRecord]:
        """The records that delete these offsets of a group, or all of them."""
        prefix = records_offsets.key_prefix(group_id)
        chosen = self.tails(group_id) if tails is None else tails
        return [StateRecord(prefix + tail, None) for tail in chosen]

    def group_ids(self) -> set[str]:
        """Every group that has an offset here, committed or pending."""
        return {*self.by_group, *self._open}

    def topics(self) -> set[str]:
        """Every topic that has an offset here."""
        tails = {tail for group_id in self.group_ids() for tail in self.tails(group_id)}
        return {records_offsets.read_tail(tail)[0] for tail in tails}

    def tombstones_of_topics(self, topics: Collection[str]) -> list[StateRecord]:
        """The offsets of deleted topics in every group."""
        gone = {records_offsets.topic_tail(topic) for topic in topics}
        records: list[StateRecord] = []
        for group_id in self.group_ids():
            tails = [tail for tail in self.tails(group_id) if tail[:-4] in gone]
            records += self.tombstones(group_id, tails)
        return records

    # replaying

    def replay(self, group_id: str, tail: bytes, value: bytes | None, producer_id: int | None) -> None:
        if value is None:
            self._delete(group_id, tail)
        elif producer_id is not None:
            tail = self._shared(tail)
            self.pending.setdefault(producer_id, {}).setdefault(group_id, {})[tail] = value
            self._open.setdefault(group_id, set()).add(producer_id)
            self._written += 1
            self._order[producer_id, group_id, tail] = self._written
        else:
            offsets = self.by_group.get(group_id)
            if offsets is None:
                offsets = self.by_group[group_id] = {}
            offsets[self._shared(tail)] = value
            if group_id in self._open:
                self._overtake(group_id, tail, self._written + 1)

    def _shared(self, tail: bytes) -> bytes:
        tails = self._tails
        if len(tails) >= _TAILS_KEPT:
            tails.clear()
        return tails.setdefault(tail, tail)

    def _delete(self, group_id: str, tail: bytes) -> None:
        offsets = self.by_group.get(group_id)
        if offsets is not None:
            offsets.pop(tail, None)
            if not offsets:
                del self.by_group[group_id]
        for producer in self._open.get(group_id, ()):
            if self.pending[producer][group_id].pop(tail, None) is not None:
                del self._order[producer, group_id, tail]

    def _overtake(self, group_id: str, tail: bytes, before: int) -> None:
        """Of a plain commit and a transactional one, the later record in the log counts, not the one that
        completes later: otherwise compaction, which keeps the later record, would change the committed
        offset."""
        for producer in self._open.get(group_id, ()):
            offsets = self.pending[producer][group_id]
            if tail in offsets and self._order[producer, group_id, tail] < before:
                offsets[tail] = _OVERTAKEN

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        for group_id, offsets in self.pending.pop(producer_id, {}).items():
            producers = self._open[group_id]
            producers.discard(producer_id)
            if not producers:
                del self._open[group_id]
            for tail, value in offsets.items():
                written = self._order.pop((producer_id, group_id, tail))
                if committed and value is not _OVERTAKEN:
                    self.by_group.setdefault(group_id, {})[tail] = value
                    self._overtake(group_id, tail, written)
