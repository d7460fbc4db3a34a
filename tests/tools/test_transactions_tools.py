"""Apache Kafka's own producer, consumer and tools with our transactions, and its reader on our state."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from penstock.testing import PenstockBroker, WireClient
from tests.clients.txn_wire import WireProducer, described, fetch_partition
from tests.tools.conftest import KafkaTools

PROGRAM = Path(__file__).with_name("KafkaTransactions.java")

pytestmark = pytest.mark.penstock(
    settings={"group.initial.rebalance.delay.ms": 0, "transaction.state.log.num.partitions": 1}
)


@pytest.mark.promise(
    "transactions", "Kafka's own producer runs version 2 transactions, and `kafka-transactions` works"
)
def test_kafkas_own_producer_does_transactions_of_version_2(
    kafka_tools: KafkaTools, penstock: PenstockBroker
) -> None:
    penstock.create_topic("source")
    penstock.create_topic("target")
    told = kafka_tools.run_source(PROGRAM, penstock.bootstrap, "source", "target", timeout=120)
    kept = [number for number in range(20) if number % 3 != 2]
    assert told["committed"] == ",".join(f"v{number}" for number in kept)
    assert told["uncommitted"] == "20"
    assert told["transformed"] == ",".join(f"V{number}" for number in kept)
    assert told["fenced"] in ("ProducerFencedException", "InvalidProducerEpochException")
    assert told["last"] == "newer"
    # Version 2: no partitions were added by request, and each end had an epoch of its own.
    assert "AddPartitionsToTxn" not in penstock.requests
    assert "AddOffsetsToTxn" not in penstock.requests
    with WireClient(penstock.port) as wire:
        assert described(wire, "java").producer_epoch == 20


@pytest.mark.promise(
    "transactions", "Kafka's own producer runs version 2 transactions, and `kafka-transactions` works"
)
def test_kafka_transactions_lists_describes_finds_and_aborts(
    kafka_tools: KafkaTools, penstock: PenstockBroker
) -> None:
    penstock.create_topic("t")
    with WireClient(penstock.port) as wire:
        one = WireProducer(wire, "open-one")
        assert one.init() == 0
        assert one.add("t", 0) == [0]
        assert one.produce("t", b"x") == 0
    at = ("--bootstrap-server", penstock.bootstrap)
    listed = kafka_tools.run("kafka-transactions", *at, "list")
    assert "open-one" in listed
    assert "Ongoing" in listed
    shown = kafka_tools.run("kafka-transactions", *at, "describe", "--transactional-id", "open-one")
    assert "t-0" in shown
    producers = kafka_tools.run(
        "kafka-transactions", *at, "describe-producers", "--topic", "t", "--partition", "0"
    )
    assert str(one.producer_id) in producers
    kafka_tools.run(
        "kafka-transactions", *at, "abort", "--topic", "t", "--partition", "0", "--start-offset", "0"
    )
    assert [record.value for record in penstock.consume("t")] == [b"x"]
    with WireClient(penstock.port) as wire:
        found = fetch_partition(wire, "t", 1)
        assert found.last_stable_offset == found.high_watermark == 2


@pytest.mark.promise(
    "transactions", "The records of `__transaction_state` are byte for byte Kafka's, and Kafka reads them"
)
def test_kafka_reads_our_transaction_state(kafka_tools: KafkaTools, penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    with WireClient(penstock.port) as wire:
        for name, version in (("one", 0), ("two", 2)):
            producer = WireProducer(wire, name, version)
            producer.init()
            if version == 0:
                producer.add("t", 0)
            producer.produce("t", b"x")
            producer.end(True)
    penstock.stop()
    segment = Path(penstock.data_dir) / "__transaction_state-0" / "00000000000000000000.log"
    shown = kafka_tools.run("kafka-dump-log", "--transaction-log-decoder", "--files", str(segment))
    decoded = [json.loads(payload) for payload in re.findall(r"payload: (.*)", shown)]
    assert [one["version"] for one in decoded] == ["1"] * 8
    found = [(one["data"]["transactionStatus"], one["data"]["producerEpoch"]) for one in decoded]
    # Empty, Ongoing, PrepareCommit, CompleteCommit
    assert found == [(0, 0), (1, 0), (2, 0), (4, 0), (0, 0), (1, 0), (2, 1), (4, 1)]
    assert decoded[1]["data"]["transactionPartitions"] == [{"topic": "t", "partitionIds": [0]}]
    assert decoded[7]["data"]["clientTransactionVersion"] == 2
