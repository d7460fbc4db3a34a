"""The brokers in Metadata responses: the registered ones, and unregistered ones that still lead partitions.

A broker whose ZooKeeper session has expired still serves its partitions until another leader is elected. When
ZooKeeper was unavailable for longer than the session timeout, that holds for all brokers at once. librdkafka
drops every broker that a Metadata response lacks and may not find the cluster again. So such brokers are
listed with their last address, and a broker always lists itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.metadata.image import BrokerInfo, ClusterImage


class KnownBrokers:
    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self.shown: Mapping[int, BrokerInfo] = {}

    def on_image(self, image: ClusterImage) -> None:
        unregistered = self.shown.keys() - image.brokers.keys()
        if not unregistered:
            self.shown = image.brokers
            return
        leaders = {partition.leader for topic in image.topics.values() for partition in topic.partitions}
        stay = {one: self.shown[one] for one in unregistered if one in leaders or one == self._broker_id}
        self.shown = {**image.brokers, **stay} if stay else image.brokers
