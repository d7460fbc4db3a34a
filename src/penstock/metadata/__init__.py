"""The cluster's metadata: the metadata store, and the immutable image that all readers share."""

from penstock.metadata.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from penstock.metadata.store import (
    BadVersion,
    MetadataStore,
    NodeExists,
    NoNode,
    StoreError,
    StoreUnavailable,
)

__all__ = [
    "BadVersion",
    "BrokerInfo",
    "ClusterImage",
    "MetadataStore",
    "NoNode",
    "NodeExists",
    "PartitionImage",
    "StoreError",
    "StoreUnavailable",
    "TopicImage",
]
