"""Idempotence and transactions in one partition's log."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock import errors
from penstock.clock import ManualClock
from penstock.fs import REAL_FS, Fs
from penstock.log.partition_log import PartitionLog
from penstock.log.producer_state import SnapshotError, parse_snapshot, render_snapshot
from penstock.log.recovery import producer_rebuild
from penstock.wire.batches.records import control_marker
from tests.unit.log_helpers import append, batch, contents, make_log, marker


def send(log: PartitionLog, sequence: int, epoch: int = 0, count: int = 1, producer: int = 1) -> int:
    return append(log, batch([b"v"] * count, producer=(producer, epoch, sequence))).base_offset


@pytest.mark.promise(
    "log", "A broker detects duplicates of the last five batches of a producer, also after a restart"
)
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


@pytest.mark.promise("log", "Sequence gaps and old producer epochs get Kafka's errors")
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


def test_after_a_marker_alone_an_epoch_begins_with_sequence_0(tmp_path: Path) -> None:
    """A later batch that comes first is refused, as by Kafka: else those before it could not follow."""
    log = make_log(tmp_path)
    marker(log, "abort", 1)
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        send(log, 4)
    send(log, 0)


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


@pytest.mark.promise(
    "log", "A broker detects duplicates of the last five batches of a producer, also after a restart"
)
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


@pytest.mark.promise(
    "transactions",
    "A transaction index entry that a crash left incomplete hides no aborted transaction; a retry is "
    "recognised after DeleteRecords inside its batch and a crash",
)
def test_the_sequences_of_a_batch_within_which_the_log_starts_survive_a_crash(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    send(log, 0, count=3)
    log.delete_records_before(1)
    again = make_log(tmp_path, log_start_offset=1)
    info = append(again, batch([b"v"] * 3, producer=(1, 0, 0)))
    assert info.duplicate and info.base_offset == 0


@pytest.mark.promise("crashes", "Missing, truncated and corrupt indexes are rebuilt")
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


@pytest.mark.promise("log", "The last stable offset does not pass the start of an open transaction")
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


@pytest.mark.promise("log", "The last stable offset does not pass the start of an open transaction")
def test_the_last_stable_offset_is_not_before_the_start_of_the_log(tmp_path: Path) -> None:
    """DeleteRecords has moved the start into an open transaction: a read_committed consumer that begins at
    the end must be within the log."""
    log = make_log(tmp_path)
    append(log, batch([b"a"], producer=(1, 0, 0), transactional=True))
    append(log, batch([b"b"] * 3))
    log.delete_records_before(2)
    assert log.last_stable_offset == 2
    marker(log, "commit", 1)
    assert log.last_stable_offset == 5


def test_the_last_stable_offset_waits_until_a_marker_is_replicated(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    data = batch([b"a"], producer=(1, 0, 0), transactional=True)
    log.append_as_leader(data, 0, len(data), 0)
    log.update_high_watermark(1)
    from penstock.wire.batches.records import control_marker

    end = bytearray(control_marker("commit", 0, 1, 0, 1))
    log.append_as_leader(end, 0, len(end), 0, origin="coordinator")
    assert log.last_stable_offset == 0
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2


@pytest.mark.promise("log", "The last stable offset does not pass the start of an open transaction")
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


@pytest.mark.promise("crashes", "Missing, truncated and corrupt indexes are rebuilt")
def test_a_lost_transaction_index_comes_back_with_recovery(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=250)
    for producer in range(4):
        append(log, batch([b"x"], producer=(producer, 0, 0), transactional=True))
        marker(log, "abort", producer)
    expected = log.aborted_transactions(0, 100)
    for path in Path(log.directory).glob("*.txnindex"):
        path.unlink()
    assert make_log(tmp_path, segment_bytes=250).aborted_transactions(0, 100) == expected


@pytest.mark.promise(
    "transactions",
    "A transaction index entry that a crash left incomplete hides no aborted transaction; a retry is "
    "recognised after DeleteRecords inside its batch and a crash",
)
def test_an_entry_of_the_transaction_index_that_a_crash_has_torn_is_overwritten(tmp_path: Path) -> None:
    """Behind the rest of it the next entries were misread after a restart: aborted records became visible."""
    log = make_log(tmp_path)
    for sequence in range(2):
        append(log, batch([b"v"], producer=(1, 0, sequence), transactional=True))
        marker(log, "abort", 1)
    expected, path = list(log.active.txns), Path(log.active.txns.path)
    log.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2 + 10])  # one entry, and a part of the next
    again = make_log(tmp_path)
    assert list(again.active.txns) == expected, "recovery has read the markers"
    again.close()
    assert list(make_log(tmp_path, clean=True).active.txns) == expected


@pytest.mark.promise(
    "transactions",
    "After a power loss the transaction index agrees with the markers: a gap in it hides no committed "
    "transaction, and entries that were flushed with a segment are kept",
)
def test_a_hole_in_the_transaction_index_hides_no_committed_transaction(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for producer, kind in ((7, "commit"), (7, "abort"), (8, "abort")):
        sequence = (
            len(log.producers.producers[producer].batches) if producer in log.producers.producers else 0
        )
        append(log, batch([b"v"], producer=(producer, 0, sequence), transactional=True))
        marker(log, kind, producer)
    log.flush()
    expected, path = list(log.active.txns), Path(log.active.txns.path)
    whole = bytearray(path.read_bytes())
    whole[10:34] = bytes(24)  # producer 7 has aborted what begins at 0, it says now
    path.write_bytes(whole)
    again = make_log(tmp_path, recovery_point=log.recovery_point)
    assert list(again.active.txns) == expected
    again.check()


class _Synced(Fs):
    """Which files were synced."""

    def __init__(self) -> None:
        self.synced: set[str] = set()

    def fsync(self, fd: int) -> None:
        self.synced.add(os.readlink(f"/proc/self/fd/{fd}"))
        super().fsync(fd)


@pytest.mark.promise(
    "transactions",
    "After a power loss the transaction index agrees with the markers: a gap in it hides no committed "
    "transaction, and entries that were flushed with a segment are kept",
)
@pytest.mark.parametrize("flushed_before", [False, True])
def test_the_indexes_of_a_sealed_segment_are_synced_with_it(tmp_path: Path, flushed_before: bool) -> None:
    """Also where all of its records were on disk before it was sealed."""
    fs = _Synced()
    log = make_log(tmp_path, fs=fs)
    append(log, batch([b"v"], producer=(7, 0, 0), transactional=True))
    marker(log, "abort", 7)
    if flushed_before:
        log.flush()
    log.roll()
    append(log, batch([b"w"]))
    log.flush()
    assert {log.segments[0].txns.path, log.segments[0].offsets.path} <= fs.synced


def test_markers_of_fenced_coordinators_and_producers_are_refused(tmp_path: Path) -> None:
    from penstock.wire.batches.records import control_marker

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
    log.settle()
    assert send(log, 11) == 11
    assert [offset for offset, _ in contents(log)] == list(range(12))
    assert REAL_FS.exists(log.producers.snapshot_path(log.active.base_offset)) or len(log.segments) == 1


@pytest.mark.promise("crashes", "A retried batch waits for the same flush as the first attempt")
def test_a_retry_waits_for_the_flush_that_the_first_one_waits_for(tmp_path: Path) -> None:
    log = make_log(tmp_path, flush_messages=1)
    first = append(log, batch([b"v"], producer=(1, 0, 0)))
    again = append(log, batch([b"v"], producer=(1, 0, 0)))
    assert first.flush_required and again.duplicate and again.flush_required
    log.flush()
    assert not append(log, batch([b"v"], producer=(1, 0, 0))).flush_required


def test_a_retry_of_the_first_of_five_batches_is_known_after_a_marker_and_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    log = make_log(tmp_path, clock)
    for i in range(5):
        append(log, batch([b"v"], producer=(1, 0, i), transactional=True))
    clock.advance(10)
    marker(log, "commit", 1)
    log.close()
    again = make_log(tmp_path, clean=True)
    info = append(again, batch([b"v"], producer=(1, 0, 0), transactional=True))
    assert info.duplicate
    assert info.base_offset == 0


def with_transactions(path: Path) -> PartitionLog:
    """A committed, an aborted and an open transaction, and a plain producer; the high watermark is at 8."""
    log = make_log(path, segment_bytes=300)
    for i in range(4):
        append(log, batch([b"v"], producer=(1, 0, i)))
    append(log, batch([b"v"], producer=(2, 0, 0), transactional=True))
    marker(log, "commit", 2)
    append(log, batch([b"v"], producer=(3, 0, 0), transactional=True))
    marker(log, "abort", 3)
    for data in (
        batch([b"v"], producer=(2, 0, 1), transactional=True),
        batch([b"v"], producer=(4, 0, 0), transactional=True),
        bytearray(control_marker("commit", 0, 2, 0, log.clock.now_ms())),
    ):
        log.append_as_leader(data, 0, len(data), 0, origin="coordinator")
    assert log.high_watermark == 8
    return log


def state_of(log: PartitionLog) -> object:
    return (
        {
            producer: (entry.epoch, list(entry.batches), entry.txn_first_offset)
            for producer, entry in log.producers.producers.items()
        },
        log.producers.ongoing,
        log.last_stable_offset,
    )


@pytest.mark.promise(
    "log",
    "After a truncation the producer state is rebuilt in a thread; until then the log accepts no records",
)
@pytest.mark.parametrize("offset", range(1, 11))
def test_after_a_truncation_producers_are_read_back_in_a_thread_as_they_would_be_at_once(
    tmp_path: Path, offset: int
) -> None:
    log, other = with_transactions(tmp_path / "a"), with_transactions(tmp_path / "b")
    log.truncate_to(offset)
    other.truncate_to(offset)
    other.settle()
    rebuild = log.producer_rebuild()
    assert rebuild is not None
    stable = log.last_stable_offset
    with ThreadPoolExecutor(1) as pool:
        pool.submit(rebuild.run).result()
    assert log.producer_rebuild() is rebuild, "the loop takes it over"
    log.take_producers(rebuild)
    assert log.producer_rebuild() is None
    assert state_of(log) == state_of(other)
    assert stable <= log.last_stable_offset, "until it is known, nothing of an open transaction is shown"
    log.check()


@pytest.mark.promise(
    "log",
    "After a truncation the producer state is rebuilt in a thread; until then the log accepts no records",
)
def test_until_producers_are_read_back_batches_are_refused_and_keep_their_order(tmp_path: Path) -> None:
    log = with_transactions(tmp_path)
    log.truncate_to(3)
    rebuild = log.producer_rebuild()
    assert rebuild is not None
    for refused in (batch([b"v"], producer=(1, 0, 3)), batch([b"plain"])):
        with pytest.raises(errors.NotLeaderOrFollower):
            append(log, refused)
    with pytest.raises(errors.NotLeaderOrFollower):
        _ = log.producers
    log.take_producers(rebuild)
    with pytest.raises(errors.NotLeaderOrFollower):  # was under way with the first one, and overtakes it
        append(log, batch([b"v"], producer=(1, 0, 4)))
    assert append(log, batch([b"v"], producer=(1, 0, 3))).base_offset == 3
    assert append(log, batch([b"v"], producer=(1, 0, 4))).base_offset == 4
    log.check()


@pytest.mark.promise(
    "log",
    "After a truncation the producer state is rebuilt in a thread; until then the log accepts no records",
)
def test_nobody_waits_for_the_thread_that_reads_producers_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = with_transactions(tmp_path)
    log.truncate_to(3)
    rebuild = log.producer_rebuild()
    assert rebuild is not None
    reading, go_on = threading.Event(), threading.Event()
    original = producer_rebuild.replay_producers

    def held_up(*args: Any, **more: Any) -> None:
        assert threading.current_thread() is not threading.main_thread()
        reading.set()
        assert go_on.wait(60)
        original(*args, **more)

    monkeypatch.setattr(producer_rebuild, "replay_producers", held_up)
    with ThreadPoolExecutor(1) as pool:
        thread = pool.submit(rebuild.run)
        assert reading.wait(60)
        with pytest.raises(errors.NotLeaderOrFollower):
            append(log, batch([b"v"], producer=(1, 0, 3)))
        log.check()
        go_on.set()
        thread.result()
    log.take_producers(rebuild)
    assert append(log, batch([b"v"], producer=(1, 0, 3))).base_offset == 3
    log.check()


def test_producers_of_an_earlier_truncation_are_not_taken_over(tmp_path: Path) -> None:
    log = with_transactions(tmp_path)
    log.truncate_to(9)
    rebuild = log.producer_rebuild()
    assert rebuild is not None
    rebuild.run()
    log.truncate_to(3)
    log.take_producers(rebuild)
    assert not log.is_settled
    log.settle()
    assert log.producers.producers.keys() == {1}
    log.check()


def test_a_follower_that_appends_after_a_truncation_knows_each_batch_once(tmp_path: Path) -> None:
    log = with_transactions(tmp_path)
    log.truncate_to(3)
    log.settle()
    data = batch([b"v"], producer=(1, 0, 3), base_offset=3)
    log.append_as_follower(data, 0, len(data))
    assert [mark.last_offset for mark in log.producers.producers[1].batches] == [0, 1, 2, 3]


@pytest.mark.promise(
    "log",
    "A temporarily rejected batch counts for its producer only if it is intact and has the latest epoch",
)
def test_a_refused_batch_of_a_zombie_does_not_replace_that_of_the_producer(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, batch([b"v"], producer=(1, 5, 0)))
    for refused in (batch([b"v"], producer=(1, 5, 1)), batch([b"v"], producer=(1, 4, 7))):
        log.refuse(refused, 0, len(refused), errors.NotEnoughReplicas())
    with pytest.raises(errors.NotEnoughReplicas):
        append(log, batch([b"v"], producer=(1, 5, 2)))


@pytest.mark.promise(
    "log",
    "A temporarily rejected batch counts for its producer only if it is intact and has the latest epoch",
)
def test_a_refused_batch_that_is_damaged_says_nothing_of_its_producer(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    damaged = batch([b"v"], producer=(1, 0, 0))
    damaged[-1] ^= 1
    log.refuse(damaged, 0, len(damaged), errors.NotEnoughReplicas())
    assert append(log, batch([b"v"], producer=(1, 0, 3))).base_offset == 0
