"""The files on disk are Kafka's: its classes read ours without complaint, and ours read theirs."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.clock import SystemClock
from penstock.config import LogConfig
from penstock.fs import REAL_FS
from penstock.log.recovery.loading import open_log
from penstock.wire.batches.records import Record, build_batch, control_marker, iter_records, read_header

if TYPE_CHECKING:
    from penstock.log.partition_log import PartitionLog
    from penstock.testing import PenstockBroker
    from tests.tools.conftest import KafkaTools

KAFKA_LOG = Path(__file__).with_name("KafkaLog.java")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# What kafka-dump-log prints when something is wrong; it ends with 0 all the same.
COMPLAINTS = (
    "mismatch",
    "non-consecutive",
    "isvalid: false",
    "found timestamp",
    "corrupt",
    "exception",
    "invalid",
)


def dump_without_complaint(kafka_tools: KafkaTools, files: list[Path]) -> str:
    said = kafka_tools.run("kafka-dump-log", "--print-data-log", "--files", ",".join(map(str, files)))
    wrong = [line for line in said.splitlines() if any(word in line.lower() for word in COMPLAINTS)]
    assert not wrong, "\n".join(wrong[:20])
    return said


def dumpable(directory: Path) -> dict[str, list[Path]]:
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    return {kind: sorted(directory.glob(f"*{kind}")) for kind in kinds}


@pytest.fixture
def written(penstock: PenstockBroker) -> PenstockBroker:
    """A stopped broker whose topic `made` has all codecs, several segments and an idempotent producer."""
    from confluent_kafka import Producer

    penstock.create_topic("made", config={"segment.bytes": 8_000, "index.interval.bytes": 500})
    for round_ in range(10):
        for codec in CODECS:
            penstock.produce(
                "made", [(f"k{n}", f"{round_} {codec} {n} " * 20) for n in range(10)], compression=codec
            )
    producer = Producer({"bootstrap.servers": penstock.bootstrap, "enable.idempotence": True})
    for n in range(100):
        producer.produce("made", f"idempotent {n}".encode())
    assert producer.flush(30) == 0
    penstock.stop()
    return penstock


@pytest.mark.promise("log", "Kafka's own tools and classes read Penstock's files")
def test_kafka_dump_log_reads_every_kind_of_file_that_a_broker_leaves(
    kafka_tools: KafkaTools, written: PenstockBroker
) -> None:
    files = dumpable(Path(written.data_dir) / "made-0")
    assert len(files[".log"]) > 2
    assert len(files[".index"]) == len(files[".log"]) == len(files[".timeindex"])
    assert files[".snapshot"]
    said = dump_without_complaint(kafka_tools, [path for kind in files.values() for path in kind])
    assert said.count("payload: idempotent ") == 100
    assert "compresscodec: zstd" in said.lower()
    indexes = [path for path in files[".index"] + files[".timeindex"] if path.stat().st_size]
    assert len(indexes) > 4
    checked = kafka_tools.run(
        "kafka-dump-log", "--index-sanity-check", "--files", ",".join(map(str, indexes))
    )
    assert checked.count("passed sanity check") == len(indexes), checked


@pytest.mark.promise("log", "Kafka's own tools and classes read Penstock's files")
def test_kafka_opens_a_broker_directory_as_cleanly_shut_down(
    kafka_tools: KafkaTools, written: PenstockBroker
) -> None:
    """meta.properties, the checkpoints, partition.metadata, epochs and snapshots, by Kafka's own readers."""
    found = kafka_tools.run_source(KAFKA_LOG, "read", written.data_dir, "made")
    assert found["clean"] == "true"
    assert found["ensembleErrors"] == "[]"
    assert int(found["end"]) == int(found["recoveryPoint"]) == int(found["records"]) == 600
    assert found["start"] == "0"
    assert found["epochs"] == "1"
    assert found["producers"] != "[]"
    assert len(found["clusterId"]) == 22


@pytest.mark.promise("log", "Kafka's own tools and classes read Penstock's files")
def test_kafka_reads_transactions_and_aborted_ranges_from_our_log(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    directory = tmp_path / "made-0"
    directory.mkdir()
    clock = SystemClock()
    now = clock.now_ms()
    log = open_log(
        str(directory), "made", 0, uuid.uuid4(), LogConfig(), clock, REAL_FS, clean=True, recovery_point=0
    )

    def append(batch: bytes, origin: str = "client") -> None:
        log.append_as_leader(bytearray(batch), 0, len(batch), 2, origin=origin)

    for producer_id, outcome in ((7, "commit"), (8, "abort"), (9, "abort")):
        records = [Record(0, now, b"key", f"{outcome} {producer_id}".encode())] * 3
        append(
            build_batch(
                records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
            )
        )
        append(control_marker(outcome, 1, producer_id, 0, now), "coordinator")
        log.roll()
    log.flush()
    log.close()

    files = dumpable(directory)
    said = dump_without_complaint(kafka_tools, [path for kind in files.values() for path in kind])
    assert said.count("endTxnMarker: ABORT") == 2
    assert said.count("endTxnMarker: COMMIT") == 1
    aborted = [line for line in said.splitlines() if "producerId: 8" in line and "firstOffset" in line]
    assert len(aborted) == 1, said
    assert "producerId: 9" in said


@pytest.fixture(scope="module")
def made_by_kafka(
    kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    directory = tmp_path_factory.mktemp("kafka")
    return directory, kafka_tools.run_source(KAFKA_LOG, "write", str(directory))


def stored_records(log: PartitionLog) -> list[Record]:
    """Every record from the log's start, as a consumer would find it in the bytes that it gets."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        for piece in log.read(offset, 1 << 20, log.log_end_offset):
            data = piece.read()
            position = 0
            while position < len(data):
                header = read_header(data, position)
                records += [record for record in iter_records(data, position) if record.offset >= offset]
                position += header.size
                offset = header.last_offset + 1
    return records


@pytest.mark.promise("log", "Penstock reads the files that Kafka wrote")
def test_penstock_log_verify_accepts_what_kafka_wrote(made_by_kafka: tuple[Path, dict[str, str]]) -> None:
    directory, _ = made_by_kafka
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "log", "verify", str(directory), "--json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    json.loads(done.stdout)


@pytest.mark.promise("log", "Penstock reads the files that Kafka wrote")
def test_our_log_opens_what_kafka_wrote_with_offsets_epochs_and_producers(
    made_by_kafka: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    directory, expected = made_by_kafka
    log = open_log(
        str(directory / "made-by-kafka-0"),
        "made-by-kafka",
        0,
        uuid.uuid4(),
        LogConfig(),
        SystemClock(),
        REAL_FS,
        clean=True,
        recovery_point=int(expected["end"]),
        log_start_offset=int(expected["start"]),
    )
    try:
        assert (log.log_start_offset, log.log_end_offset) == (7, int(expected["end"]))
        log.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == log.log_end_offset
        assert log.end_offset_for_epoch(0) == (0, 600)
        assert sorted(log.producers.producers) == [4000, 5000, 5001, 5002]
        aborted = log.aborted_transactions(0, log.log_end_offset)
        assert [entry.producer_id for entry in aborted] == [5001, 5002]
        assert [record.value for record in stored_records(log)[:2]] == [
            b"value-7-" + b"x" * 100,
            b"value-8-" + b"x" * 100,
        ]
        assert len(stored_records(log)) == int(expected["end"]) - 7
    finally:
        log.close()
