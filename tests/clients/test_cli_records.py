"""`penstock records` and `penstock consume --where` on a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from penstock.cli.main import cli
from penstock.testing import PenstockBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker() as broker:
        yield broker


def penstock(broker: PenstockBroker, *words: str, expect: int = 0) -> Result:
    result = CliRunner().invoke(cli, [*words, "--bootstrap", broker.bootstrap, "--timeout", "60"])
    assert result.exit_code == expect, (words, result.output, result.exception)
    return result


def read(broker: PenstockBroker, topic: str, *more: str) -> list[dict[str, object]]:
    lines = penstock(broker, "consume", topic, "--json", *more).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    return sorted(found, key=lambda each: (each["partition"], each["offset"]))


def bare(records: list[dict[str, object]]) -> list[dict[str, object]]:
    """Without where they are."""
    for each in records:
        del each["topic"], each["offset"]
    return records


@pytest.fixture(scope="module")
def orders(broker: PenstockBroker) -> str:
    broker.create_topic("orders", 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(60):
        value = json.dumps({"number": number, "city": "Bern" if number % 6 == 0 else "Rome"}).encode()
        producer.produce(
            "orders",
            value,
            f"k{number}".encode(),
            partition=number % 3,
            timestamp=1_700_000_000_000 + 1000 * number,
            headers=[("h", None if number == 5 else str(number).encode())],
        )
    producer.produce("orders", b"\xff\xfe", None, partition=0, timestamp=1_700_000_100_000)
    producer.produce("orders", None, b"gone", partition=1, timestamp=1_700_000_100_000)
    assert producer.flush(60) == 0
    return "orders"


@pytest.mark.promise("commands", "`penstock consume --where` prints the records that fit a SQL condition")
def test_records_are_consumed_by_a_condition(broker: PenstockBroker, orders: str) -> None:
    found = read(broker, orders, "--where", "json->>'city' = 'Bern' AND partition = 0 AND offset >= 4")
    assert [each["key"] for each in found] == ["k12", "k18", "k24", "k30", "k36", "k42", "k48", "k54"]
    found = read(broker, orders, "--where", "json->>'city' = 'Bern'", "--max", "3")
    assert len(found) == 3
    assert [each["key"] for each in read(broker, orders, "--where", "value IS NULL AND key = 'gone'")] == [
        "gone"
    ]
    wrong = penstock(broker, "consume", orders, "--where", "nope = 1", expect=2)
    assert "columns: partition, offset" in wrong.stderr
    both = penstock(broker, "consume", orders, "--where", "1=1", "--group", "g", expect=2)
    assert "--where and --group exclude each other" in both.stderr


@pytest.mark.promise(
    "commands", "`penstock records` exports records to a file and imports them unchanged, with a preview"
)
@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_a_topic_goes_to_a_file_and_back(
    broker: PenstockBroker, orders: str, tmp_path: Path, ending: str
) -> None:
    file, target = str(tmp_path / f"orders.{ending}"), f"back-{ending}"
    told = json.loads(penstock(broker, "records", "export", orders, file, "--json").stdout)
    assert told["records"] == 62
    missing = penstock(broker, "records", "import", target, file, expect=1)
    assert f"no topic '{target}'" in missing.stderr
    broker.create_topic(target, 3)
    preview = penstock(broker, "records", "import", target, file, "--preview")
    assert "62 records" in preview.stderr and "k" in preview.stdout
    assert read(broker, target) == []
    told = json.loads(
        penstock(broker, "records", "import", target, file, "--keep-partitions", "--json").stdout
    )
    assert told == {"topic": target, "records": 62}
    assert bare(read(broker, target)) == bare(read(broker, orders))
    broker.create_topic(f"few-{ending}", 1)
    few = penstock(broker, "records", "import", f"few-{ending}", file, "--keep-partitions", expect=1)
    assert "has no partition" in few.stderr and read(broker, f"few-{ending}") == []


def test_a_part_of_a_topic_is_exported(broker: PenstockBroker, orders: str, tmp_path: Path) -> None:
    file = tmp_path / "part.jsonl"
    where = "json->>'city' = 'Bern'"
    penstock(
        broker, "records", "export", orders, str(file), "--partition", "0", "--from", "3", "--where", where
    )
    keys = [json.loads(line)["key"] for line in file.read_text().splitlines()]
    assert keys == ["k12", "k18", "k24", "k30", "k36", "k42", "k48", "k54"]
    penstock(broker, "records", "export", orders, str(file), "--max", "4")
    assert len(file.read_text().splitlines()) == 4


def test_a_file_with_a_wrong_line_changes_nothing(broker: PenstockBroker, tmp_path: Path) -> None:
    broker.create_topic("clean", 1)
    file = tmp_path / "wrong.jsonl"
    file.write_text('{"value": "a"}\nnope\n')
    result = penstock(broker, "records", "import", "clean", str(file), expect=1)
    assert "line 2: not JSON" in result.stderr and "Nothing was written" in result.stderr
    assert read(broker, "clean") == []


@pytest.mark.promise(
    "commands",
    "`penstock records replay` writes a range of offsets or times into a topic, with a preview",
)
def test_a_range_is_replayed(broker: PenstockBroker, orders: str) -> None:
    broker.create_topic("again", 3)
    words = [
        "records",
        "replay",
        orders,
        "--to",
        "again",
        "--from",
        "@1700000030000",
        "--until",
        "@1700000040000",
    ]
    preview = json.loads(penstock(broker, *words, "--preview", "--json").stdout)
    assert preview["offsets"] == 10 and read(broker, "again") == []
    penstock(broker, *words, "--keep-partitions", "--where", "key <> 'k33'")
    found = read(broker, "again")
    assert sorted(str(each["key"]) for each in found) == [f"k{n}" for n in range(30, 40) if n != 33]
    original = {each["key"]: each for each in read(broker, orders)}
    for each in found:
        old = original[each["key"]]
        assert all(each[name] == old[name] for name in ("partition", "timestamp", "value", "headers"))
    penstock(broker, "records", "replay", "again", "--to", "again", "--new-times")
    assert len(read(broker, "again")) == 18
    unknown = penstock(broker, "records", "replay", orders, "--to", "nowhere", expect=1)
    assert "no topic 'nowhere'" in unknown.stderr


def test_records_of_aborted_transactions_are_not_replayed(broker: PenstockBroker) -> None:
    broker.create_topic("ledger", 1)
    broker.create_topic("ledger-again", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "booking"})
    producer.init_transactions()
    for commits in (True, False, True):
        producer.begin_transaction()
        producer.produce("ledger", str(commits).encode())
        producer.flush()
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    penstock(broker, "records", "replay", "ledger", "--to", "ledger-again")
    assert [each["value"] for each in read(broker, "ledger-again")] == ["True", "True"]
