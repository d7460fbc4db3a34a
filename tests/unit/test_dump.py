"""`penstock log dump`: every kind of file, whole and damaged."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.clock import ManualClock
from penstock.config import LogConfig
from penstock.fs import REAL_FS
from penstock.log.checkpoint import render_checkpoint
from penstock.log.recovery.loading import open_log
from penstock.log.recovery.scan import CorruptSegment
from penstock.log.tools.dump import DumpError, dump_file, printable
from penstock.wire.batches.records import Record, build_batch, control_marker


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A partition with two segments: text and bytes, a transaction that was aborted, indexes."""
    clock = ManualClock()
    log = open_log(
        str(tmp_path / "t-0"),
        "t",
        0,
        uuid.UUID(int=1),
        LogConfig(index_interval_bytes=1),
        clock,
        REAL_FS,
        clean=True,
    )
    now = clock.now_ms()
    records = [
        Record(0, now, b"key", b"value", (("h", b"1"), ("n", None))),
        Record(0, now, None, b"\xff\x00"),
        Record(0, now + 5, b"", None),
    ]
    ids = {"producer_id": 4, "producer_epoch": 0, "transactional": True}
    for data in (
        build_batch(records, codec=4),
        build_batch(records[:2], base_sequence=0, **ids),
        control_marker("abort", 3, 4, 0, now),
    ):
        log.append_as_leader(bytearray(data), 0, len(data), 2, origin="coordinator")
    log.roll()
    data = build_batch(records[:1])
    log.append_as_leader(bytearray(data), 0, len(data), 2)
    log.close()
    return tmp_path / "t-0"


def first(directory: Path, kind: str) -> str:
    return str(directory / f"{0:020d}{kind}")


@pytest.mark.promise(
    "log",
    "`penstock log dump` and `penstock log verify` read a log and report what is wrong in it, and where",
)
def test_a_log_is_dumped_batch_by_batch(directory):
    rows = list(dump_file(first(directory, ".log")))
    assert [(row["base_offset"], row["last_offset"], row["count"]) for row in rows] == [
        (0, 2, 3),
        (3, 4, 2),
        (5, 5, 1),
    ]
    assert rows[0]["codec"] == "zstd"
    assert rows[1]["position"] == rows[0]["size"]
    assert (rows[1]["producer_id"], rows[1]["last_sequence"], rows[1]["transactional"]) == (4, 1, True)
    assert rows[2]["control"]


def test_records_are_text_where_they_are_text_and_hexadecimal_where_not(directory):
    rows = [row for row in dump_file(first(directory, ".log"), records=True) if row["type"] == "record"]
    assert (rows[0]["key"], rows[0]["value"]) == ("key", "value")
    assert rows[0]["headers"] == [["h", "1"], ["n", None]]
    assert (rows[1]["key"], rows[1]["value"]) == (None, {"hex": "ff00"})
    assert (rows[2]["key"], rows[2]["value"]) == ("", None)
    assert (rows[-1]["marker"], rows[-1]["coordinator_epoch"]) == ("abort", 3)


def test_deep_shows_records_without_their_contents(directory):
    rows = [row for row in dump_file(first(directory, ".log"), deep=True) if row["type"] == "record"]
    assert (rows[0]["offset"], rows[0]["key_size"], rows[0]["value_size"]) == (0, 3, 5)
    assert rows[0]["header_keys"] == ["h", "n"]
    assert "key" not in rows[0]
    assert rows[4]["sequence"] == 1


def test_the_indexes_are_dumped_with_absolute_offsets(directory):
    batches = list(dump_file(first(directory, ".log")))
    entries = list(dump_file(first(directory, ".index")))
    assert [(row["offset"], row["position"]) for row in entries] == [
        (batch["last_offset"], batch["position"]) for batch in batches[1:]
    ]
    assert list(dump_file(first(directory, ".timeindex")))[-1]["timestamp"] == batches[0]["max_timestamp"]
    (aborted,) = dump_file(first(directory, ".txnindex"))
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (4, 3, 5)


