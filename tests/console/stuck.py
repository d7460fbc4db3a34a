"""Transactions that only a broken client leaves behind."""

from __future__ import annotations

import time

from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message

# The broker would not take such a batch.
UNVERIFIED = {"transaction.partition.verification.enable": "false"}


def leave_hanging(broker: PenstockBroker, topic: str, producer_id: int) -> None:
    """Opens a transaction in partition 0 that no coordinator knows. The broker runs with UNVERIFIED."""
    batch = build_batch(
        [Record(0, int(time.time() * 1000), None, b"stuck")],
        producer_id=producer_id,
        producer_epoch=3,
        base_sequence=0,
        transactional=True,
    )
    data = [Message(name=topic, partition_data=[Message(index=0, records=batch)])]
    request = Message(transactional_id=f"{topic}-lost", acks=-1, timeout_ms=5000, topic_data=data)
    with WireClient(broker.port) as wire:
        answer = wire.request(ApiKey.PRODUCE, 9, request)
    assert answer.responses[0].partition_responses[0].error_code == 0
