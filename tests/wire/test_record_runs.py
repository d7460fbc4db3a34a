"""The walk over record lengths takes runs of equal records at once; it must judge as one by one."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidRecord
from penstock.wire.records import HEADER_SIZE, Record, build_batch, check_batch

runs = st.lists(
    st.tuples(st.sampled_from([0, 1, 50, 56, 57, 58, 120, 1024, 9000]), st.integers(1, 70)),
    min_size=1,
    max_size=6,
)


def sealed(batch: bytearray) -> bytearray:
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


def lengths_end_at(batch: bytearray, count: int) -> int | None:
    """The reference: one record after the other."""
    pos = HEADER_SIZE
    for _ in range(count):
        raw = shift = 0
        while True:
            if pos >= len(batch) or shift > 28:
                return None
            raw |= (batch[pos] & 127) << shift
            shift += 7
            pos += 1
            if batch[pos - 1] < 128:
                break
        if raw & 1 or raw >> 1 < 6:
            return None
        pos += raw >> 1
    return pos


@settings(max_examples=200, deadline=None)
@given(runs=runs, data=st.data())
def test_runs_of_equal_records_are_counted_exactly(runs: list[tuple[int, int]], data: st.DataObject) -> None:
    values = [b"x" * size for size, times in runs for _ in range(times)]
    batch = bytearray(build_batch([Record(0, 0, None, value) for value in values]))
    assert check_batch(batch, 0, len(batch)).count == len(values)

    position = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    sealed(batch)
    if lengths_end_at(batch, len(values)) == len(batch):
        check_batch(batch, 0, len(batch))
    else:
        with pytest.raises(InvalidRecord):
            check_batch(batch, 0, len(batch))


@pytest.mark.parametrize("lie", [-1, 1, 40])
def test_a_wrong_count_in_a_long_run_is_seen(lie: int) -> None:
    batch = bytearray(build_batch([Record(0, 0, None, b"x" * 100)] * 60))
    batch[23:27] = (59 + lie).to_bytes(4, "big")
    batch[57:61] = (60 + lie).to_bytes(4, "big")
    with pytest.raises(InvalidRecord):
        check_batch(sealed(batch), 0, len(batch))
