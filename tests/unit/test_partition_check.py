"""`Partition.check` finds each way in which a replica's state can contradict itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.log.check import InvariantViolated
from penstock.replication.partition import Partition
from tests.unit.cluster_images import partition as image_of
from tests.unit.log_helpers import batch
from tests.unit.test_replication_partition import partition

pytestmark = [pytest.mark.unchecked_partitions, pytest.mark.unchecked_logs]


def leader(path: Path) -> Partition:
    """Broker 1 leads, 2 has fetched 4 of 6 records, 3 is not in sync."""
    one, _ = partition(path, image_of((1, 2, 3), (1, 2)))
    data = batch([b"v"] * 6)
    one.append(data, 0, len(data), 1)
    one.follower_fetched(2, 4, 0)
    one.log.delete_records_before(1)
    return one


@pytest.mark.promise(
    "reassignment",
    "The state of a replica is always consistent: it is checked after every unit test and between the "
    "steps of the simulators",
)
def test_a_replica_that_leads_and_then_follows_holds_together(tmp_path: Path) -> None:
    one = leader(tmp_path)
    one.check()
    one.ask_for_isr((1, 2, 3))
    one.check()
    one.isr_unanswered()
    one.check()
    one.update(replace(image_of((1, 2, 3), (2,), leader=2, epoch=6), partition_epoch=10))
    one.check()
    one.log.truncate_to(5)
    one.follow(5, 2)
    one.check()
    one.update(replace(image_of((1, 2, 3), (1,), epoch=7), partition_epoch=11))
    one.check()


def _set(name: str, value: object) -> Callable[[Partition], None]:
    return lambda one: setattr(one, name, value)


def _set_log(name: str, value: int) -> Callable[[Partition], None]:
    return lambda one: setattr(one.log, name, value)


def _image(**changes: object) -> Callable[[Partition], None]:
    return lambda one: setattr(one, "image", replace(one.image, **changes))  # type: ignore[arg-type]


def _unstable_before_its_start(one: Partition) -> None:
    log = type(one.log)
    one.log.__class__ = type(log.__name__, (log,), {"__slots__": (), "last_stable_offset": 0})


def _ahead(one: Partition) -> None:
    one.progress[2].log_end_offset = 7


def _starts_past_its_end(one: Partition) -> None:
    one.progress[2].log_start_offset = 5


def _counts_itself(one: Partition) -> None:
    one.progress[1] = one.progress[2]


def _asks_without_itself(one: Partition) -> None:
    one.ask_for_isr((2, 3))


def _asks_for_what_is_not_pending(one: Partition) -> None:
    one.ask_for_isr((1, 2))
    one.asked_isr = (1, 2, 3)


@pytest.mark.promise(
    "reassignment",
    "The state of a replica is always consistent: it is checked after every unit test and between the "
    "steps of the simulators",
)
@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (_set_log("high_watermark", 7), "the high watermark is above the log's end"),
        (_set_log("high_watermark", 0), "the log starts above its high watermark"),
        (_unstable_before_its_start, "the last stable offset 0 is before the log's start"),
        (_image(index=1), "its image is of another partition"),
        (_image(replicas=(1, 2, 2)), "a replica is named twice"),
        (_image(isr=(1, 4)), "a broker is in sync that is not a replica"),
        (_image(isr=(1, 1)), "a replica in sync is named twice"),
        (_image(leader_epoch=4), "it has records of leader epoch 5, which is to come"),
        (_image(leader=2), "it counts followers, and does not lead"),
        (_image(isr=(1,)), "it does not know whether it is alone in sync"),
        (_set("is_unsure", True), "it waits for no answer, and is unsure"),
        (_asks_without_itself, r"it has asked for \(2, 3\), without itself"),
        (_asks_for_what_is_not_pending, r"it has asked for \(1, 2, 3\), which is not pending"),
        (_counts_itself, "it counts itself as a follower"),
        (_set("epoch_start", 7), "the log is shorter than when its epoch began"),
        (_ahead, "broker 2 has fetched up to 7, past the end"),
        (_starts_past_its_end, "the log of broker 2 starts at 5, past its end"),
    ],
)
def test_what_contradicts_itself_is_found(
    tmp_path: Path, broken: Callable[[Partition], None], says: str
) -> None:
    one = leader(tmp_path)
    one.check()
    broken(one)
    with pytest.raises(InvariantViolated, match=says):
        one.check()


def test_a_follower_that_asks_and_a_leader_that_waits_for_nobody_are_found(tmp_path: Path) -> None:
    one, _ = partition(tmp_path, image_of((1, 2), (1,)))
    data = batch([b"v"] * 3)
    one.append(data, 0, len(data), 1)
    one.check()
    one.log.high_watermark = 2
    with pytest.raises(InvariantViolated, match="it is alone in sync, and waits for others"):
        one.check()
    one.update(image_of((1, 2), (2,), leader=2, epoch=6))
    one.check()
    one.ask_for_isr((1, 2))
    with pytest.raises(InvariantViolated, match="it has asked for an ISR, and does not lead"):
        one.check()
