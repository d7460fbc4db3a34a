"""Old faults put back, one at a time: `python -m tests.sim.brokers.mutants` says which seed finds each.

A simulator that finds nothing may be blind. Each mutant takes one protection out of the product while it is
open, as the code was before a fault was mended; some schedule must then break a promise.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import PropertyMock, patch

from kazoo.exceptions import KazooException

from penstock.broker.api import write_txn_markers
from penstock.broker.coordinators.shard_answers import Answers
from penstock.broker.coordinators.shard_host import ShardHost
from penstock.broker.coordinators.store_check import StoreCheck
from penstock.broker.net.server import Server
from penstock.broker.transactions import markers
from penstock.broker.transactions.append_order import AppendOrder
from penstock.broker.transactions.markers import MarkerWriter
from penstock.groups.shard import GroupShard
from penstock.log import manager, partition_log
from penstock.log.cleaning import cleaner, swap
from penstock.log.files import LogFile
from penstock.log.manager import LogManager
from penstock.log.partition_log import PartitionLog
from penstock.log.producer_state import ProducerStateManager
from penstock.log.segment import Segment
from penstock.metadata.store import StoreUnavailable
from penstock.metadata.zookeeper_mirror import Mirror
from penstock.replication.delayed import DelayedOperation, DelayedOperations
from penstock.replication.deleting import DeleteWait
from penstock.replication.follower.following import Following
from penstock.replication.follower.leader_fetcher import LeaderFetcher
from penstock.replication.partition import Partition
from penstock.transactions.shard import WriteMarkers
from penstock.transactions.state import TV_0
from tests.sim.brokers.world import Result, Schedule, simulate

Patch = tuple[Any, str, Any]


class _Forgetful(set[Any]):
    """A set that has nothing."""

    def __contains__(self, one: object) -> bool:
        return False


class _ForgetfulDict(dict[Any, Any]):
    def update(self, *args: Any, **more: Any) -> None:
        pass


def _overtaking() -> list[Patch]:
    """Batches of a producer pass those that wait for the coordinator."""
    check = ProducerStateManager.check
    return [
        (AppendOrder, "ahead", lambda self, producer, keys: []),
        (ProducerStateManager, "check", lambda self, header, transaction_version=0: check(self, header)),
        (ProducerStateManager, "note_sequence", lambda self, *args: None),
    ]


def _markers_sent_twice() -> list[Patch]:
    """A marker is sent again while the first is under way, and no check of epochs runs."""
    init, marker, request = MarkerWriter.__init__, markers._marker, markers._request

    def forgetful(self: MarkerWriter, *args: Any) -> None:
        init(self, *args)
        self._under_way = _Forgetful()
        self._unanswered = _ForgetfulDict()

    return [
        (MarkerWriter, "__init__", forgetful),
        (markers, "_marker", lambda one: marker(one)._replace(transaction_version=TV_0)),
        (markers, "_request", lambda one, keys: request(one._replace(transaction_version=TV_0), keys)),
        (ProducerStateManager, "has_marker", lambda self, *args: False),
    ]


def _old_markers_sent_twice() -> list[Patch]:
    """The marker of a client before version 2 is sent again while the first may still arrive."""
    init = MarkerWriter.__init__

    def forgetful(self: MarkerWriter, *args: Any) -> None:
        init(self, *args)
        self._unanswered = _ForgetfulDict()

    return [(MarkerWriter, "__init__", forgetful), (Server, "is_replaced", lambda self, context: False)]


def _late_markers() -> list[Patch]:
    """A marker takes back the verification of the next transaction before anybody looks whose it is."""
    write = markers.write_marker

    def careless(broker: Any, partition: Partition, marker: markers.Marker) -> int:
        partition.check_leader()
        partition.log.producers.stop_verifying(*marker.producer)
        return write(broker, partition, marker)

    return [(markers, "write_marker", careless), (write_txn_markers, "write_marker", careless)]


def _early_answers() -> list[Patch]:
    """An outcome without records is answered before what it rests on is replicated."""
    put = Answers.put

    def early(self: Answers, outcome: Any, offset: int, timeout_ms: int) -> None:
        put(self, outcome, offset if outcome.records else -1, timeout_ms)
        if not outcome.records and self._waiting:
            self._waiting.rotate(1)  # it does not wait for those before it

    return [(Answers, "put", early)]


def _no_guard() -> list[Patch]:
    """A transaction that ends while a produce is verified does not take the verification back."""
    return [(ProducerStateManager, "is_verifying", lambda self, guard: True)]


def _answers_of_others() -> list[Patch]:
    """Coordinators answer when the high watermark moves, whoever leads, and in whatever epoch."""

    def settle(self: Answers) -> None:
        while not self.busy and self._waiting:
            if not self._partition.is_replicated(self._waiting[0].offset):
                break
            self._follow_up(self._waiting.popleft().outcome)
        self._expire()
        self._watch()

    return [
        (Answers, "settle", settle),
        (Answers, "is_satisfied", lambda self, key: self._partition.is_replicated(self._waiting[0].offset)),
        (ShardHost, "_give_up", _give_up_silently),
    ]


def _give_up_silently(self: Any, index: int) -> None:
    hosted = self._hosted.pop(index)
    if hosted.timer is not None:
        hosted.timer.cancel()


def _unknown_ends() -> list[Patch]:
    """A new leader names an end of the log that it does not know yet (KIP-207)."""
    return [(Partition, "check_end_is_known", lambda self, isolation_level=0: None)]


def _unread_high_watermarks() -> list[Patch]:
    """The checkpoint of high watermarks is not read, either."""
    opened = manager.open_log

    def forgetful(*args: Any, **options: Any) -> Any:
        options.pop("high_watermark", None)
        return opened(*args, **options)

    return [*_unknown_ends(), (manager, "open_log", forgetful)]


def _reopened_by_name() -> list[Patch]:
    """A file that was closed is opened again by its name, whatever has that name now."""
    opened, mark_deleted = LogFile.open, Segment.mark_deleted

    def by_name(self: LogFile) -> Any:
        self._identity = None
        return opened(self)

    def marked(self: Segment) -> list[str]:
        name = self.file.path
        renamed = mark_deleted(self)
        self.file.path = name
        return renamed

    return [
        (LogFile, "open", by_name),
        (LogFile, "retire", LogFile.unseal),
        (Segment, "mark_deleted", marked),
    ]


def _blind_swap() -> list[Patch]:
    """Cleaned segments are swapped in, whatever has happened to the log."""

    def fitting(log: Any, result: Any, group: Any) -> Any:
        bases = set(group.old_base_offsets)
        return [segment for segment in log.segments if segment.base_offset in bases]

    return [(swap, "_fitting", fitting), (PartitionLog, "cancel_swap", lambda self: None)]


def _recovery_point_above_the_end() -> list[Patch]:
    """A truncation changes neither the recovery point on disk nor that of a flush under way."""
    after = PartitionLog._after_truncation

    def keeping(self: PartitionLog, stable_until: int) -> None:
        flushes, self._flushes = self._flushes, []
        after(self, stable_until)
        self._flushes = flushes

    return [
        (PartitionLog, "_after_truncation", keeping),
        (LogManager, "truncated", lambda self, log, offset: None),
    ]


def _cuts_what_it_leads() -> list[Patch]:
    """A follower acts on an answer of its leader later, without a look whether it still follows."""
    take = LeaderFetcher._take

    async def later(self: LeaderFetcher, *args: Any) -> None:
        await asyncio.sleep(1)
        await take(self, *args)

    return [(LeaderFetcher, "_take", later), (Following, "is_held", PropertyMock(return_value=True))]


def _absent_is_deleted() -> list[Patch]:
    """Coordinators take a topic that their image lacks for a deleted one."""

    def loaded(self: StoreCheck, shard: GroupShard) -> None:
        known = self._broker.image.topics
        existing = {name: topic.id for name, topic in known.items()}
        self._broker.groups.run(
            shard, lambda one: one.deleted_topics.found(one.deleted_topics.names(), existing)[0]
        )

    async def look_up(self: MarkerWriter, markers: WriteMarkers, keys: list[Any]) -> None:
        self._under_way.difference_update((markers.transactional_id, key) for key in keys)
        self._report(markers, set(keys))

    return [(StoreCheck, "loaded", loaded), (MarkerWriter, "_look_up", look_up)]


def _forgotten_watches() -> list[Patch]:
    """A node whose watch has fired is not read again when its read is left unanswered."""

    async def reread(self: Mirror) -> None:
        while self._fired:
            async with self._reading:
                paths, self._fired = self._fired, set()
                try:
                    await self._read_paths(paths, self._walk)
                except (KazooException, StoreUnavailable):
                    self._fired.clear()

    return [(Mirror, "_reread", reread)]


def _unsynced_followers() -> list[Patch]:
    """A follower reports records that flush.messages demands to be on disk before they are."""
    next_request = LeaderFetcher._next_request

    async def hasty(self: LeaderFetcher) -> bytes | None:
        self._flushes.clear()
        return await next_request(self)

    return [(LeaderFetcher, "_next_request", hasty), (LeaderFetcher, "_hold_back", lambda self, *args: None)]


def _deleted_here_alone() -> list[Patch]:
    """DeleteRecords is answered when the leader has deleted them."""
    own_start = property(lambda self: self._partition.log.log_start_offset)
    return [
        (DeleteWait, "is_satisfied", lambda self, key: True),
        (DeleteWait, "error", lambda self: None),
        (DeleteWait, "low_watermark", own_start),
    ]


def _lost_wakes() -> list[Patch]:
    """Who begins to wait when it has happened already is not woken, and does not look at the end."""
    watch = DelayedOperations.watch

    def late(self: DelayedOperations, operation: Any, keys: Any, timeout_ms: float | None) -> None:
        asyncio.get_running_loop().call_later(0.05, watch, self, operation, keys, timeout_ms)

    return [(DelayedOperations, "watch", late), (DelayedOperation, "look", lambda self: False)]


def _one_is_enough() -> list[Patch]:
    """The high watermark moves while fewer replicas than min.insync.replicas are in sync."""
    return [(Partition, "is_under_min_isr", PropertyMock(return_value=False))]


def _blind_retention() -> list[Patch]:
    """Retention deletes segments above the high watermark."""
    decide = partition_log.segments_to_delete

    def blind(segments: Any, config: Any, now_ms: int, start: int, high_watermark: int) -> int:
        return decide(segments, config, now_ms, start, segments[-1].end_offset)

    return [(partition_log, "segments_to_delete", blind)]


def _no_deadlines() -> list[Patch]:
    """What coordinators decided is not answered before it is replicated, however long that takes."""
    put = Answers.put

    def patient(self: Answers, outcome: Any, offset: int, timeout_ms: float) -> None:
        put(self, outcome, offset, float("inf"))  # type: ignore[arg-type]

    return [(Answers, "put", patient)]


def _deleted_before_made() -> list[Patch]:
    """A log that starts again elsewhere goes on in deleted files where the new one cannot be made."""
    restart = PartitionLog.truncate_fully_and_start_at

    def careless(self: PartitionLog, offset: int) -> None:
        for segment in self.segments:
            self._delete_later(segment.mark_deleted())
        restart(self, offset)

    return [(PartitionLog, "truncate_fully_and_start_at", careless)]


def _aborted_for_ever() -> list[Patch]:
    """Compaction takes committed records for aborted ones where their producer aborted in the clean part."""
    build = cleaner._Cleaner.build_map

    def blind(self: Any) -> int:
        aborted = self.aborted
        self.aborted = [txn._replace(last_offset=1 << 60) for txn in aborted]
        try:
            return build(self)
        finally:
            self.aborted = aborted

    return [(cleaner._Cleaner, "build_map", blind)]


def _fleeting() -> list[Patch]:
    """For one step the high watermark is above the log's end, which no client sees."""
    append = Partition.append

    def hasty(self: Partition, *args: Any, **more: Any) -> Any:
        info = append(self, *args, **more)
        log, known = self.log, self.log.high_watermark
        log.high_watermark = log.log_end_offset + 1
        asyncio.get_running_loop().call_soon(setattr, log, "high_watermark", known)
        return info

    return [(Partition, "append", hasty)]


