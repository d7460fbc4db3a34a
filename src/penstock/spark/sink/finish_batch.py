"""Finishes a batch of which an earlier run has written a part: on the driver, all or nothing.

Tasks that the earlier run wrote have compared their rows with their marks ("confirmed"); the others have
written rows and marks and left their transactions open ("prepared"). When all tasks have succeeded, the
driver commits the prepared ones, provided that every mark of the earlier run was confirmed. Otherwise the
batch is divided into other tasks than before, and a part of their rows is already written.

An open mark has the producer's id and epoch, which is sufficient to end its transaction. It was sent after
all rows had been acknowledged. If the driver dies here, the next run finds the marks of more tasks, takes
over the transactions of the rest, and repeats this.

A transaction may time out before its batch ends (transaction.timeout.ms). The open ones are committed
nevertheless, and then the batch fails: the next run has less to write. Otherwise a batch that takes longer
than the timeout would never be written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql.datasource import WriterCommitMessage

from penstock.client import ClientError
from penstock.errors import (
    ApiError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
)
from penstock.spark.errors import BatchChanged, NotDelivered
from penstock.spark.sink.written_tasks import MarksReader, QueryMarks

_ENDED = (InvalidProducerEpoch, InvalidProducerIdMapping, InvalidTxnState, ProducerFenced)
"""How a coordinator answers who wants to end a transaction that has ended."""

State = Literal["empty", "confirmed", "committed", "prepared"]


@dataclass(frozen=True, slots=True)
class WhichBatch:
    """Identifies a write: the query, the batch, and the run of the query."""

    query: str
    batch: int
    run: str


@dataclass
class TaskDone(WriterCommitMessage):
    """What a task reports to the driver."""

    which: WhichBatch | None
    task: int
    state: State


def transactional_id(prefix: str, query: str, task: int) -> str:
    """The same for all attempts of a task, so that only the last one can commit."""
    return f"{prefix}-{query}-{task}"


def written_by_others(found: QueryMarks, which: WhichBatch) -> list[int]:
    """The tasks of this batch that an earlier run has written, or may have written."""
    everyone = [*found.settled.items(), *((task, pending.mark) for task, pending in found.open.items())]
    return sorted({task for task, mark in everyone if mark.batch == which.batch and mark.run != which.run})


def finish_batch(done: Sequence[TaskDone], prefix: str, reader: Callable[[], MarksReader]) -> None:
    """Commits the prepared transactions. Raises BatchChanged, and commits none, if a mark was not
    confirmed.
    """
    prepared = sorted(message.task for message in done if message.state == "prepared")
    which = next((message.which for message in done if message.which is not None), None)
    if not prepared or which is None:
        return
    marks = reader()
    try:
        found = marks.read(which.query)
        confirmed = {message.task for message in done if message.state == "confirmed"}
        missing = [task for task in written_by_others(found, which) if task not in confirmed]
        ended = [task for task in prepared if not _end(marks, prefix, which, task, found, commit=not missing)]
        if missing:
            tasks = ", ".join(map(str, missing))
            raise batch_changed(which, f"its task(s) {tasks} had rows that no such task has now")
        if ended:
            raise NotDelivered(
                f"the transactions of task(s) {', '.join(map(str, ended))} have ended before their batch: it"
                " took longer than kafka.transaction.timeout.ms, or other attempts have taken them over. The"
                " batch has to be run again; the other tasks are written"
            )
    except (ApiError, ClientError) as error:
        raise NotDelivered(
            f"batch {which.batch} of query {which.query} cannot be committed: {error}"
        ) from error
    finally:
        marks.close()


def _end(
    marks: MarksReader, prefix: str, which: WhichBatch, task: int, found: QueryMarks, *, commit: bool
) -> bool:
    """Commits the transaction of a prepared task. False if it was aborted before, with its rows."""
    mark = found.open.get(task)
    if mark is None or mark.mark.batch != which.batch or mark.mark.run != which.run:
        return task in found.settled and found.settled[task].batch == which.batch
    try:
        marks.cluster.end_transaction(
            transactional_id(prefix, which.query, task), mark.producer_id, mark.producer_epoch, commit=commit
        )
    except _ENDED:  # since the mark was read
        return False
    return True


def batch_changed(which: WhichBatch, how: str) -> BatchChanged:
    return BatchChanged(
        f"batch {which.batch} of query {which.query} was written in part before the query was restarted,"
        f" and is something else now: {how}. To continue without loss or duplicates, run it with what it had"
        " then (the same code, and source options such as minPartitions), and change that after this batch."
        " If nothing was changed,"
        " and values differ on each run (sums of floating-point numbers, collect_list), set rerunCheck=keys;"
        " if rows do (rand() or uuid() as key), set rerunCheck=off"
    )
