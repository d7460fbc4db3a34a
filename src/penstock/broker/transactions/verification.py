"""Verifies that a produce or an offset commit belongs to its transaction, before anything is written
(KIP-890).

The coordinator may be on another broker, and the transaction may end between its response and the append. A
verification guard detects that: the marker revokes the guard, and the append is rejected. Otherwise a late
batch would open a transaction that is never ended.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Container, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.broker.transactions.peer_batches import PeerBatches
from penstock.coordinator import Producer
from penstock.errors import (
    ApiError,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    NotCoordinator,
    NotEnoughReplicas,
    OperationNotAttempted,
    PeerUnavailable,
    ProducerFenced,
    TransactionAbortable,
    error_for_code,
)
from penstock.log.producer_state import ProducerEntry, VerificationGuard
from penstock.replication.delayed import Key
from penstock.replication.partition import Partition
from penstock.transactions.state import TV_0, TV_2
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import HEADER_SIZE
from penstock.wire.codec import Message
from penstock.wire.produce import ProduceRequest

if TYPE_CHECKING:
    from penstock.broker.parts import (
        HasClock,
        HasConfig,
        HasId,
        HasImage,
        HasLoop,
        HasPartitions,
        HasPeers,
        HasTransactions,
    )

    class VerificationParts(
        HasClock, HasConfig, HasId, HasImage, HasLoop, HasPartitions, HasPeers, HasTransactions, Protocol
    ): ...


log = logging.getLogger(__name__)

_PRODUCE_KNOWS_ABORTABLE, _PRODUCE_ADDS = 11, 12
_ADD_PARTITIONS_VERSION = 5
_PURPOSE = "transactions"
_PRODUCER = struct.Struct(">qhi")  # and the first sequence
_PRODUCER_AT = 43  # in the header of a batch
_NONE_REFUSED: Mapping[Key, ApiError] = {}

Refused = Mapping[Key, ApiError]
"""The partitions that may not be written to, with the error of each."""
Guards = Mapping[Key, tuple[Partition, VerificationGuard]]


class Verification(NamedTuple):
    """The verification that a produce or a commit in a transaction needs.

    With `add` (transaction version 2) the coordinator adds the partitions to the transaction; otherwise they
    must already be part of it. If they are not, a client that knows TRANSACTION_ABORTABLE (`abortable`) gets
    that error. `sequences` has the first sequence of each partition's batch, `request` is the name of the
    request.
    """

    transactional_id: str
    producer: Producer
    partitions: list[Key]
    add: bool
    abortable: bool
    sequences: Mapping[Key, int] = {}
    request: str = "Produce"

    def limited_to(self, keys: Container[Key]) -> Verification:
        """The same verification, only with these partitions."""
        sequences = {key: sequence for key, sequence in self.sequences.items() if key in keys}
        return self._replace(partitions=[key for key in self.partitions if key in keys], sequences=sequences)


def transaction_version(produce_version: int) -> int:
    """The transaction version of the sender of a produce request."""
    return TV_2 if produce_version >= _PRODUCE_ADDS else TV_0


def needed_verification(
    broker: VerificationParts, request: ProduceRequest, buf: bytearray, version: int
) -> Verification | Refused:
    """For a produce with a transactional id: the verification that it needs, or the partitions that are
    rejected at once."""
    producers: set[Producer] = set()
    sequences: dict[Key, int] = {}
    for name, topic_id, partitions in request.topics:
        if topic_id is not None:
            topic = broker.image.topics_by_id.get(topic_id)
            name = None if topic is None else topic.name
        for index, start, stop in partitions:
            if name is None or not is_transactional(buf, start, stop):
                continue
            partition = broker.partitions.get((name, index))
            if partition is not None and partition.is_leader:
                producer_id, epoch, sequence = _PRODUCER.unpack_from(buf, start + _PRODUCER_AT)
                sequences[partition.key] = sequence
                producers.add(Producer(producer_id, epoch))
    keys = list(sequences)
    if not keys:
        return _NONE_REFUSED
    if len(producers) > 1:
        return dict.fromkeys(keys, InvalidProducerIdMapping("one transaction, but more than one producer id"))
    add, abortable = version >= _PRODUCE_ADDS, version >= _PRODUCE_KNOWS_ABORTABLE
    return Verification(request.transactional_id or "", producers.pop(), keys, add, abortable, sequences)


def is_transactional(buf: bytearray, start: int, stop: int) -> bool:
    """Whether the bytes are a transactional batch of format 2."""
    return stop - start >= HEADER_SIZE and buf[start + 16] == 2 and buf[start + 22] & 0x10 != 0


def for_producers(error: ApiError, knows_concurrent: bool) -> ApiError:
    """Maps an error of the coordinator to the one that producers expect for a partition."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(error.message)
    if isinstance(error, ConcurrentTransactions) and knows_concurrent:
        return error
    # OPERATION_NOT_ATTEMPTED: the coordinator does not know another partition of the request yet, and added
    # none.
    if isinstance(
        error,
        ConcurrentTransactions
        | CoordinatorLoadInProgress
        | CoordinatorNotAvailable
        | NotCoordinator
        | OperationNotAttempted,
    ):
        # As in Kafka: old clients retry this error without a Metadata request.
        return NotEnoughReplicas(f"the transaction cannot be verified now: {error}")
    return error


