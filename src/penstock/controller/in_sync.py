"""Plans AlterPartition requests: checks whether a leader may change its in-sync replicas. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.controller.elections import PartitionChange, changed
from penstock.errors import (
    ApiError,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
    StaleBrokerEpoch,
    UnknownTopicOrPartition,
)
from penstock.metadata.image import ClusterImage, TopicImage


@dataclass(frozen=True, slots=True)
class WantedIsr:
    """`isr` has broker ids, each with the broker epoch that the leader knows (-1: unknown)."""

    index: int
    leader_epoch: int
    partition_epoch: int
    isr: Mapping[int, int]


def check_sender(image: ClusterImage, broker_id: int, broker_epoch: int) -> None:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        raise StaleBrokerEpoch(f"broker {broker_id} is not registered with epoch {broker_epoch}")


def plan_isr(
    image: ClusterImage, sender: int, topic: TopicImage | None, wanted: Sequence[WantedIsr]
) -> list[PartitionChange | ApiError]:
    """For each partition its change, or the error."""
    found: list[PartitionChange | ApiError] = []
    for one in wanted:
        try:
            found.append(_plan(image, sender, topic, one))
        except ApiError as error:
            found.append(error)
    return found


def _plan(image: ClusterImage, sender: int, topic: TopicImage | None, one: WantedIsr) -> PartitionChange:
    if topic is None or not 0 <= one.index < len(topic.partitions):
        raise UnknownTopicOrPartition()
    partition = topic.partitions[one.index]
    if one.leader_epoch > partition.leader_epoch or one.partition_epoch > partition.partition_epoch:
        # The sender knows of a newer controller than this one.
        raise NotController("this controller is behind")
    if one.leader_epoch < partition.leader_epoch or partition.leader != sender:
        raise FencedLeaderEpoch(f"broker {partition.leader} leads with epoch {partition.leader_epoch}")
    if one.partition_epoch < partition.partition_epoch:
        raise InvalidUpdateVersion(f"the partition epoch is {partition.partition_epoch}")
    isr = tuple(replica for replica in partition.replicas if replica in one.isr)
    if len(isr) != len(one.isr) or sender not in isr:
        raise InvalidRequest("the in-sync replicas must be replicas, and the leader one of them")
    unfit = image.unfit(topic.name, one.index)
    for replica in isr:
        broker = image.brokers.get(replica)
        joins = replica not in partition.isr
        if joins and (broker is None or replica in unfit or one.isr[replica] not in (-1, broker.epoch)):
            raise IneligibleReplica(f"broker {replica} is not registered so, or is shutting down")
    return PartitionChange(topic.name, topic.id, partition, changed(partition, isr=isr))
