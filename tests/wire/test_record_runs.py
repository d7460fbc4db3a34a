"""The check of records takes many at once; it must judge as if it looked at one by one."""

from __future__ import annotations

from random import Random

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ApiError, InvalidRecord
from penstock.wire.batches.records import HEADER_SIZE, Record, build_batch, check_batch, iter_records
from tests.repetitions import times

runs = st.lists(
    st.tuples(st.sampled_from([0, 1, 50, 56, 57, 58, 120, 1024, 9000]), st.integers(1, 70)),
    min_size=1,
    max_size=6,
)


def sealed(batch: bytearray) -> bytearray:
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


def is_sound(batch: bytearray, count: int) -> bool:
    """The reference: one record after the other, every field."""
    try:
        return [record.offset_delta for record in iter_records(batch)] == list(range(count))
    except ApiError:
        return False


@pytest.mark.promise(
    "hostile input",
    "Every record of a produced batch is validated; checking many at once gives the same result as one "
    "by one",
)
@settings(max_examples=times(100, 3000), deadline=None)
@given(
    runs=runs,
    key=st.sampled_from([None, b"", b"key", b"k" * 70]),
    tick=st.sampled_from([0, 1, 100, -3]),
    headers=st.sampled_from([(), (("h", b"v"),), (("h", None), ("i", b""))]),
    data=st.data(),
)
def test_runs_of_records_of_one_shape_are_judged_as_one_by_one(
    runs: list[tuple[int, int]],
    key: bytes | None,
    tick: int,
    headers: tuple[tuple[str, bytes | None], ...],
    data: st.DataObject,
) -> None:
    values = [b"x" * size for size, times in runs for _ in range(times)]
    records = [Record(0, 10_000 + tick * i, key, value, headers) for i, value in enumerate(values)]
    batch = bytearray(build_batch(records))
    assert check_batch(batch, 0, len(batch)).count == len(values)

    assert check_batch(batch, 0, len(batch)).largest_delta >= max(r.timestamp for r in records) - 10_000
    position = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    sealed(batch)
    if is_sound(batch, len(values)):
        check_batch(batch, 0, len(batch))
    else:
        with pytest.raises(InvalidRecord):
            check_batch(batch, 0, len(batch))


@pytest.mark.promise(
    "hostile input",
    "Every record of a produced batch is validated; checking many at once gives the same result as one "
    "by one",
)
@settings(max_examples=times(100, 3000), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(20, 300),
    longest=st.sampled_from([20, 70, 150, 9000]),
    tick=st.sampled_from([0, 1, 40, 20_000]),
    odd_one=st.sampled_from([None, "a long key", "headers", "an old time"]),
    data=st.data(),
)
def test_records_of_many_lengths_are_judged_as_one_by_one(
    seed: int, count: int, longest: int, tick: int, odd_one: str | None, data: st.DataObject
) -> None:
    random = Random(seed)
    keys = [None, b"", *(b"k" * size for size in range(1, 40))]
    records = [
        Record(0, 50_000 + tick * i, random.choice(keys), bytes(random.randrange(longest)))
        for i in range(count)
    ]
    if odd_one is not None:
        at = random.randrange(count)
        changes = {"a long key": {"key": b"k" * 70}, "headers": {"headers": (("h", b"v"),)}}
        records[at] = records[at]._replace(**changes.get(odd_one, {"timestamp": 3}))
    batch = bytearray(build_batch(records))
    found = check_batch(batch, 0, len(batch))
    assert found.count == count
    assert found.largest_delta >= max(each.timestamp for each in records) - records[0].timestamp
    assert found.keyless == any(each.key is None for each in records)

    position = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    sealed(batch)
    if is_sound(batch, count):
        check_batch(batch, 0, len(batch))
    else:
        with pytest.raises(InvalidRecord):
            check_batch(batch, 0, len(batch))


@pytest.mark.promise(
    "hostile input",
    "Every record of a produced batch is validated; checking many at once gives the same result as one "
    "by one",
)
@pytest.mark.parametrize("lie", [-1, 1, 40])
def test_a_wrong_count_in_a_long_run_is_seen(lie: int) -> None:
    batch = bytearray(build_batch([Record(0, 0, None, b"x" * 100)] * 60))
    batch[23:27] = (59 + lie).to_bytes(4, "big")
    batch[57:61] = (60 + lie).to_bytes(4, "big")
    with pytest.raises(InvalidRecord):
        check_batch(sealed(batch), 0, len(batch))


def test_more_records_than_two_bytes_of_a_varint_can_number() -> None:
    batch = bytearray(build_batch([Record(0, 0, None, b"x" * 10)] * 20_000))
    assert check_batch(batch, 0, len(batch)).count == 20_000
    records = HEADER_SIZE
    for place in (3_000, 9_000, 19_999):
        damaged = bytearray(batch)
        # the offset delta of a record, two bytes before the end of its fields
        marker = (2 * place & 127 | 128).to_bytes(1, "big") + ((2 * place >> 7) & 127).to_bytes(1, "big")
        at = damaged.rfind(marker[:1], records)
        damaged[at] ^= 2
        assert not is_sound(damaged, 20_000)
        with pytest.raises(InvalidRecord):
            check_batch(sealed(damaged), 0, len(damaged))


@pytest.mark.parametrize("place", [1, 40, 63, 64, 65, 100, 3_000, 8191, 8192, 8193, 9_500, 19_999])
def test_a_record_out_of_place_is_seen_among_records_of_many_lengths(place: int) -> None:
    batch = bytearray(build_batch([Record(0, 0, None, b"x" * (n * n % 90)) for n in range(20_000)]))
    assert check_batch(batch, 0, len(batch)).count == 20_000
    at = HEADER_SIZE
    for _ in range(place):
        at += 1 + (batch[at] >> 1) if batch[at] < 128 else 2 + ((batch[at] - 128 + (batch[at + 1] << 7)) >> 1)
    at += 3 if batch[at] < 128 else 4
    assert batch[at] & 127 == 2 * place & 127
    batch[at] ^= 2
    assert not is_sound(batch, 20_000)
    with pytest.raises(InvalidRecord):
        check_batch(sealed(batch), 0, len(batch))


@pytest.mark.parametrize("place", [1, 63, 64, 65, 320, 321, 8191, 8192, 8193])
def test_a_record_out_of_place_is_seen_where_runs_begin_and_end(place: int) -> None:
    batch = bytearray(build_batch([Record(0, 0, None, b"x" * 10)] * 9_000))
    # 17 bytes for each record, one more from 64 on, and another from 8,192 on; the delta is the fourth
    at = HEADER_SIZE + 17 * place + max(0, place - 64) + max(0, place - 8192) + 3
    assert batch[at] & 127 == 2 * place & 127
    batch[at] ^= 2
    assert not is_sound(batch, 9_000)
    with pytest.raises(InvalidRecord):
        check_batch(sealed(batch), 0, len(batch))