class Verifier:
    """Sends verifications to transaction coordinators, on this broker or on others."""

    def __init__(self, broker: VerificationParts) -> None:
        self._broker = broker
        self._requests: PeerBatches[Verification, Refused] = PeerBatches(broker.loop, self._send)

    def verify(self, asked: Verification) -> Refused | Coroutine[Any, Any, Refused]:
        """Returns the partitions that may not be written to. Partitions that already have records of the
        transaction need no verification.

        If this returns a coroutine, the caller must await it directly and append without another await: with
        a separate task, the transaction could end between the result and the append.

        While the producer's last transaction is still ending, this waits for a short time before it fails
        with CONCURRENT_TRANSACTIONS, as Kafka does, because the client would wait longer before it retries.
        """
        unknown = [key for key in asked.partitions if not self._has_open(key, asked.producer)]
        config = self._broker.config
        if not unknown or not (asked.add or config.transaction_partition_verification_enable):
            return _NONE_REFUSED
        # Taken before the coordinator is asked, and also for partitions that need no verification, because
        # their transaction may end meanwhile.
        guards = self._guards(asked)
        self._note_sequences(asked)
        asked = asked._replace(partitions=unknown)
        found = self._ask(asked)
        if isinstance(found, Mapping) and not (asked.add and _is_ending(found)):
            return found
        return self._guarded(asked, guards, found)

    def _guards(self, asked: Verification) -> Guards:
        partitions = [self._broker.partitions[key] for key in asked.partitions]
        return {one.key: (one, one.log.verifying.start_verifying(*asked.producer)) for one in partitions}

    def _note_sequences(self, asked: Verification) -> None:
        now = self._broker.clock.now_ms()
        for key, sequence in asked.sequences.items():
            self._broker.partitions[key].log.verifying.note_sequence(*asked.producer, sequence, now)

    async def _guarded(
        self, asked: Verification, guards: Guards, found: Refused | asyncio.Future[Refused]
    ) -> Refused:
        broker = self._broker
        backoff_ms = broker.config.add_partitions_to_txn_retry_backoff_ms
        give_up = broker.loop.time() + broker.config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        while True:
            refused = found if isinstance(found, Mapping) else await found
            if not (asked.add and _is_ending(refused)) or broker.loop.time() >= give_up:
                break
            await broker.transactions.ended(asked.transactional_id, backoff_ms)
            found = self._ask(asked)
        ended = {
            key: _as_known(TransactionAbortable(self._what_ended(key, asked.producer)), asked, key)
            for key, (partition, guard) in guards.items()
            if not (broker.partitions.get(key) is partition and partition.log.verifying.is_verifying(guard))
            and not self._has_open(key, asked.producer)
        }
        return {**ended, **refused}

    def _ask(self, asked: Verification) -> Refused | asyncio.Future[Refused]:
        broker = self._broker
        host = broker.transactions
        transactional_id, producer = asked.transactional_id, asked.producer
        for key in asked.partitions:
            entry = self._entry(key, producer)
            if entry is not None and entry.txn_first_offset is not None and entry.epoch < producer.epoch:
                # The marker of the last transaction is not written here yet, so it is still ending. The
                # coordinator may learn that it is complete only after this request (KAFKA-18575).
                return _all_refused(asked, ConcurrentTransactions("the last transaction is still ending"))
        try:
            coordinator = host.leader_of(transactional_id)
            if coordinator != broker.id:
                return broker.loop.create_task(self._ask_elsewhere(coordinator, asked))
            answer = host.call(
                transactional_id,
                lambda shard, token, now: (
                    shard.add_partitions(
                        transactional_id, *producer, frozenset(asked.partitions), TV_2, token, now
                    )
                    if asked.add
                    else shard.verify_partitions(transactional_id, *producer, asked.partitions, token)
                ),
            )
        except ApiError as error:
            return _all_refused(asked, error)
        if isinstance(answer, asyncio.Future):
            return broker.loop.create_task(_answered(asked, answer))
        return _refused_here(asked, answer)

    async def _ask_elsewhere(self, coordinator: int, asked: Verification) -> Refused:
        try:
            return await self._requests.ask(coordinator, asked)
        except PeerUnavailable as error:
            return _all_refused(asked, CoordinatorNotAvailable(str(error)))

    async def _send(self, coordinator: int, asked: list[Verification]) -> list[Refused]:
        answer = await self._broker.peers.call(
            coordinator,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            _ADD_PARTITIONS_VERSION,
            Message(transactions=[_request(one) for one in asked]),
            purpose=_PURPOSE,
        )
        if answer.error_code:
            error = error_for_code(answer.error_code)()
            return [_all_refused(one, error) for one in asked]
        results = answer.results_by_transaction
        return [_refused(one, result) for one, result in zip(asked, results, strict=True)]

    def _entry(self, key: Key, producer: Producer) -> ProducerEntry | None:
        partition = self._broker.partitions.get(key)
        if partition is None or not partition.log.is_settled:
            return None
        return partition.log.producers.producers.get(producer.producer_id)

    def _what_ended(self, key: Key, producer: Producer) -> str:
        entry = self._entry(key, producer)
        has = "no record of it" if entry is None else f"epoch {entry.epoch}"
        return f"the transaction of epoch {producer.epoch} has ended meanwhile; the partition has {has}"

    def _has_open(self, key: Key, producer: Producer) -> bool:
        """Whether the partition already has records of the producer's transaction."""
        entry = self._entry(key, producer)
        return entry is not None and entry.txn_first_offset is not None and entry.epoch == producer.epoch

    def close(self) -> None:
        self._requests.close()


