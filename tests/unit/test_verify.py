"""`penstock log verify`: a sound log has no problems, and every kind of damage is found and named."""

from __future__ import annotations

import json
import os
import re
import struct
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from crc32c import crc32c

from penstock.cli.main import cli
from penstock.clock import ManualClock
from penstock.config import LogConfig
from penstock.fs import REAL_FS, Fs
from penstock.log.checkpoint import render_checkpoint
from penstock.log.recovery.loading import open_log
from penstock.log.tools.verify import NotALogDirectory, verify, verify_partition
from penstock.log.tools.verify_segment import Problem
from penstock.wire.batches.records import Record, build_batch, control_marker

NOW = 1_700_000_000_000
SECOND = 12  # base offset of the active segment


def write(log, data: bytes) -> None:
    log.append_as_leader(bytearray(data), 0, len(data), 2, origin="coordinator")


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A closed segment with offsets 0-11 and an active one with 12-15; transactions, indexes, snapshot."""
    config = LogConfig(index_interval_bytes=1)
    log = open_log(
        str(tmp_path / "t-0"), "t", 0, uuid.UUID(int=1), config, ManualClock(NOW), REAL_FS, clean=True
    )
    ids = {"producer_id": 4, "producer_epoch": 0}
    for i in range(5):
        records = [Record(0, NOW + i * 10 + j, b"k", b"v") for j in range(2)]
        write(log, build_batch(records, base_sequence=2 * i, codec=i, **ids))
    write(log, build_batch([Record(0, NOW, b"k", b"v")], base_sequence=10, transactional=True, **ids))
    write(log, control_marker("abort", 0, 4, 0, NOW + 100))
    log.roll()
    for i in range(2):
        write(log, build_batch([Record(0, NOW + 200 + i, b"k", b"v")] * 2, base_sequence=11 + 2 * i, **ids))
    log.close()
    return tmp_path / "t-0"


def check(partition: Path) -> list[Problem]:
    return verify_partition(str(partition), wait=lambda: None).problems


def path_of(partition: Path, kind: str, base: int = 0) -> Path:
    return partition / f"{base:020d}{kind}"


def patch(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    if position < 0:
        position += len(content)
    content[position : position + len(data)] = data
    path.write_bytes(content)


def batch_positions(path: Path) -> list[int]:
    data, position, found = path.read_bytes(), 0, []
    while position < len(data):
        found.append(position)
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found


def replace_batch(partition: Path, number: int, batch: bytes) -> int:
    """Put another batch in the place of one of the closed segment; its position."""
    path = path_of(partition, ".log")
    positions = [*batch_positions(path), path.stat().st_size]
    data = path.read_bytes()
    path.write_bytes(data[: positions[number]] + batch + data[positions[number + 1] :])
    return positions[number]


def test_a_sound_partition_has_no_problems(partition):
    report = verify_partition(str(partition), wait=lambda: None)
    assert report.problems == []
    assert (report.segments, report.batches, report.records) == (2, 9, 16)
    assert (report.first_offset, report.end_offset) == (0, 16)
    assert report.bytes == sum(path.stat().st_size for path in partition.glob("*.log"))


@pytest.mark.promise(
    "log",
    "`penstock log dump` and `penstock log verify` read a log and report what is wrong in it, and where",
)
def test_a_wrong_crc_is_found_and_the_rest_is_still_read(partition):
    path = path_of(partition, ".log")
    positions = batch_positions(path)
    patch(path, positions[2] + 65, b"\xee")
    patch(path, positions[4] + 65, b"\xee")
    problems = check(partition)
    assert [(p.path, p.position) for p in problems] == [(str(path), positions[2]), (str(path), positions[4])]
    assert all("CRC" in p.what and "restore" in p.remedy for p in problems)


@pytest.mark.parametrize(
    ("field", "data", "text"),
    [
        (8, struct.pack(">i", 5), "fewer than a header"),
        (8, struct.pack(">i", 1 << 30), "are left in the file"),
        (16, b"\x01", "format"),
        (16, b"\x07", "magic"),
    ],
    ids=["length too small", "length too large", "old magic", "unknown magic"],
)
def test_a_broken_header_in_a_closed_segment_is_found(partition, field, data, text):
    path = path_of(partition, ".log")
    position = batch_positions(path)[1]
    patch(path, position + field, data)
    problem = check(partition)[0]
    assert (problem.path, problem.position) == (str(path), position)
    assert text in problem.what


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (build_batch([Record(0, NOW, b"", b"")] * 3, base_offset=2, last_offset_delta=1), "do not fit"),
        (
            build_batch([Record(0, NOW, b"", b"")], base_offset=0, leader_epoch=2),
            "offset 0 comes after offset 1",
        ),
        (
            build_batch([Record(0, NOW, b"", b"")] * 2, base_offset=2, leader_epoch=1),
            "leader epoch 1 comes after 2",
        ),
        (
            build_batch([Record(0, NOW, b"", b"")] * 2, base_offset=2, offsets=[3, 2], leader_epoch=2),
            "out of order",
        ),
        (
            build_batch([Record(0, NOW, b"", b"")], base_offset=2, offsets=[9], last_offset_delta=1),
            "out of order",
        ),
        (
            build_batch(
                [Record(0, NOW, b"", b"")] * 2,
                base_offset=2,
                leader_epoch=2,
                producer_id=4,
                producer_epoch=0,
                base_sequence=1,
            ),
            "sequence 1 comes after 1",
        ),
        (
            build_batch(
                [Record(0, NOW, b"", b"")] * 2,
                base_offset=2,
                leader_epoch=2,
                producer_id=4,
                producer_epoch=0,
                base_sequence=3,
            ),
            "sequence 3 comes after 1",
        ),
    ],
    ids=[
        "count",
        "offset",
        "epoch",
        "record order",
        "record outside",
        "repeated sequence",
        "missing sequence",
    ],
)
def test_a_batch_that_contradicts_its_neighbours_is_found(partition, batch, text):
    position = replace_batch(partition, 1, batch)
    found = [p for p in check(partition) if p.position == position and p.path.endswith(".log")]
    assert any(text in p.what for p in found), found


def test_a_producer_epoch_that_goes_back_is_found(partition):
    newer = build_batch(
        [Record(0, NOW, b"", b"")] * 2,
        base_offset=2,
        leader_epoch=2,
        producer_id=4,
        producer_epoch=3,
        base_sequence=0,
    )
    replace_batch(partition, 1, newer)
    assert any("epoch 0 comes after 3" in p.what for p in check(partition))


def test_records_that_do_not_decode_are_found(partition):
    batch = bytearray(build_batch([Record(0, NOW, b"key", b"value")] * 2, base_offset=2, leader_epoch=2))
    batch[61] = 0x70  # the length of the first record
    batch[17:21] = struct.pack(">I", crc32c(bytes(batch[21:])))
    position = replace_batch(partition, 1, bytes(batch))
    assert any(p.position == position and "do not decode" in p.what for p in check(partition))


def test_sequences_that_compaction_took_out_are_no_problem(partition):
    path = path_of(partition, ".log")
    positions = batch_positions(path)
    data = path.read_bytes()
    path.write_bytes(data[: positions[1]] + data[positions[2] :])
    for kind in (".index", ".timeindex"):
        path_of(partition, kind).unlink()
    assert [p.what for p in check(partition)] == ["is missing", "is missing"]


def test_a_torn_tail_of_the_active_segment_is_told_with_its_length(partition):
    path = path_of(partition, ".log", SECOND)
    last = batch_positions(path)[-1]
    path.write_bytes(path.read_bytes()[:-3])
    path_of(partition, ".index", SECOND).unlink()
    path_of(partition, ".timeindex", SECOND).unlink()
    (problem,) = check(partition)
    assert problem.position == last
    assert problem.what.startswith(f"torn tail of {path.stat().st_size - last} bytes")
    assert "restart" in problem.remedy


@pytest.mark.parametrize("size", [8, 11, 40])
def test_a_tail_shorter_than_a_header_is_torn(partition, size):
    path = path_of(partition, ".log", SECOND)
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes() + path.read_bytes()[:size])
    (problem,) = check(partition)
    assert problem.position == whole
    assert "torn tail" in problem.what


def test_preallocated_space_behind_the_active_segment_is_no_problem(partition):
    path = path_of(partition, ".log", SECOND)
    path.write_bytes(path.read_bytes() + bytes(4096))
    for kind in (".index", ".timeindex"):
        index = path_of(partition, kind, SECOND)
        index.write_bytes(index.read_bytes() + bytes(240))
    assert check(partition) == []


def test_a_tail_that_is_still_being_written_is_waited_for(partition):
    path = path_of(partition, ".log", SECOND)
    data = path.read_bytes()
    path.write_bytes(data[:-3])
    waits = []

    def broker_writes_on() -> None:
        waits.append(1)
        path.write_bytes(data)

    assert verify_partition(str(partition), wait=broker_writes_on).problems == []
    assert waits == [1]


class MovingFs(Fs):
    """Does something to the directory when a file is first read."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self.name, self.action = name, action

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        if path.endswith(self.name) and self.name:
            self.name = ""
            self.action()
        return super().open(path, flags, mode)


