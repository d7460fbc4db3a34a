"""`penstock backup` and `penstock restore` of a single broker: what was acknowledged is there again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.backup.paused import holder_of
from penstock.cli.main import cli
from penstock.testing import PenstockBroker
from tests.repetitions import times

SETTINGS = {
    "log.segment.bytes": "16384",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
PATIENCE = 60


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


def done(*words: object) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


class Copier(threading.Thread):
    """Each number goes to the topics a and b in one transaction, then the group's offset is the next."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.settings = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.acknowledged = 0
        self._stopping = threading.Event()
        self._progress = threading.Condition()
        self._broken: BaseException | None = None

    def run(self) -> None:
        try:
            producer = Producer({**self.settings, "transactional.id": "copier", "linger.ms": 0})
            producer.init_transactions(PATIENCE)
            group = Consumer({**self.settings, "group.id": "g"})
            number = 0
            while not self._stopping.is_set():
                producer.begin_transaction()
                for topic in ("a", "b"):
                    producer.produce(topic, str(number).encode())
                producer.commit_transaction(PATIENCE)
                group.commit(offsets=[TopicPartition("a", 0, number + 1)], asynchronous=False)
                number += 1
                with self._progress:
                    self.acknowledged = number
                    self._progress.notify_all()
            group.close()
        except KafkaException as error:
            self._broken = error

    def wait_for(self, more: int) -> None:
        wanted = self.acknowledged + more
        with self._progress:
            there = self._progress.wait_for(lambda: self.acknowledged >= wanted or self._broken, PATIENCE)
        assert there and self._broken is None, self._broken

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        assert self._broken is None


def numbers(broker: PenstockBroker, topic: str) -> list[int]:
    return [int(record.value or b"") for record in broker.consume(topic, isolation="read_committed")]


def committed(broker: PenstockBroker) -> int:
    group = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "log_level": 0})
    offset: int = group.committed([TopicPartition("a", 0)], PATIENCE)[0].offset
    group.close()
    return offset


@pytest.mark.promise(
    "backups",
    "`penstock backup data` copies a broker's data directory while it is being written to: records "
    "acknowledged before are in the restored directory, with whole transactions and the committed "
    "offsets of groups",
)
@pytest.mark.repeated
def test_a_backup_beside_writers_has_all_that_was_acknowledged_and_nothing_by_halves(tmp_path: Path) -> None:
    chance = random.Random(11)
    acknowledged: list[int] = []
    with PenstockBroker(SETTINGS, event_loop="uvloop", data_dir=tmp_path / "live") as broker:
        for topic in ("a", "b"):
            broker.create_topic(topic)
        copier = Copier(broker.bootstrap)
        copier.start()
        for number in range(times(2, 15)):
            copier.wait_for(chance.randrange(20, 120))
            acknowledged.append(copier.acknowledged)
            made = done("backup", "data", tmp_path / "live", tmp_path / f"backup-{number}")
            assert made["running"] is True
            assert made["problems"] == []
        copier.wait_for(20)
        copier.stop()
        assert numbers(broker, "a") == numbers(broker, "b") == list(range(copier.acknowledged))
    for number, least in enumerate(acknowledged):
        restored = tmp_path / f"restored-{number}"
        done("restore", "data", tmp_path / f"backup-{number}", restored)
        assert done("log", "verify", restored)["clean"] is True
        with PenstockBroker(SETTINGS, event_loop="uvloop", data_dir=restored) as broker:
            # What was open in that moment is aborted; what was being committed is committed everywhere.
            copier = Copier(broker.bootstrap)
            producer = Producer({**copier.settings, "transactional.id": "copier"})
            producer.init_transactions(PATIENCE)
            found = numbers(broker, "a")
            assert found == numbers(broker, "b") == list(range(len(found)))
            assert least <= committed(broker) <= len(found) <= committed(broker) + 1
            broker.produce("a", [b"-1"])  # and it goes on
            assert numbers(broker, "a")[-1] == -1
        assert done("log", "verify", restored)["clean"] is True


@pytest.mark.promise("backups", "Backups and restores overwrite nothing unless `--replace` is given")
def test_several_directories_of_a_stopped_broker_and_what_is_not_overwritten(tmp_path: Path) -> None:
    live = [tmp_path / "one", tmp_path / "two"]
    settings = {**SETTINGS, "log.dirs": ",".join(map(str, live))}
    with PenstockBroker(settings) as broker:
        for topic in ("t", "u", "v"):
            broker.create_topic(topic, 2)
            broker.produce(topic, [{"value": topic, "partition": 1}])
        broker.stop()
        made = done("backup", "data", *live, tmp_path / "backup")
        assert (made["running"], made["partitions"], made["directories"]) == (False, 6, ["data-1", "data-2"])
        assert made["node_id"] == "1"
    assert oct((tmp_path / "backup").stat().st_mode & 0o777) == oct(0o700)

    refused = run("backup", "data", *live, tmp_path / "backup")
    assert refused.exit_code == 1 and "is not empty" in refused.output
    refused = run("backup", "data", live[0], live[0] / "backup")
    assert refused.exit_code == 1 and "outside of it" in refused.output
    refused = run("backup", "data", tmp_path, tmp_path.parent / "elsewhere")
    assert refused.exit_code == 1 and "is not a broker's data directory" in refused.output
    refused = run("restore", "data", tmp_path / "backup", *live)
    assert refused.exit_code == 1 and "use --replace" in refused.output
    refused = run("restore", "data", tmp_path / "backup", tmp_path / "three")
    assert refused.exit_code == 1 and "has 2 data directories" in refused.output
    with PenstockBroker(settings) as broker:
        broker.create_topic("later")
        refused = run("restore", "data", tmp_path / "backup", *live, "--replace")
        assert refused.exit_code == 1 and "is in use by another broker" in refused.output
        broker.stop()
        done("restore", "data", tmp_path / "backup", *live, "--replace")
        broker.start()
        assert [broker.consume(topic)[0].value for topic in ("t", "u", "v")] == [b"t", b"u", b"v"]
        metadata = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE)
        assert "later" not in metadata.topics
    for directory in live:
        assert not (directory / "penstock-backup.json").exists()


