"""A transactional producer and a read_committed reader made of single requests, in exact versions."""

from __future__ import annotations

import time

from penstock.testing import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch, iter_records, read_header
from penstock.wire.codec import Message

TRANSACTION = 1  # a key type of FindCoordinator


def find_coordinator(wire: WireClient, key: str, kind: int = TRANSACTION) -> None:
    """Makes the internal topic, as every client does first."""
    assert wire.request(ApiKey.FIND_COORDINATOR, 3, Message(key=key, key_type=kind)).error_code == 0


class WireProducer:
    """`version` 2 does what KIP-890 asks of clients; 0 what they did before."""

    def __init__(self, wire: WireClient, transactional_id: str, version: int = 0) -> None:
        self.wire = wire
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}
        find_coordinator(wire, transactional_id)

    def init(self, timeout_ms: int = 60_000, producer: tuple[int, int] = (-1, -1), version: int = 5) -> int:
        """The error code."""
        answer = self.wire.request(
            ApiKey.INIT_PRODUCER_ID,
            version,
            Message(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=producer[0],
                producer_epoch=producer[1],
            ),
        )
        if answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return int(answer.error_code)

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[int]:
        answer = self.wire.request(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            Message(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[Message(name=topic, partitions=list(partitions))],
            ),
        )
        [found] = answer.results_by_topic_v3_and_below
        return [one.partition_error_code for one in found.results_by_partition]

    def verify(self, topic: str, *partitions: int) -> list[int]:
        answer = self.wire.request(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            5,
            Message(
                transactions=[
                    Message(
                        transactional_id=self.transactional_id,
                        producer_id=self.producer_id,
                        producer_epoch=self.epoch,
                        verify_only=True,
                        topics=[Message(name=topic, partitions=list(partitions))],
                    )
                ]
            ),
        )
        [found] = answer.results_by_transaction[0].topic_results
        return [one.partition_error_code for one in found.results_by_partition]

    def produce(self, topic: str, value: bytes, partition: int = 0, version: int | None = None) -> int:
        sequence = self.sequences.get((topic, partition), 0)
        batch = build_batch(
            [Record(0, time.time_ns() // 1_000_000, None, value)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        if version is None:
            version = 12 if self.version == 2 else 10
        request = Message(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[Message(name=topic, partition_data=[Message(index=partition, records=batch)])],
        )
        answer = self.wire.request(ApiKey.PRODUCE, version, request)
        code = int(answer.responses[0].partition_responses[0].error_code)
        if code == 0:
            self.sequences[topic, partition] = sequence + 1
        return code

    def add_offsets(self, group: str, version: int = 4) -> int:
        answer = self.wire.request(
            ApiKey.ADD_OFFSETS_TO_TXN,
            version,
            Message(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            ),
        )
        return int(answer.error_code)

    def commit_offset(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        version: int | None = None,
        member: str = "",
        generation: int = -1,
    ) -> int:
        if version is None:
            version = 5 if self.version == 2 else 3
        partition = Message(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        answer = self.wire.request(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            Message(
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                generation_id=generation,
                member_id=member,
                group_instance_id=None,
                topics=[Message(name=topic, partitions=[partition])],
            ),
        )
        return int(answer.topics[0].partitions[0].error_code)

    def end(self, commit: bool, version: int | None = None) -> int:
        if version is None:
            version = 5 if self.version == 2 else 3
        answer = self.wire.request(
            ApiKey.END_TXN,
            version,
            Message(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
        )
        if answer.error_code == 0 and version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return int(answer.error_code)


def fetch_partition(
    wire: WireClient, topic: str, isolation_level: int, partition: int = 0, offset: int = 0
) -> Message:
    asked = Message(
        partition=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    request = Message(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        session_id=0,
        session_epoch=-1,
        topics=[Message(topic=topic, partitions=[asked])],
        forgotten_topics_data=[],
        rack_id="",
    )
    answer = wire.request(ApiKey.FETCH, 12, request)
    found: Message = answer.responses[0].partitions[0]
    return found


def committed(wire: WireClient, topic: str, partition: int = 0) -> list[bytes | None]:
    """The values that a reader with read_committed hands to its application."""
    skipping: set[int] = set()
    values: list[bytes | None] = []
    offset = 0
    while True:
        found = fetch_partition(wire, topic, 1, partition, offset)
        aborted = [(one.first_offset, one.producer_id) for one in found.aborted_transactions or []]
        data, position = found.records or b"", 0
        if not data:
            return values
        while position < len(data):
            header = read_header(data, position)
            skipping |= {producer for first, producer in aborted if first == header.base_offset}
            if header.is_control:
                skipping.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in skipping:
                values += [record.value for record in iter_records(data, position)]
            position += header.size
            offset = header.last_offset + 1


def described(wire: WireClient, transactional_id: str) -> Message:
    answer = wire.request(ApiKey.DESCRIBE_TRANSACTIONS, 0, Message(transactional_ids=[transactional_id]))
    found: Message = answer.transaction_states[0]
    return found


def committed_offset(wire: WireClient, group: str, topic: str, *, stable: bool = False) -> tuple[int, int]:
    """(offset, error code) of partition 0."""
    asked = Message(
        group_id=group,
        member_id=None,
        member_epoch=-1,
        topics=[Message(name=topic, partition_indexes=[0])],
    )
    answer = wire.request(ApiKey.OFFSET_FETCH, 8, Message(groups=[asked], require_stable=stable))
    found = answer.groups[0].topics[0].partitions[0]
    return found.committed_offset, found.error_code
