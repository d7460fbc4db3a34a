"""The coordinator of the transactional ids of one partition of `__transaction_state` (KIP-98, 360, 588, 890).

Promises: an epoch never decreases, and of two producers with the same id only the newer one can commit; once
a commit or abort is decided, it is applied to every partition, however often the coordinator crashes; a
transaction that is not ended is aborted after its timeout. The host writes the markers: `WriteMarkers`
requests them, `markers_written` reports them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from penstock.coordinator import Outcome, Producer, Reply, StateRecord
from penstock.errors import (
    ApiError,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    TransactionAbortable,
)
from penstock.transactions.deadlines import Deadlines
from penstock.transactions.ending import check_not_ending, end_v0, end_v2, fenced
from penstock.transactions.records import decode_key, decode_value, encode_key, encode_value
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.state import (
    AT_REST,
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    TV_0,
    TV_2,
    State,
    TopicPartition,
    Transaction,
    completed,
    initialized,
    prepared,
    rotated,
    with_partitions,
)
from penstock.wire.message import Message

log = logging.getLogger(__name__)

END_TXN_V2 = 5
"""From this version of EndTxn on, the client uses transaction version 2."""
_RECORDS_AT_A_TIME = 500
_LONGEST_ID = 32767  # in bytes: the key of a record cannot hold a longer one


class WriteMarkers(NamedTuple):
    """Write a marker to each of these partitions, then call `markers_written`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int = TV_0


class _LastEpoch(NamedTuple):
    """The epoch before (`last`) of a producer that got its current one with a request that named it."""

    producer_id: int
    producer_epoch: int
    last: int


class Verified(Message):
    """The response of `verify_partitions`, for this broker only; it is never encoded. `refused` has the
    rejected partitions with their errors."""


