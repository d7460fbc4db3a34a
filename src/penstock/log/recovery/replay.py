"""What the batches of a log say of its producers: read back when it is opened or cut.

The newest snapshot comes first, then the batches after it. A snapshot keeps only the last batch of each
producer, so the last batches before the end are looked at once more.
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
    """Every batch from the one that holds `offset` on. The first segment is the one that may hold it."""
    for segment in segments:
        for position, header in segment.from_offset(offset, mend=False):
            if header.last_offset >= offset:
                yield segment, position, header


def marker_of(buf: bytes | bytearray | memoryview, start: int = 0) -> tuple[str, int]:
    """What a control batch says: the kind of its one record, and the coordinator's epoch."""
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
    """Apply the batches from offset `start` on. With `mend`, aborted transactions that their index lacks
    come back."""
    for segment, position, header in batches:
        # The log may start within a batch, after DeleteRecords: its sequences count all the same.
        if header.last_offset < start or header.producer_id < 0:
            continue
        if not header.is_control:
            producers.apply(header)
        elif header.count:  # compaction may have emptied it
            aborted = producers.apply_marker(header, *marker_of(segment.batch(position, header)))
            if mend and aborted is not None and aborted not in segment.txns:
                segment.txns.append(aborted)


def remember_tail(producers: ProducerStateManager, segments: Sequence[Segment]) -> None:
    """The last batches before the end, wherever segments end: a retry of one of five is then answered."""
    seen = 0
    for segment in reversed(segments):
        start = segment.offsets.position_back(_TAIL_INDEX_ENTRIES)
        for _, header in segment.headers(start):
            seen += 1
            if header.producer_id >= 0 and not header.is_control:
                producers.remember_earlier(header)
        if start > 0 or seen >= _TAIL_BATCHES:
            break
