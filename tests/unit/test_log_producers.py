"""Idempotence and transactions in one partition's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import errors
from penstock.clock import ManualClock
from penstock.fs import REAL_FS
from penstock.log.partition_log import PartitionLog
from penstock.log.producer_state import SnapshotError, parse_snapshot, render_snapshot
from tests.unit.log_helpers import append, batch, contents, make_log, marker


def send(log: PartitionLog, sequence: int, epoch: int = 0, count: int = 1, producer: int = 1) -> int:
    return append(log, batch([b"v"] * count, producer=(producer, epoch, sequence))).base_offset


def test_a_retry_of_any_of_the_last_five_batches_gets_its_first_offset_back(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for i in range(7):
        assert send(log, 2 * i, count=2) == 2 * i
    for i in range(2, 7):
        info = append(log, batch([b"v"] * 2, producer=(1, 0, 2 * i)))
        assert info.duplicate and info.base_offset == 2 * i
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        send(log, 2, count=2)
    assert log.log_end_offset == 14


def test_gaps_old_epochs_and_new_epochs_are_answered_as_kafka_does(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    send(log, 0)
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        send(log, 2)
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        send(log, 1, epoch=1)
    send(log, 0, epoch=1)
    with pytest.raises(errors.InvalidProducerEpoch):
        send(log, 1, epoch=0)
    assert send(log, 17, producer=2) == 2, "an unknown producer may start anywhere"


def test_sequences_wrap_to_zero(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    send(log, 2**31 - 2, count=2)
    send(log, 0)
    info = append(log, batch([b"v"] * 2, producer=(1, 0, 2**31 - 2)))
    assert info.duplicate and info.base_offset == 0
    wrapped = make_log(tmp_path / "wrapped")
    send(wrapped, 2**31 - 1, count=3)
    assert append(wrapped, batch([b"v"] * 3, producer=(1, 0, 2**31 - 1))).duplicate
    assert send(wrapped, 2) == 3


@pytest.mark.parametrize("clean", [True, False])
def test_sequences_survive_a_restart(tmp_path: Path, clean: bool) -> None:
    log = make_log(tmp_path, segment_bytes=300)
    for i in range(20):
        send(log, i)
    if clean:
        log.close()
    log = make_log(tmp_path, clean=clean, segment_bytes=300)
    info = append(log, batch([b"v"], producer=(1, 0, 18)))
    assert info.duplicate and info.base_offset == 18
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        send(log, 21)
    assert send(log, 20) == 20


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", range(5, 14))
def test_the_last_five_batches_are_known_after_a_restart_wherever_segments_end(
    tmp_path: Path, clean: bool, count: int
) -> None:
    log = make_log(tmp_path, segment_bytes=250)
    for i in range(count):
        send(log, i)
    log.flush()
    if clean:
        log.close()
    log = make_log(tmp_path, clean=clean, segment_bytes=250, recovery_point=count - 1)
    assert len(log.segments) > 1
    for i in range(count - 5, count):
        info = append(log, batch([b"v"], producer=(1, 0, i)))
        assert (info.duplicate, info.base_offset) == (True, i)
    assert send(log, count) == count


def test_a_damaged_snapshot_is_passed_over(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=300)
    for i in range(20):
        send(log, i)
    log.close()
    for path in Path(log.directory).glob("*.snapshot"):
        path.write_bytes(b"\x00" * 40)
    log = make_log(tmp_path, clean=True, segment_bytes=300)
    assert send(log, 20) == 20


def test_snapshots_are_read_back_and_checked(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    send(log, 0)
    append(log, batch([b"t"], producer=(2, 3, 0), transactional=True))
    data = render_snapshot(log.producers.producers)
    again = parse_snapshot(data)
    assert again[2].epoch == 3 and again[2].txn_first_offset == 1
    assert again[1].batches[-1] == log.producers.producers[1].batches[-1]
    for i in range(len(data)):
        with pytest.raises(SnapshotError):
            parse_snapshot(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])


def test_producers_are_forgotten_when_they_expire_but_not_in_a_transaction(tmp_path: Path) -> None:
    clock = ManualClock()
    log = make_log(tmp_path, clock)
    send(log, 0)
    append(log, batch([b"t"], producer=(2, 0, 0), transactional=True))
    log.producers.expire(clock.now_ms() + 10, expiration_ms=10)
    assert set(log.producers.producers) == {2}


def test_the_last_stable_offset_waits_for_open_transactions(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, batch([b"a"], producer=(1, 0, 0), transactional=True))
    append(log, batch([b"b"]))
    append(log, batch([b"c"], producer=(2, 0, 0), transactional=True))
    assert log.last_stable_offset == 0
    marker(log, "commit", 1)
    assert log.last_stable_offset == 2
    marker(log, "abort", 2)
    assert log.last_stable_offset == 5
    assert [(txn.producer_id, txn.first_offset) for txn in log.aborted_transactions(0, 5)] == [(2, 2)]
    assert log.aborted_transactions(0, 2) == []


def test_the_last_stable_offset_waits_until_a_marker_is_replicated(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    data = batch([b"a"], producer=(1, 0, 0), transactional=True)
    log.append_as_leader(data, 0, len(data), 0)
    log.update_high_watermark(1)
    from penstock.wire.records import control_marker

    end = bytearray(control_marker("commit", 0, 1, 0, 1))
    log.append_as_leader(end, 0, len(end), 0, origin="coordinator")
    assert log.last_stable_offset == 0
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2


@pytest.mark.parametrize("clean", [True, False])
def test_transactions_survive_a_restart(tmp_path: Path, clean: bool) -> None:
    log = make_log(tmp_path, segment_bytes=250)
    for producer in range(6):
        append(log, batch([b"%d" % producer], producer=(producer, 0, 0), transactional=True))
        if producer < 4:
            marker(log, "abort" if producer % 2 else "commit", producer)
    aborted = log.aborted_transactions(0, 100)
    if clean:
        log.close()
    again = make_log(tmp_path, clean=clean, segment_bytes=250)
    again.update_high_watermark(again.log_end_offset)
    assert again.aborted_transactions(0, 100) == aborted
    assert again.last_stable_offset == log.last_stable_offset == 8
    marker(again, "commit", 4)
    marker(again, "commit", 5)
    assert again.last_stable_offset == again.log_end_offset


def test_a_lost_transaction_index_comes_back_with_recovery(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=250)
    for producer in range(4):
        append(log, batch([b"x"], producer=(producer, 0, 0), transactional=True))
        marker(log, "abort", producer)
    expected = log.aborted_transactions(0, 100)
    for path in Path(log.directory).glob("*.txnindex"):
        path.unlink()
    assert make_log(tmp_path, segment_bytes=250).aborted_transactions(0, 100) == expected


def test_markers_of_fenced_coordinators_and_producers_are_refused(tmp_path: Path) -> None:
    from penstock.wire.records import control_marker

    log = make_log(tmp_path)
    append(log, batch([b"a"], producer=(1, 5, 0), transactional=True))
    old = bytearray(control_marker("commit", 3, 1, 4, 0))
    with pytest.raises(errors.InvalidProducerEpoch):
        log.append_as_leader(old, 0, len(old), 0, origin="coordinator")
    good = bytearray(control_marker("commit", 3, 1, 5, 0))
    log.append_as_leader(good, 0, len(good), 0, origin="coordinator")
    fenced = bytearray(control_marker("commit", 2, 1, 5, 0))
    with pytest.raises(errors.TransactionCoordinatorFenced):
        log.append_as_leader(fenced, 0, len(fenced), 0, origin="coordinator")


def test_truncation_takes_producer_state_back(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=300)
    for i in range(20):
        send(log, i)
    log.truncate_to(11)
    assert send(log, 11) == 11
    assert [offset for offset, _ in contents(log)] == list(range(12))
    assert REAL_FS.exists(log.producers.snapshot_path(log.active.base_offset)) or len(log.segments) == 1


def test_a_retry_waits_for_the_flush_that_the_first_one_waits_for(tmp_path: Path) -> None:
    log = make_log(tmp_path, flush_messages=1)
    first = append(log, batch([b"v"], producer=(1, 0, 0)))
    again = append(log, batch([b"v"], producer=(1, 0, 0)))
    assert first.flush_required and again.duplicate and again.flush_required
    log.flush()
    assert not append(log, batch([b"v"], producer=(1, 0, 0))).flush_required
