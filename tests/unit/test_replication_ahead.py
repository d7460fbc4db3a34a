"""What a follower asks for before it has appended what it was sent."""

from uuid import uuid4

import pytest

from penstock.replication.follower.ahead import next_wanted
from penstock.wire.batches.batch import stamp
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.replica_fetch import ReplicaPartition, ReplicaResult

ASKED = ReplicaPartition(0, 7, 100, 6, 0, 1 << 20)
BEFORE = 13  # bytes of the frame before the records


def batch(base_offset: int, count: int, epoch: int) -> bytes:
    data = bytearray(build_batch([Record(i, 1, None, b"x") for i in range(count)]))
    stamp(data, 0, base_offset, epoch)
    return bytes(data)


def answer(*batches: bytes, high_watermark: int, **more: object) -> tuple[ReplicaResult, bytearray]:
    data = b"".join(batches)
    result = ReplicaResult(uuid4(), 0, 0, high_watermark, 0, None, None, BEFORE, BEFORE + len(data))._replace(
        **more
    )
    return result, bytearray(BEFORE) + data


@pytest.mark.promise(
    "topics",
    "A follower that was down catches up, even if it is killed while it does, and its log equals the "
    "leader's",
)
def test_far_behind_the_offset_after_the_last_batch_is_next():
    result, frame = answer(batch(100, 3, 6), batch(103, 2, 7), high_watermark=1000)
    assert next_wanted(ASKED, result, frame) == ASKED._replace(fetch_offset=105, last_fetched_epoch=7)


@pytest.mark.promise(
    "topics",
    "A follower that was down catches up, even if it is killed while it does, and its log equals the "
    "leader's",
)
@pytest.mark.parametrize("high_watermark", [105, 104, 0])
def test_nothing_is_said_to_be_here_at_the_high_watermark_or_past_it(high_watermark):
    result, frame = answer(batch(100, 5, 7), high_watermark=high_watermark)
    assert next_wanted(ASKED, result, frame) is None


def test_errors_and_logs_that_part_are_seen_first():
    for more in ({"error_code": 6}, {"diverging_epoch": (5, 90)}):
        result, frame = answer(batch(100, 5, 7), high_watermark=1000, **more)
        assert next_wanted(ASKED, result, frame) is None


def test_an_answer_without_a_whole_batch_says_nothing_of_the_next():
    result, frame = answer(high_watermark=1000)
    assert next_wanted(ASKED, result, frame) is None
    result, frame = answer(batch(100, 5, 7)[:-1], high_watermark=1000)
    assert next_wanted(ASKED, result, frame) is None


def test_a_batch_that_was_cut_is_not_counted():
    result, frame = answer(batch(100, 5, 7), batch(105, 5, 7)[:-1], high_watermark=1000)
    wanted = next_wanted(ASKED, result, frame)
    assert wanted is not None and wanted.fetch_offset == 105
