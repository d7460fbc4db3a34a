"""The brokers that clients are shown: those that are registered, and those that lead partitions without it.

A broker whose session with ZooKeeper has ended still serves what it leads until another one is elected. When
ZooKeeper was away for longer than the sessions last, that is true of all of them at once. librdkafka drops
every broker that a Metadata response lacks and may not find the cluster again, so such brokers are listed
under their last address; and a broker always lists itself.
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
