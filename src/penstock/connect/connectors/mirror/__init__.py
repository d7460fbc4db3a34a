"""Replication between Kafka clusters, with the connectors, names, settings and formats of MirrorMaker 2."""

from penstock.connect.connectors.mirror.checkpoint_connector import MirrorCheckpointConnector
from penstock.connect.connectors.mirror.heartbeat import MirrorHeartbeatConnector
from penstock.connect.connectors.mirror.source_connector import MirrorSourceConnector

__all__ = ["MirrorCheckpointConnector", "MirrorHeartbeatConnector", "MirrorSourceConnector"]
