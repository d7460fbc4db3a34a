"""One fetch over several partitions: the limits of the request, and the wait for enough bytes.

`read` returns what is available now. A `FetchWait` holds the request until min_bytes are available, it times
out, or something has changed that the reader must know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from penstock.errors import ApiError
from penstock.log import residency
from penstock.log.partition_log import PartitionLog
from penstock.replication.delayed import DelayedOperation, Key
from penstock.replication.partition import Partition
from penstock.replication.throttle import Throttle
from penstock.wire.fetch import FetchPartition, FetchPartitionResult

K = TypeVar("K")

Found = Partition | ApiError
"""A partition, or the error if it cannot be read here."""


class FetchParams(NamedTuple):
    replica_id: int
    isolation_level: int
    max_bytes: int
    min_bytes: int
    replica_epoch: int = -1
    at_follower: bool = False
    """The reader is a consumer that may fetch from followers (KIP-392)."""
    tell_high_watermark: bool = False
    """The reader is a follower that serves consumers: a new high watermark ends its wait."""
    throttle: Throttle | None = None
    """The replication throttle for followers that are behind."""
    is_withheld: bool = False
    """The reader has exceeded its quota: it gets errors and high watermarks, but no records."""
    is_patient: bool = True
    """If False, logs whose data is not in memory are not read but put into `ReadOutcome.cold`."""


class ReadOutcome(NamedTuple):
    size: int
    """The number of bytes of records."""
    urgent: bool
    """There is an error, or a log to truncate: the reader must get it without waiting."""
    cold: Sequence[tuple[PartitionLog, int, int]] = ()
    """Logs to `warm_up` before they are read, with offset and number of bytes."""


def read(
    params: FetchParams,
    wanted: Iterable[tuple[K, Found, FetchPartition]],
    results: dict[K, FetchPartitionResult],
) -> ReadOutcome:
    """Read the partitions in order until max_bytes is reached; the first that has records returns at least
    one batch (KIP-74)."""
    if params.is_patient:
        return _read(params, wanted, results)
    with residency.no_waiting():
        return _read(params, wanted, results)


def _read(
    params: FetchParams,
    wanted: Iterable[tuple[K, Found, FetchPartition]],
    results: dict[K, FetchPartitionResult],
) -> ReadOutcome:
    left = params.max_bytes
    isolation_level, replica_id, replica_epoch = (
        params.isolation_level, params.replica_id, params.replica_epoch,
    )  # fmt: skip
    throttle = params.throttle
    total = 0
    urgent = False
    cold: list[tuple[PartitionLog, int, int]] = []
    for key, partition, request in wanted:
        if isinstance(partition, ApiError):
            results[key] = failed(request.partition, partition)
            urgent = True
            continue
        held = params.is_withheld or (throttle is not None and throttle.holds_back(partition, replica_id))
        try:
            result = partition.fetch(
                request,
                0 if held else left,
                total == 0 and not held,
                isolation_level,
                replica_id,
                replica_epoch,
                at_follower=params.at_follower,
            )
        except residency.NotResident:
            cold.append((partition.log, request.fetch_offset, min(left, request.max_bytes)))
            continue
        except ApiError as error:
            results[key] = failed(request.partition, error, partition)
            urgent = True
            continue
        results[key] = result
        if result.slices:
            size = sum(map(len, result.slices))  # type: ignore[arg-type]
            total += size
            left -= size
            if throttle is not None:
                throttle.count(partition, size)
        elif result.diverging_epoch is not None:
            urgent = True
    return ReadOutcome(total, urgent, cold)


def failed(index: int, error: ApiError, partition: Partition | None = None) -> FetchPartitionResult:
    result = FetchPartitionResult(index, error.code)
    if partition is not None and error.code in (6, 74):
        # KIP-951: return the current leader, so that the reader need not send a Metadata request
        result.current_leader = (partition.image.leader, partition.image.leader_epoch)
    return result


class FetchWait(DelayedOperation):
    """Waits for `min_bytes` over all partitions. The bytes of a partition are counted again only when it
    wakes the operation."""

    __slots__ = ("_missing", "_on_complete", "_params", "_sizes", "_told", "_wanted")

    def __init__(
        self,
        params: FetchParams,
        wanted: Mapping[Key, tuple[Partition, FetchPartition]],
        sizes: dict[Key, int],
        on_complete: Callable[[], None],
    ) -> None:
        self._params = params
        self._wanted = wanted
        self._sizes = sizes
        self._missing = params.min_bytes - sum(sizes.values())
        self._told = (
            {key: partition.log.high_watermark for key, (partition, _) in wanted.items()}
            if params.tell_high_watermark
            else {}
        )
        self._on_complete = on_complete

    def is_satisfied(self, key: Key) -> bool:
        partition, request = self._wanted[key]
        params = self._params
        try:
            partition.check_fetch(request, params.replica_id, at_follower=params.at_follower)
            if params.tell_high_watermark and partition.log.high_watermark > self._told[key]:
                return True
            if not partition.readable(request, params.isolation_level, params.replica_id):
                return False
            if self._missing <= 1:
                return True
            slices = partition.slices(
                request, request.max_bytes, True, params.isolation_level, params.replica_id
            )
        except ApiError:
            return True
        size = sum(map(len, slices))
        self._missing -= size - self._sizes.get(key, 0)
        self._sizes[key] = size
        return self._missing <= 0

    def look(self) -> bool:
        """Nothing to check: the partitions were read just before the wait begins, and are read again at its
        end."""
        return False

    def complete(self, expired: bool) -> None:
        self._on_complete()