class Mutant(NamedTuple):
    patches: Callable[[], list[Patch]]
    schedule: Schedule  # where it is found soonest; with all of the load and faults it takes longer


def _mutant(
    patches: Callable[[], list[Patch]], load: str, faults: str, *, synced: bool | None = None
) -> Mutant:
    return Mutant(patches, Schedule(tuple(faults.split()), tuple(load.split()), synced))


MUTANTS: dict[str, Mutant] = {
    one.patches.__name__.removeprefix("_").replace("_", "-"): one
    for one in (
        _mutant(_overtaking, "hasty", "cut slow_connection stop"),
        _mutant(_markers_sent_twice, "tv2", "cut slow_connection stop"),
        _mutant(_old_markers_sent_twice, "tv0", "strand cut"),
        _mutant(_late_markers, "tv0 tv2 hasty", "strand kill exile slow_verification"),
        _mutant(_early_answers, "plain tv0 committer", "doom"),
        _mutant(_no_guard, "impatient", "slow_verification"),
        _mutant(_answers_of_others, "plain committer", "exile"),
        _mutant(_unknown_ends, "plain", "doom kill"),
        _mutant(_unread_high_watermarks, "plain", "kill"),
        _mutant(_reopened_by_name, "keyed", "slow_disk"),
        _mutant(_blind_swap, "unclean", "slow_disk kill exile"),
        _mutant(_recovery_point_above_the_end, "plain", "exile doom slow_disk", synced=True),
        _mutant(_cuts_what_it_leads, "plain trim", "kill shut_down"),
        _mutant(_absent_is_deleted, "new", "kill slow_zookeeper"),
        _mutant(_unsynced_followers, "plain", "lose_power shut_down kill", synced=True),
        _mutant(_deleted_here_alone, "trim", "kill doom"),
        _mutant(_lost_wakes, "plain", ""),
        _mutant(_forgotten_watches, "plain new", "slow_zookeeper kill"),
        _mutant(_one_is_enough, "plain committer", "stop exile"),
        _mutant(_blind_retention, "short", "doom stop"),
        _mutant(_no_deadlines, "plain committer", "exile stop no_zookeeper"),
        _mutant(_deleted_before_made, "trim short", "fill_disk"),
        _mutant(_aborted_for_ever, "ledger", ""),
        _mutant(_fleeting, "plain", ""),
    )
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, attribute, new in MUTANTS[name].patches():
            stack.enter_context(patch.object(owner, attribute, new))
        yield


def caught(name: str, seeds: Sequence[int]) -> Result | None:
    """The first of these schedules that breaks a promise without that protection."""
    with mutated(name):
        for seed in seeds:
            result = simulate(seed, MUTANTS[name].schedule)
            if result.failures:
                return result
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.sim.brokers.mutants", description=__doc__)
    parser.add_argument("mutants", nargs="*", default=list(MUTANTS), help=", ".join(MUTANTS))
    parser.add_argument("--seeds", type=int, default=200, help="how many schedules for each")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    options = parser.parse_args(arguments)
    survivors = 0
    for name in options.mutants:
        begin = time.process_time()
        result = caught(name, range(options.first, options.first + options.seeds))
        took = time.process_time() - begin
        if result is None:
            survivors += 1
            print(f"{name}: none of {options.seeds} seeds finds it ({took:.0f} s)", flush=True)
        else:
            print(f"{name}: seed {result.seed} after {took:.0f} s: {result.failures[0]}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim.brokers.mutants", *sys.argv[1:]])
    sys.exit(main())