class TransactionShard:
    def __init__(
        self,
        settings: TransactionSettings,
        coordinator_epoch: int,
        take_producer_id: Callable[[], int | None],
    ) -> None:
        """`take_producer_id` returns an unused producer id, or None while none is available."""
        self._settings = settings
        self._coordinator_epoch = coordinator_epoch
        self._take_producer_id = take_producer_id
        self.transactions: dict[str, Transaction] = {}
        self._deadlines = Deadlines()
        # Not stored, as in Kafka: a new coordinator sends all markers again, and fences a producer that
        # retries a change of its epoch.
        self._resend_at: dict[str, int] = {}
        self._unwritten: dict[str, set[TopicPartition]] = {}
        self._last_epochs: dict[str, _LastEpoch] = {}
        self._early_commits: dict[str, Producer] = {}

    # -- replay

    def replay(self, record: StateRecord, *, timestamp: int, producer: Producer | None) -> None:
        transactional_id = decode_key(record.key)
        if transactional_id is None:
            return
        if record.value is None:
            self.transactions.pop(transactional_id, None)
            self._forget(transactional_id)
            return
        transaction = self.transactions[transactional_id] = decode_value(record.value)
        if transaction.state in PREPARED:
            self._resend_at.setdefault(transactional_id, 0)
        else:
            self._resend_at.pop(transactional_id, None)
            self._unwritten.pop(transactional_id, None)
        self._deadlines.set(transactional_id, self._deadline(transactional_id, transaction))

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """There are no transactional writes to `__transaction_state`."""

    def _forget(self, transactional_id: str) -> None:
        self._resend_at.pop(transactional_id, None)
        self._unwritten.pop(transactional_id, None)
        self._last_epochs.pop(transactional_id, None)
        self._early_commits.pop(transactional_id, None)

    def resign(self, error: ApiError) -> list[Reply]:
        return []  # no request waits in this shard

    # -- InitProducerId

    def init_producer_id(self, request: Message, token: Any, now_ms: int) -> Outcome:
        transactional_id: str = request.transactional_id
        if not transactional_id:
            return _refused(token, InvalidRequest("an empty transactional id"))
        if len(transactional_id.encode()) > _LONGEST_ID:
            return _refused(token, InvalidRequest(f"a transactional id of more than {_LONGEST_ID} bytes"))
        timeout_ms = request.transaction_timeout_ms
        if not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            return _refused(
                token,
                InvalidTransactionTimeout(
                    f"a timeout of {timeout_ms} ms is not within 1.."
                    f"{self._settings.transaction_max_timeout_ms} (transaction.max.timeout.ms)"
                ),
            )
        expected = None
        if request.producer_id != -1 or request.producer_epoch != -1:
            if request.producer_id == -1 or request.producer_epoch == -1:
                return _refused(token, InvalidRequest("producer id and epoch must be set together"))
            expected = Producer(request.producer_id, request.producer_epoch)
        try:
            return self._init(transactional_id, timeout_ms, expected, token, now_ms)
        except ApiError as error:
            return _refused(token, error)

    def _init(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None, token: Any, now_ms: int
    ) -> Outcome:
        known = self.transactions.get(transactional_id)
        if known is None:
            new = Transaction(self._new_producer_id(), 0, timeout_ms, last_update_ms=now_ms)
            return self._initialized(transactional_id, new, None, token)
        if expected is not None and not _may_continue(known, expected):
            raise fenced(known, expected.epoch)
        if known.state in PREPARED:
            raise ConcurrentTransactions(f"{transactional_id} is ending its transaction")
        if known.state == State.ONGOING:
            if expected is not None and expected.epoch != known.producer_epoch:
                # Unlike Kafka, which lets an old producer abort the transaction of a newer one here.
                raise fenced(known, expected.epoch)
            # TV_0: the old producer must not take this abort for its own.
            outcome = self._abort(transactional_id, known, TV_0, NO_PRODUCER_ID, now_ms)
            outcome.replies.append(
                Reply(
                    token, ConcurrentTransactions(f"the transaction of {transactional_id} is being aborted")
                )
            )
            return outcome
        if expected is None or expected == (known.producer_id, known.producer_epoch):
            if known.exhausted:
                new = rotated(known, self._new_producer_id(), timeout_ms, now_ms)
            else:
                new = initialized(known, known.producer_epoch + 1, timeout_ms, now_ms)
            last = None if expected is None else expected.epoch
            return self._initialized(transactional_id, new, last, token)
        if self._last_epoch(transactional_id, known) == expected.epoch:
            # A retry after a lost response.
            new = initialized(known, known.producer_epoch, timeout_ms, now_ms)
            return self._initialized(transactional_id, new, expected.epoch, token)
        raise fenced(known, expected.epoch)

    def _initialized(self, transactional_id: str, new: Transaction, last: int | None, token: Any) -> Outcome:
        self._remember_last_epoch(transactional_id, new, last)
        answer = Message(
            throttle_time_ms=0, error_code=0, producer_id=new.producer_id, producer_epoch=new.producer_epoch
        )
        return Outcome([_record(transactional_id, new)], [Reply(token, answer)])

    def _new_producer_id(self) -> int:
        producer_id = self._take_producer_id()
        if producer_id is None:
            raise CoordinatorLoadInProgress("no producer id is available")
        return producer_id

    def _remember_last_epoch(self, transactional_id: str, new: Transaction, last: int | None) -> None:
        if last is None:
            self._last_epochs.pop(transactional_id, None)
        else:
            self._last_epochs[transactional_id] = _LastEpoch(new.producer_id, new.producer_epoch, last)

    def _last_epoch(self, transactional_id: str, known: Transaction) -> int | None:
        remembered = self._last_epochs.get(transactional_id)
        if remembered is None or remembered[:2] != (known.producer_id, known.producer_epoch):
            return None
        return remembered.last

    # -- AddPartitionsToTxn, AddOffsetsToTxn, and the produce that adds its partitions

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        client_version: int,
        token: Any,
        now_ms: int,
    ) -> Outcome:
        """Replies with an empty message, or with an error that applies to all partitions."""
        try:
            known = self._checked(transactional_id, producer_id, producer_epoch)
        except ApiError as error:
            return _refused(token, error)
        outcome = Outcome(replies=[Reply(token, Message())])
        if known.state != State.ONGOING or not partitions <= known.partitions:
            new = with_partitions(known, partitions, client_version, now_ms)
            outcome.records.append(_record(transactional_id, new))
        return outcome

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        token: Any,
    ) -> Outcome:
        """Replies with `Verified`: the partitions that are not in the producer's transaction, with their
        errors."""
        try:
            known = self._checked(transactional_id, producer_id, producer_epoch)
        except ApiError as error:
            return _refused(token, error)
        reason = (
            f"the partition was not added to the transaction, which is in state {known.state.label}, of"
            f" producer {producer_id} epoch {producer_epoch}, transaction version {known.client_version}"
        )
        refused = {
            partition: TransactionAbortable(reason)
            for partition in partitions
            if partition not in known.partitions
        }
        if refused:  # logged here: another broker would get only the error code
            log.info("verification of %.300r in %s: %s", transactional_id, sorted(refused)[:3], reason)
        return Outcome(replies=[Reply(token, Verified(refused=refused))])

    def _checked(self, transactional_id: str, producer_id: int, producer_epoch: int) -> Transaction:
        if not transactional_id:
            raise InvalidRequest("an empty transactional id")
        known = self.transactions.get(transactional_id)
        if known is not None:
            check_not_ending(known, Producer(producer_id, producer_epoch))
        if known is None or known.producer_id != producer_id:
            raise InvalidProducerIdMapping(f"{transactional_id} is not of producer {producer_id}")
        if known.producer_epoch != producer_epoch:
            raise fenced(known, producer_epoch)
        if known.state in PREPARED:
            raise ConcurrentTransactions(f"{transactional_id} is ending its transaction")
        return known

    # -- EndTxn

    def end_txn(self, request: Message, version: int, token: Any, now_ms: int) -> Outcome:
        transactional_id: str = request.transactional_id
        if not transactional_id:
            return _refused(token, InvalidRequest("an empty transactional id"))
        known = self.transactions.get(transactional_id)
        if known is None:
            return _refused(token, InvalidProducerIdMapping(f"{transactional_id} is not known"))
        client = Producer(request.producer_id, request.producer_epoch)
        last = client.epoch if version >= END_TXN_V2 else None
        try:
            if last is None:
                new = end_v0(known, client, request.committed, now_ms)
            else:
                new = end_v2(known, client, request.committed, self._new_producer_id, now_ms)
        except ApiError as error:
            if isinstance(error, InvalidTxnState):
                log.warning("EndTxn version %d of %.300r: %s", version, transactional_id, error)
                if last is not None and self._is_early(transactional_id, known, client, request.committed):
                    error = ConcurrentTransactions("no partition of the transaction has been added yet")
            return _refused(token, error)
        outcome = Outcome(replies=[Reply(token, _ended(new))])
        if new is not known:
            self._remember_last_epoch(transactional_id, new, last)
            outcome.records.append(_record(transactional_id, new))
            if new.state in PREPARED:
                self._unwritten.pop(transactional_id, None)
                self._send(transactional_id, new, outcome, now_ms)
        return outcome

    def _is_early(self, transactional_id: str, known: Transaction, client: Producer, commit: bool) -> bool:
        """Whether this may be the commit of a transaction whose first batch has not arrived yet.

        The Java client (4.1) checks for unsent batches before it takes the lock under which it chooses its
        next request: EndTxn can overtake a batch that is added in between. INVALID_TXN_STATE would be fatal
        for it. With a retriable error it sends the batch first. That is allowed once for each transaction.
        """
        if not commit or known.state not in AT_REST or client != known.successor:
            return False
        if self._early_commits.get(transactional_id) == client:
            return False
        self._early_commits[transactional_id] = client
        return True

    def _abort(
        self, transactional_id: str, known: Transaction, client_version: int, following: int, now_ms: int
    ) -> Outcome:
        """Abort an ongoing transaction and fence its producer."""
        new = prepared(
            known,
            False,
            bump=True,
            client_version=client_version,
            now_ms=now_ms,
            next_producer_id=following,
        )
        self._remember_last_epoch(transactional_id, new, None)
        self._unwritten.pop(transactional_id, None)
        outcome = Outcome([_record(transactional_id, new)])
        self._send(transactional_id, new, outcome, now_ms)
        return outcome

    # -- markers

    def _send(self, transactional_id: str, new: Transaction, outcome: Outcome, now_ms: int) -> None:
        self._resend_at[transactional_id] = now_ms + self._settings.markers_retry_ms
        self._deadlines.set(transactional_id, now_ms + self._settings.markers_retry_ms)
        remaining = self._unwritten.setdefault(transactional_id, set(new.partitions))
        outcome.actions.append(
            WriteMarkers(
                transactional_id,
                new.producer_id,
                new.producer_epoch,
                self._coordinator_epoch,
                new.committing,
                frozenset(remaining),
                new.client_version,
            )
        )

    def wants(self, markers: WriteMarkers) -> bool:
        """Whether these markers must still be written: the decision is in the log, and not complete."""
        known = self.transactions.get(markers.transactional_id)
        return (
            known is not None
            and markers.coordinator_epoch == self._coordinator_epoch  # not from before a failover
            and known.state in PREPARED
            and known.producer_id == markers.producer_id
            and known.producer_epoch == markers.producer_epoch
            and known.committing == markers.commit
        )

    def markers_written(
        self, markers: WriteMarkers, written: Iterable[TopicPartition], now_ms: int
    ) -> Outcome:
        """These partitions have the marker, or were deleted. With the last one, the transaction is complete.

        Nothing waits for the replication of that record: a new coordinator without it sends the markers
        again, and the next action of the producer depends on it and is replicated with it.
        """
        outcome = Outcome(is_urgent=False)
        if not self.wants(markers):
            return outcome
        transactional_id = markers.transactional_id
        known = self.transactions[transactional_id]
        remaining = self._unwritten.setdefault(transactional_id, set(known.partitions))
        remaining.difference_update(written)
        if not remaining:
            outcome.records.append(_record(transactional_id, completed(known, now_ms)))
        return outcome

    # -- time

    def _deadline(self, transactional_id: str, transaction: Transaction) -> int:
        if transaction.state == State.ONGOING:
            return transaction.start_ms + transaction.timeout_ms + 1
        if transaction.state in PREPARED:
            return self._resend_at.get(transactional_id, 0)
        return transaction.last_update_ms + self._settings.transactional_id_expiration_ms

    def next_deadline(self) -> int | None:
        return self._deadlines.next()

    def on_time(self, now_ms: int) -> Outcome:
        outcome = Outcome()
        for transactional_id in self._deadlines.due(now_ms):
            known = self.transactions.get(transactional_id)
            if known is None:
                continue
            deadline = self._deadline(transactional_id, known)
            if deadline > now_ms:
                self._deadlines.set(transactional_id, deadline)
                continue
            # The records of this decision may fail to be written: then it is retried.
            self._deadlines.set(transactional_id, now_ms + self._settings.retry_ms)
            try:
                self._act(transactional_id, known, outcome, now_ms)
            except Exception:  # the border: the other ids of the shard must not be affected
                log.exception("a timer of transactional id %.300r failed", transactional_id)
            if len(outcome.records) >= _RECORDS_AT_A_TIME:
                break
        outcome.divide()
        return outcome

    def _act(self, transactional_id: str, known: Transaction, outcome: Outcome, now_ms: int) -> None:
        if known.state == State.ONGOING:
            aborting = self._time_out(transactional_id, known, now_ms)
            outcome.records += aborting.records
            outcome.actions += aborting.actions
        elif known.state in PREPARED:
            self._send(transactional_id, known, outcome, now_ms)
        else:
            outcome.records.append(StateRecord(encode_key(transactional_id), None))

    def _time_out(self, transactional_id: str, known: Transaction, now_ms: int) -> Outcome:
        """Aborts a transaction after its timeout. A client of version 2 that then aborts it takes this for
        its own abort, and continues."""
        version, following = known.client_version, NO_PRODUCER_ID
        if version >= TV_2 and known.exhausted:
            taken = self._take_producer_id()
            version, following = (TV_0, NO_PRODUCER_ID) if taken is None else (version, taken)
        return self._abort(transactional_id, known, version, following, now_ms)


def _record(transactional_id: str, transaction: Transaction) -> StateRecord:
    return StateRecord(encode_key(transactional_id), encode_value(transaction))


def _refused(token: Any, error: ApiError) -> Outcome:
    return Outcome(replies=[Reply(token, error)])


def _may_continue(known: Transaction, expected: Producer) -> bool:
    """Whether a producer that names its id and epoch is the current one, or was before its epochs were
    exhausted."""
    return expected.producer_id == known.producer_id or (
        expected.producer_id == known.previous_producer_id and expected.epoch >= LAST_CLIENT_EPOCH
    )


def _ended(transaction: Transaction) -> Message:
    """The response to EndTxn, with the producer id and epoch to continue with."""
    producer_id, producer_epoch = transaction.successor
    return Message(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=producer_epoch)