async def _answered(asked: Verification, answer: asyncio.Future[Message]) -> Refused:
    try:
        return _refused_here(asked, await answer)
    except ApiError as error:
        return _all_refused(asked, error)


def _refused_here(asked: Verification, answer: Message) -> Refused:
    if asked.add:
        return _NONE_REFUSED
    return {key: _as_known(error, asked, key) for key, error in answer.refused.items()}


def _request(asked: Verification) -> Message:
    topics: dict[str, list[int]] = {}
    for name, index in asked.partitions:
        topics.setdefault(name, []).append(index)
    return Message(
        transactional_id=asked.transactional_id,
        producer_id=asked.producer.producer_id,
        producer_epoch=asked.producer.epoch,
        verify_only=not asked.add,
        topics=[Message(name=name, partitions=indexes) for name, indexes in topics.items()],
    )


def _refused(asked: Verification, result: Message) -> Refused:
    refused: dict[Key, ApiError] = {}
    for topic in result.topic_results:
        for one in topic.results_by_partition:
            if one.partition_error_code:
                error = for_producers(error_for_code(one.partition_error_code)(), asked.add)
                key = (topic.name, one.partition_index)
                refused[key] = error if asked.add else _as_known(error, asked, key)
    return refused


def _as_known(error: ApiError, asked: Verification, key: Key) -> ApiError:
    if isinstance(error, TransactionAbortable) and not asked.abortable:
        log.warning(
            "%s of %.300r to %s-%d, producer %d epoch %d, is answered INVALID_TXN_STATE: %s",
            asked.request,
            asked.transactional_id,
            *key,
            *asked.producer,
            error.message or "the coordinator does not have the partition in its transaction, and logs why",
        )
        return InvalidTxnState(error.message)
    return error


def _all_refused(asked: Verification, error: ApiError) -> Refused:
    return dict.fromkeys(asked.partitions, for_producers(error, asked.add))


def _is_ending(refused: Refused) -> bool:
    return any(isinstance(error, ConcurrentTransactions) for error in refused.values())
