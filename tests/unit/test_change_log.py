"""The log of the controller: a line for each kind of change, not one for each partition."""

from __future__ import annotations

import logging
from dataclasses import replace
from uuid import UUID

import pytest

from penstock.controller.change_log import summaries
from penstock.controller.elections import PartitionChange, changed
from penstock.metadata.image import NO_LEADER, PartitionImage

ID = UUID(int=1)


def partition(index: int) -> PartitionImage:
    return PartitionImage(index, 1, 4, (1, 2, 3), (1, 2, 3))


@pytest.mark.promise("cluster", "A failover of a thousand partitions writes only a few lines to the log")
def test_a_thousand_partitions_that_fail_over_are_a_few_lines() -> None:
    changes = [
        PartitionChange("t", ID, partition(at), changed(partition(at), leader=2 + at % 2, isr=(2, 3)))
        for at in range(1000)
    ]
    assert list(summaries(changes)) == [
        (logging.INFO, "new leader broker 2 (was broker 1) for 500 partitions: t-0, t-2, t-4 and 497 more"),
        (logging.INFO, "shrinking ISR by broker 1 for 1000 partitions: t-0, t-1, t-2 and 997 more"),
        (logging.INFO, "new leader broker 3 (was broker 1) for 500 partitions: t-1, t-3, t-5 and 497 more"),
    ]


def test_what_is_not_led_or_may_have_lost_records_is_a_warning() -> None:
    alone = replace(partition(0), isr=(1,))
    lost = changed(alone, leader=NO_LEADER)
    assert list(summaries([PartitionChange("t", ID, alone, lost)])) == [
        (logging.WARNING, "no leader (broker 1 is offline) for 1 partition: t-0")
    ]
    unclean = list(summaries([PartitionChange("t", ID, lost, changed(lost, leader=3, isr=(3,)))]))
    assert unclean[0] == (
        logging.WARNING,
        "unclean leader election of broker 3, which may lose records, for 1 partition: t-0",
    )
    assert list(summaries([PartitionChange("t", ID, lost, changed(lost, leader=1))])) == [
        (logging.INFO, "new leader broker 1 (was none) for 1 partition: t-0")
    ]
    assert list(summaries([PartitionChange("t", ID, lost, replace(lost, partition_epoch=9))])) == []


def test_moves_are_told_when_they_begin_and_when_they_arrive() -> None:
    old = partition(7)
    begun = replace(old, replicas=(4, 2, 3, 1), adding=(4,), removing=(1,))
    assert list(summaries([PartitionChange("t", ID, old, begun)])) == [
        (logging.INFO, "reassignment to brokers 4, 2, 3 started for 1 partition: t-7")
    ]
    arrived = replace(begun, replicas=(4, 2, 3), adding=(), removing=())
    assert list(summaries([PartitionChange("t", ID, begun, arrived)])) == [
        (logging.INFO, "reassignment to brokers 4, 2, 3 completed for 1 partition: t-7")
    ]
