"""Which batches of a fetch an application sees: transactions, control records, damage, cut ends."""

from __future__ import annotations

import pytest

from penstock.client import READ_COMMITTED, READ_UNCOMMITTED
from penstock.client.fetched_batches import Scan, scan
from penstock.errors import CorruptMessage, UnsupportedForMessageFormat
from penstock.wire.batches.records import Record, build_batch, control_marker

END = 1 << 40


def batch(base_offset: int, count: int = 2, **more: object) -> bytes:
    records = [Record(0, 1000 + i, None, b"v%d" % i) for i in range(count)]
    return build_batch(records, base_offset=base_offset, **more)  # type: ignore[arg-type]


def data(base_offset: int, producer_id: int) -> bytes:
    return batch(base_offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def marker(base_offset: int, producer_id: int, kind: str) -> bytes:
    return control_marker(kind, 0, producer_id, 0, 1000, base_offset=base_offset)  # type: ignore[arg-type]


def look(
    fetched: bytes,
    offset: int = 0,
    end: int = END,
    isolation: int = READ_COMMITTED,
    aborted: tuple[tuple[int, int], ...] = (),
) -> Scan:
    return scan(memoryview(fetched), offset, end, isolation=isolation, aborted=aborted)


def bases(found: Scan) -> list[int]:
    return [each.base_offset for each in found.batches]


def test_whole_batches_are_found_and_a_cut_one_waits() -> None:
    fetched = batch(0) + batch(2) + batch(4)
    for cut in range(1, len(batch(4)) + 1):
        found = look(fetched[:-cut])
        assert bases(found) == [0, 2]
        assert found.next_offset == 4


def test_control_batches_are_not_shown_but_passed() -> None:
    found = look(data(0, 7) + marker(2, 7, "commit"))
    assert bases(found) == [0]
    assert found.next_offset == 3


@pytest.mark.promise(
    "client library",
    "A `read_committed` reader sees no aborted records and no markers, wherever a range begins and ends",
)
def test_aborted_batches_are_dropped_up_to_their_marker_only() -> None:
    fetched = data(0, 7) + data(2, 8) + marker(4, 7, "abort") + data(5, 7) + marker(7, 7, "commit")
    found = look(fetched, aborted=((7, 0),))
    assert bases(found) == [2, 5]
    assert found.next_offset == 8
    assert bases(look(fetched, isolation=READ_UNCOMMITTED, aborted=((7, 0),))) == [0, 2, 5]


def test_two_aborted_transactions_of_one_producer_are_told_apart() -> None:
    fetched = (
        data(0, 7)
        + marker(2, 7, "abort")
        + data(3, 7)
        + marker(5, 7, "commit")
        + data(6, 7)
        + marker(8, 7, "abort")
    )
    assert bases(look(fetched, aborted=((7, 6), (7, 0)))) == [3]


def test_records_outside_of_transactions_are_shown_among_aborted_ones() -> None:
    plain = batch(2, producer_id=7, producer_epoch=0, base_sequence=0)
    assert bases(look(data(0, 7) + plain + marker(4, 7, "abort"), aborted=((7, 0),))) == [2]


def test_a_transaction_that_was_aborted_before_the_offset_counts_from_there() -> None:
    assert bases(look(data(10, 7) + marker(12, 7, "abort"), offset=11, aborted=((7, 4),))) == []


def test_a_batch_that_compaction_has_emptied_is_passed() -> None:
    empty = batch(0, 0, offsets=[], last_offset_delta=4)
    found = look(empty + batch(5))
    assert bases(found) == [5]
    assert found.next_offset == 7
    assert look(empty) == Scan([], 5)


def test_batches_outside_of_the_range_are_left_out() -> None:
    found = look(batch(0) + batch(2) + batch(4) + batch(6), offset=3, end=5)
    assert bases(found) == [2, 4]


def test_a_damaged_batch_is_named() -> None:
    fetched = bytearray(batch(0) + batch(2))
    fetched[-3] ^= 1
    with pytest.raises(CorruptMessage, match="CRC of the batch at offset 2"):
        look(bytes(fetched))
    unchecked = scan(memoryview(fetched), 0, END, isolation=0, aborted=(), check_crcs=False)
    assert bases(unchecked) == [0, 2]


@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_old_formats_are_refused_with_what_to_do(magic: int) -> None:
    fetched = bytearray(batch(9))
    fetched[16] = magic
    with pytest.raises(UnsupportedForMessageFormat, match=f"offset 9 are in format {magic}.*copy the topic"):
        look(bytes(fetched))


def test_bytes_that_are_no_batch_are_refused() -> None:
    with pytest.raises(CorruptMessage, match="magic 120"):
        look(b"x" * 100)
    short = bytearray(batch(0))
    short[8:12] = (5).to_bytes(4, "big")
    with pytest.raises(CorruptMessage, match="declares length 5"):
        look(bytes(short))


def test_more_records_than_offsets_are_refused() -> None:
    fetched = batch(0, 3, last_offset_delta=1)
    with pytest.raises(CorruptMessage, match="3 records for 2 offsets"):
        look(fetched)