def test_snapshots_and_small_files_are_dumped(directory):
    (producer,) = dump_file(str(directory / f"{6:020d}.snapshot"))
    assert (producer["producer_id"], producer["last_sequence"], producer["last_offset"]) == (4, 1, 4)
    assert list(dump_file(str(directory / "leader-epoch-checkpoint"))) == [
        {"type": "leader_epoch", "epoch": 2, "start_offset": 0}
    ]
    (metadata,) = dump_file(str(directory / "partition.metadata"))
    assert metadata["version"] == "0"
    checkpoint = directory.parent / "recovery-point-offset-checkpoint"
    checkpoint.write_bytes(render_checkpoint([("t", "0", "6")]))
    assert list(dump_file(str(checkpoint))) == [
        {"type": "checkpoint", "topic": "t", "partition": 0, "offset": 6}
    ]
    properties = directory.parent / "meta.properties"
    properties.write_text("# made by hand\nversion=1\ncluster.id=abc=\n")
    assert list(dump_file(str(properties))) == [{"type": "properties", "version": "1", "cluster.id": "abc="}]


def test_files_that_wait_for_a_swap_or_removal_are_dumped_by_their_kind(directory):
    source = Path(first(directory, ".log"))
    for suffix in (".cleaned", ".swap", ".deleted"):
        copy = source.with_name(source.name + suffix)
        copy.write_bytes(source.read_bytes())
        assert len(list(dump_file(str(copy)))) == 3


def test_a_damaged_log_is_dumped_up_to_the_damage(directory):
    path = Path(first(directory, ".log"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    rows = dump_file(str(path))
    assert [next(rows)["base_offset"], next(rows)["base_offset"]] == [0, 3]
    with pytest.raises(CorruptSegment, match="CRC"):
        next(rows)


@pytest.mark.parametrize("name", [f"{0:020d}.index", f"{0:020d}.timeindex", f"{0:020d}.txnindex"])
def test_a_torn_index_names_the_position(directory, name):
    path = directory / name
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\x00\x01")
    with pytest.raises(DumpError, match=f"position {size}"):
        list(dump_file(str(path)))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (f"{6:020d}.snapshot", b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n"),
        ("leader-epoch-checkpoint", b"0\n1\nx 0\n"),
        ("partition.metadata", b"nothing"),
        ("other.txt", b""),
        ("short.index", b"\x00" * 8),
    ],
)
def test_other_damage_is_told_with_the_file(directory, name, data):
    (directory / name).write_bytes(data)
    with pytest.raises(DumpError, match=name):
        list(dump_file(str(directory / name)))


def test_bytes_are_printable_or_hexadecimal():
    assert printable("grüße\n".encode()) == "grüße\n"
    assert printable(b"\x1b[31m") == {"hex": "1b5b33316d"}
    assert printable(None) is None


def test_the_command_prints_lines_for_people_and_json_for_programs(directory):
    runner = CliRunner()
    people = runner.invoke(cli, ["log", "dump", first(directory, ".log"), "--records"])
    assert people.exit_code == 0
    assert "key: key  value: value" in people.output
    assert "value: hex:ff00" in people.output
    programs = runner.invoke(
        cli, ["log", "dump", first(directory, ".log"), first(directory, ".index"), "--json"]
    )
    rows = [json.loads(line) for line in programs.output.splitlines()]
    assert [row["type"] for row in rows] == ["batch"] * 3 + ["index_entry"] * 2
    assert rows[0]["file"].endswith(".log")


def test_the_command_fails_on_damage_and_on_wrong_usage(directory):
    runner = CliRunner()
    path = Path(first(directory, ".log"))
    path.write_bytes(path.read_bytes()[:-1])
    damaged = runner.invoke(cli, ["log", "dump", str(path)])
    assert damaged.exit_code == 1
    assert "position" in damaged.output
    assert runner.invoke(cli, ["log", "dump", str(directory / "absent.log")]).exit_code == 2
    assert runner.invoke(cli, ["log", "dump"]).exit_code == 2