def test_a_segment_that_retention_removes_meanwhile_is_no_problem(partition):
    def remove() -> None:
        for kind in (".log", ".index", ".timeindex", ".txnindex"):
            path_of(partition, kind).unlink()

    report = verify_partition(str(partition), fs=MovingFs(f"{0:020d}.index", remove), wait=lambda: None)
    assert report.problems == []
    assert report.first_offset == SECOND


def test_an_index_that_is_completed_right_after_a_roll_is_no_problem(partition):
    path = path_of(partition, ".timeindex")
    data = path.read_bytes()
    path.write_bytes(data[:-12])
    report = verify_partition(str(partition), wait=lambda: path.write_bytes(data) and None)
    assert report.problems == []


def test_a_segment_that_compaction_swaps_meanwhile_is_no_problem(partition):
    path = path_of(partition, ".log")

    def swap() -> None:
        shorter = partition / "new"
        shorter.write_bytes(path.read_bytes()[: batch_positions(path)[0]])
        os.replace(shorter, path)
        for kind in (".index", ".timeindex", ".txnindex"):
            path_of(partition, kind).write_bytes(b"")

    report = verify_partition(str(partition), fs=MovingFs(path.name, swap), wait=lambda: None)
    assert report.problems == []


@pytest.mark.parametrize(
    ("kind", "position", "data", "text"),
    [
        (".index", 4, struct.pack(">i", 3), "not the start of a batch"),
        (".index", -4, struct.pack(">i", 1 << 20), "not the start of a batch"),
        (".index", 0, struct.pack(">i", 0), "where 2 starts"),
        (".index", 8, struct.pack(">i", 1), "does not follow"),
        (".index", -8, struct.pack(">i", 999), "past the end"),
        (".timeindex", 0, struct.pack(">q", NOW - 9), "does not follow|as new as"),
        (".timeindex", -12, struct.pack(">q", NOW + 999), "has the timestamp"),
        (".timeindex", -4, struct.pack(">i", 999), "past the end"),
        (".timeindex", 12, struct.pack(">q", 0), "does not follow"),
        (".txnindex", 0, struct.pack(">h", 5), "version 5"),
        (".txnindex", 2, struct.pack(">q", 5), "no abort marker of producer 5"),
        (".txnindex", 10, struct.pack(">q", 99), "impossible"),
    ],
)
def test_a_wrong_index_entry_is_found(partition, kind, position, data, text):
    path = path_of(partition, kind)
    patch(path, position, data)
    problems = check(partition)
    assert problems
    assert {p.path for p in problems} == {str(path)}
    assert any(re.search(text, p.what) for p in problems), problems
    assert all("rebuilt" in p.remedy for p in problems)