def test_a_backup_that_is_not_complete_or_newer_is_refused_with_the_reason(tmp_path: Path) -> None:
    with PenstockBroker(SETTINGS, data_dir=tmp_path / "live") as broker:
        broker.create_topic("t")
        done("backup", "data", tmp_path / "live", tmp_path / "backup")
    manifest = tmp_path / "backup" / "penstock-backup.json"
    values = json.loads(manifest.read_text())
    for change, reason in (
        ({"version": 2}, "knows versions up to 1"),
        ({"format": "something else"}, "is not of the format"),
    ):
        manifest.write_text(json.dumps({**values, **change}))
        refused = run("restore", "data", tmp_path / "backup", tmp_path / "restored")
        assert refused.exit_code == 1 and reason in refused.output
    manifest.unlink()
    refused = run("restore", "data", tmp_path / "backup", tmp_path / "restored")
    assert refused.exit_code == 1 and "is not a complete backup" in refused.output
    assert not (tmp_path / "restored").exists()


@pytest.mark.promise(
    "backups",
    "A backup that is killed does not stop the broker, and leaves no files that prevent it from starting",
)
def test_a_backup_that_is_killed_while_the_broker_is_stopped_does_not_leave_it_so(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from penstock.backup.paused import paused\n"
        "from penstock.backup.staging import Staging\n"
        "Staging(sys.argv[2]).sync()\n"
        "with paused(int(sys.argv[1])):\n"
        "    print('paused', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with PenstockBroker(SETTINGS, event_loop="uvloop", data_dir=tmp_path / "live") as broker:
        broker.create_topic("t")
        assert holder_of(os.path.join(broker.data_dir, ".lock")) == broker.pid
        backup = subprocess.Popen(
            [sys.executable, "-c", program, str(broker.pid), broker.data_dir],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert backup.stdout is not None and backup.stdin is not None
        assert backup.stdout.readline() == b"paused\n"
        assert Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        backup.send_signal(signal.SIGKILL)
        backup.communicate()
        broker.produce("t", [b"x"])
        broker.restart()
        assert [record.value for record in broker.consume("t")] == [b"x"]
        done("backup", "data", broker.data_dir, tmp_path / "backup")
        assert not os.path.exists(os.path.join(broker.data_dir, ".penstock-backup"))


@pytest.mark.promise(
    "backups",
    "`penstock backup metadata` saves topics, settings, ACLs, users and quotas; `penstock restore metadata` "
    "writes them to an empty store",
)
def test_the_metadata_of_a_single_broker_comes_back_without_its_records(tmp_path: Path) -> None:
    file = tmp_path / "metadata.json"
    with PenstockBroker(SETTINGS, data_dir=tmp_path / "live") as broker:
        broker.create_topic("t", 3, {"retention.ms": "1234"})
        address = ("-b", broker.bootstrap)
        assert run("users", "add", "alice", "--password-file", _secret(tmp_path), *address).exit_code == 0
        assert run("quotas", "set", "--user", "alice", "producer_byte_rate=1000", *address).exit_code == 0
        where = ("--set", f"log.dirs={tmp_path / 'live'}")
        saved = done("backup", "metadata", file, *where)
        assert (saved["topics"], saved["partitions"], saved["users"], saved["quotas"]) == (1, 3, 1, 1)
        assert oct(file.stat().st_mode & 0o777) == oct(0o600)
        assert run("backup", "metadata", file, *where).exit_code == 1  # it exists
        # The broker was not disturbed: it is still registered.
        broker.produce("t", [b"x"])
        refused = run("restore", "metadata", file, *where, "--replace")
        assert refused.exit_code == 1 and "is in use" in refused.output
    restored = ("--set", f"log.dirs={tmp_path / 'restored'}")
    done("restore", "metadata", file, *restored)
    refused = run("restore", "metadata", file, *restored)
    assert refused.exit_code == 1 and "use --replace" in refused.output
    done("restore", "metadata", file, *restored, "--replace")
    with PenstockBroker(SETTINGS, data_dir=tmp_path / "restored") as broker:
        address = ("-b", broker.bootstrap)
        assert broker.consume("t") == []
        assert "1234" in run("configs", "describe", "topic", "t", *address).stdout
        assert "alice" in run("users", "list", *address).stdout
        assert "producer_byte_rate" in run("quotas", "list", *address).stdout
        broker.produce("t", [{"value": b"y", "partition": 2}])


def _secret(directory: Path) -> Path:
    file = directory / "alice.password"
    file.write_text("wonderland\n")
    return file
