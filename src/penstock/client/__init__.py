"""A small synchronous Kafka client on `penstock.wire`: security, metadata, offsets, fetched bytes.

with Cluster(ClientSettings.from_kafka({"bootstrap.servers": "localhost:9092"})) as cluster:
    cluster.list_offsets({("orders", 0): LATEST})
"""

from penstock.client.brokers import TopicInfo
from penstock.client.cluster import EARLIEST, LATEST, Cluster, PendingFetch, TopicPartition
from penstock.client.errors import (
    AuthenticationFailed,
    BadClientSetting,
    ClientError,
    ClusterTimeout,
    ConnectionFailed,
    TlsFailed,
)
from penstock.client.fetching import FetchedBytes
from penstock.client.settings import READ_COMMITTED, READ_UNCOMMITTED, ClientSettings

__all__ = [
    "EARLIEST",
    "LATEST",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "AuthenticationFailed",
    "BadClientSetting",
    "ClientError",
    "ClientSettings",
    "Cluster",
    "ClusterTimeout",
    "ConnectionFailed",
    "FetchedBytes",
    "PendingFetch",
    "TlsFailed",
    "TopicInfo",
    "TopicPartition",
]
