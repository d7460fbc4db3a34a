"""Replays the batches of a log into the producer state, when the log is opened or truncated.

The newest snapshot is loaded first, then the batches after it. A snapshot has only the last batch of each
producer, so the last batches before the end are read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.errors import InvalidRecord
from penstock.log.producer_state import ProducerStateManager
from penstock.log.segment import Segment
from penstock.wire.batches.records import BatchHeader, iter_records, parse_control

_TAIL_INDEX_ENTRIES = 8
_TAIL_BATCHES = 200


def batches_from(segments: Sequence[Segment], offset: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """All batches from the one that contains `offset`, which must be in the first segment."""
    for segment in segments:
        for position, header in segment.from_offset(offset, mend=False):
            if header.last_offset >= offset:
                yield segment, position, header


def marker_of(buf: bytes | bytearray | memoryview, start: int = 0) -> tuple[str, int]:
    """The content of a control batch: the kind of its one record, and the coordinator epoch."""
    for record in iter_records(buf, start):
        return parse_control(record)
    raise InvalidRecord("a control batch without a record")


def replay_producers(
    producers: ProducerStateManager,
    batches: Iterable[tuple[Segment, int, BatchHeader]],
    start: int,
    *,
    mend: bool,
) -> None:
    """Apply the batches from offset `start` on. With `mend`, aborted transactions that are missing in their
    index are added."""
    for segment, position, header in batches:
        # After DeleteRecords the log may start within a batch; the sequences of that batch still count.
        if header.last_offset < start or header.producer_id < 0:
            continue
        if not header.is_control:
            producers.apply(header)
        elif header.count:  # compaction may have removed its records
            aborted = producers.apply_marker(header, *marker_of(segment.batch(position, header)))
            if mend and aborted is not None and aborted not in segment.txns:
                segment.txns.append(aborted)


def remember_tail(producers: ProducerStateManager, segments: Sequence[Segment]) -> None:
    """Adds the last batches before the end, across segments, so that duplicates of the last five are
    detected."""
    seen = 0
    for segment in reversed(segments):
        start = segment.offsets.position_back(_TAIL_INDEX_ENTRIES)
        for _, header in segment.headers(start):
            seen += 1
            if header.producer_id >= 0 and not header.is_control:
                producers.remember_earlier(header)
        if start > 0 or seen >= _TAIL_BATCHES:
            break