def test_a_time_index_without_the_newest_timestamp_is_found(partition):
    path = path_of(partition, ".timeindex")
    path.write_bytes(path.read_bytes()[:-12])
    (problem,) = check(partition)
    assert "has no entry" in problem.what


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex"])
def test_an_index_cut_inside_an_entry_is_found(partition, kind):
    path = path_of(partition, kind)
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\x00")
    (problem,) = check(partition)
    assert (problem.path, problem.position) == (str(path), whole)


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_missing_index_of_a_closed_segment_is_found(partition, kind):
    path_of(partition, kind).unlink()
    (problem,) = check(partition)
    assert (problem.path, problem.what) == (str(path_of(partition, kind)), "is missing")


def test_segments_that_overlap_are_found(partition):
    for kind in (".log", ".index", ".timeindex", ".snapshot"):
        path_of(partition, kind, SECOND).rename(path_of(partition, kind, 10))
    assert any("reaches to offset 11" in p.what for p in check(partition))


def test_batches_that_do_not_belong_into_their_segment_are_found(partition):
    for kind in (".log", ".index", ".timeindex", ".snapshot"):
        path_of(partition, kind, SECOND).rename(path_of(partition, kind, 13))
    assert any("do not belong into the segment 13" in p.what for p in check(partition))


