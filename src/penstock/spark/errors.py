"""What goes wrong between Spark and Kafka, as types.

    PenstockError
    └── SparkError
        ├── NoJava              no Java that Spark can run on
        ├── BadOption           an option that is missing, unknown or contradicts another
        │   ├── NotTyped        a schema for which Spark has no type, or a type without one (`value.format`)
        │   └── SchemaRefused   a schema that the registry does not take for what the sink writes
        ├── BadOffsets          offsets (an option's or a checkpoint's) that do not fit the topics
        ├── NoSuchTopic         a topic that is read and does not exist
        ├── DataGone            records that a range asks for have been deleted
        ├── LogCut              the log ends before a range that it once had
        ├── NotCommitted        a range ends in a transaction that is still open
        ├── DataLoss            records have gone that the query had not read yet (`failOnDataLoss`)
        ├── DecodeFailed        a record that does not decode (`value.decode.errors`)
        ├── BadRow              a row that the sink cannot write
        ├── NotDelivered        records that no broker took, or a cluster that could not be reached
        ├── Fenced              another task writes in this one's name
        └── BatchChanged        a batch that is partly written is not what it was when it was written

Every one of them says what to do: most readers meet it at the end of a Spark stack trace.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from penstock.errors import PenstockError

P = ParamSpec("P")
R = TypeVar("R")


def plainly(method: Callable[P, R]) -> Callable[P, R]:
    """For functions that Spark calls: Spark shows the whole stack of an error, but the message is
    sufficient.
    """

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except PenstockError as error:
            raise error.with_traceback(None) from None

    return called


class SparkError(PenstockError):
    """The base class of errors of the Spark source, sink and helpers."""


class NoJava(SparkError):
    """There is no Java on this machine that Spark can run on."""


class BadOption(SparkError):
    """An option of the source or the sink is missing, unknown, malformed or contradicts another."""


class NotTyped(BadOption):
    """A schema without a Spark type, or a type that a format cannot represent."""


class SchemaRefused(BadOption):
    """The registry rejects, or does not have, the schema of the records to write."""


class DecodeFailed(SparkError):
    """A record cannot be decoded, and `decode.errors` is fail (the default)."""


class BadOffsets(SparkError):
    """The given offsets, or those of a checkpoint, do not match the topics that are read."""


class NoSuchTopic(SparkError):
    """A topic in `subscribe` or `assign` does not exist."""


class DataLoss(SparkError):
    """Records were deleted before the query read them. Only raised with `failOnDataLoss` (the default)."""


class LogCut(SparkError):
    """The log ends before the end of a range: the topic was recreated, or records were lost with a leader."""


class NotCommitted(SparkError):
    """A `read_committed` range cannot be read to its end, because a transaction before it does not end."""


class DataGone(SparkError):
    """A range starts before the first offset that its partition still has."""

    def __init__(self, topic: str, partition: int, start: int, log_start_offset: int) -> None:
        super().__init__(
            f"offset {start} of {topic}-{partition} was deleted: the log starts at {log_start_offset}"
        )
        self.topic = topic
        self.partition = partition
        self.start = start
        self.log_start_offset = log_start_offset

    def __reduce__(self) -> tuple[type[DataGone], tuple[str, int, int, int]]:
        # Spark sends a worker's exception to the driver with pickle.
        return type(self), (self.topic, self.partition, self.start, self.log_start_offset)


class BadRow(SparkError):
    """A row without a topic, or with an invalid partition."""


class NotDelivered(SparkError):
    """Records could not be written to the cluster; their transaction has no effect. Retriable."""


class Fenced(SparkError):
    """Another producer has taken over this task's transactional id: the writes of this one have no effect."""


class BatchChanged(SparkError):
    """A micro-batch was partly written before, and its tasks now have other rows than those written."""
