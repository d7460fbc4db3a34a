"""Many transactions of Apache Kafka's own producer, on three brokers and on one (most of that in long runs).

Java's producer does transactions of version 2 and pipelines: no other client sends the next transaction so
soon after the last. After each run, what a reader of committed records sees is what was committed, and in the
logs of every broker each transaction has one marker, and each marker one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tools.conftest import KafkaTools
from tests.tools.transaction_load import Outcome, Place, load, place

_THREE = pytest.param(3, id="three brokers")
on_three_and_in_long_runs_on_one = pytest.mark.parametrize(
    "brokers", [pytest.param(1, id="one broker", marks=pytest.mark.long), _THREE], indirect=True
)
on_one_and_on_three = pytest.mark.parametrize(
    "brokers", [pytest.param(1, id="one broker"), _THREE], indirect=True
)


@pytest.fixture(scope="module")
def brokers(
    kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Place]:
    """After `kafka_tools`: without Maven nothing is started."""
    with place(tmp_path_factory.mktemp("transactions"), request.param) as started:
        yield started


def run(tools: KafkaTools, brokers: Place, scenario: str, producers: int, transactions: int) -> Outcome:
    brokers.create_topic(scenario)
    outcome = load(
        tools.libraries, brokers.bootstrap, scenario, scenario, producers, transactions, run=scenario
    )
    assert not outcome.problems(), outcome.log[-4000:]
    for markers in brokers.logs(scenario):
        assert not markers.faults, markers.faults[:10]
        assert markers.transactions > 0
    return outcome


@pytest.mark.promise(
    "transactions",
    "A client's next transaction waits while the previous one is ending; it is never fenced or aborted "
    "because of that, even if the producer id changes",
)
@on_three_and_in_long_runs_on_one
def test_an_abort_right_after_a_commit_does_not_kill_the_producer(
    kafka_tools: KafkaTools, brokers: Place
) -> None:
    """Its EndTxn arrives while the markers of the commit are written: CONCURRENT_TRANSACTIONS, try again."""
    outcome = run(kafka_tools, brokers, "abort-after-commit", 2, 60)
    assert outcome.number("done") == 240


@pytest.mark.promise(
    "transactions",
    "Pipelined produce requests of a transaction are appended in the order of arrival, even if the first "
    "one waits for the coordinator; with version 2 the first sequence of an epoch is 0",
)
@on_three_and_in_long_runs_on_one
def test_the_first_batches_of_a_new_producer_keep_their_order(
    kafka_tools: KafkaTools, brokers: Place
) -> None:
    """One record, 1 ms, four records: the second batch is not appended before the first, which waits for its
    partition to be put into the transaction."""
    outcome = run(kafka_tools, brokers, "first-batches", 2, 30)
    assert outcome.number("done") == 60
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" not in outcome.warnings


@pytest.mark.promise(
    "transactions",
    "EndTxn and Produce wait in the broker for the markers of the previous transaction, at most for "
    "`add.partitions.to.txn.retry.backoff.max.ms`",
)
@on_three_and_in_long_runs_on_one
def test_the_broker_waits_for_the_markers_of_the_last_transaction(
    kafka_tools: KafkaTools, brokers: Place
) -> None:
    """Back to back, the first produce of a transaction meets the markers of the one before: the broker
    retries, so that the client hardly ever has to."""
    transactions = 200
    outcome = run(kafka_tools, brokers, "back-to-back", 1, transactions)
    assert outcome.number("done") == transactions
    assert outcome.warnings.get("CONCURRENT_TRANSACTIONS", 0) <= transactions * 0.1, outcome.warnings


@pytest.mark.promise(
    "transactions",
    "A commit that arrives before the transaction's first batch (Java's client does that) gets a "
    "retriable error, once",
)
@on_one_and_on_three
def test_a_commit_that_overtakes_its_batch_in_the_client_does_not_end_the_producer(
    kafka_tools: KafkaTools, brokers: Place
) -> None:
    """Kafka 4.1's producer now and then sends EndTxn before the only batch of the transaction, and dies of
    INVALID_TXN_STATE; here the first such EndTxn is answered CONCURRENT_TRANSACTIONS, and the batch comes
    before the second."""
    outcome = run(kafka_tools, brokers, "early-end", 4, 40)
    assert outcome.number("done") == 160