def test_strange_names_and_indexes_without_a_log_are_found_but_not_what_a_pass_leaves(partition):
    (partition / "notes.txt").write_text("x")
    path_of(partition, ".index", 99).write_bytes(b"")
    for suffix in (".log.cleaned", ".log.swap", ".log.deleted"):
        path_of(partition, suffix).write_bytes(b"")
    assert {(Path(p.path).name, p.what) for p in check(partition)} == {
        ("notes.txt", "is not a name that a log has"),
        (f"{99:020d}.index", "no segment of this name exists"),
    }


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (f"{SECOND:020d}.snapshot", b"\x00\x01\xff\xff\xff\xff\x00\x00\x00\x00"),
        ("leader-epoch-checkpoint", b"0\n2\n3 0\n2 5\n"),
        ("leader-epoch-checkpoint", b"junk"),
        ("partition.metadata", b"version: 0\n"),
        ("partition.metadata", b"\xff"),
    ],
)
def test_damage_beside_the_segments_is_found(partition, name, data):
    (partition / name).write_bytes(data)
    (problem,) = check(partition)
    assert problem.path == str(partition / name)


def test_a_data_directory_is_checked_with_its_partitions_and_checkpoints(partition):
    data = partition.parent
    (data / "meta.properties").write_text("version=1\n")
    (data / "recovery-point-offset-checkpoint").write_bytes(render_checkpoint([("t", "0", "1")]))
    (data / "t-1.0123-delete").mkdir()
    seen: list[int] = []
    report = verify(str(data), wait=lambda: None, progress=seen.append)
    assert report.is_clean
    assert [Path(p.directory).name for p in report.partitions] == ["t-0"]
    assert seen[-1] == report.partitions[0].bytes
    (data / "recovery-point-offset-checkpoint").write_bytes(b"1\n")
    (data / "cleaner-offset-checkpoint").write_bytes(render_checkpoint([("t", "0", "x")]))
    (data / "meta.properties").write_text("junk\n")
    names = {Path(p.path).name for p in verify(str(data), wait=lambda: None).problems}
    assert names == {"recovery-point-offset-checkpoint", "cleaner-offset-checkpoint", "meta.properties"}


def test_a_directory_that_is_no_log_is_refused(tmp_path):
    with pytest.raises(NotALogDirectory):
        verify(str(tmp_path))


@pytest.mark.promise(
    "log",
    "`penstock log dump` and `penstock log verify` read a log and report what is wrong in it, and where",
)
def test_the_command_tells_people_and_programs_and_exits_by_what_it_found(partition):
    runner = CliRunner()
    good = runner.invoke(cli, ["log", "verify", str(partition)])
    assert good.exit_code == 0
    assert "no problems" in good.output
    as_json = json.loads(runner.invoke(cli, ["log", "verify", str(partition.parent), "--json"]).output)
    assert as_json["clean"]
    assert as_json["partitions"][0]["records"] == 16

    path = path_of(partition, ".log")
    patch(path, 70, b"\xee")
    bad = runner.invoke(cli, ["log", "verify", str(partition)])
    assert bad.exit_code == 1
    for text in (f"{path} at position 0", "CRC", "to do:"):
        assert text in bad.output
    found = json.loads(runner.invoke(cli, ["log", "verify", str(partition), "--json"]).output)
    assert not found["clean"]
    assert found["partitions"][0]["problems"][0]["position"] == 0

    assert runner.invoke(cli, ["log", "verify", str(partition / "absent")]).exit_code == 2
    empty = partition.parent / "empty"
    empty.mkdir()
    assert runner.invoke(cli, ["log", "verify", str(empty)]).exit_code == 2
