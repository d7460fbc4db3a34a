"""Where in the store the cluster's metadata lies, and how an image is read from it and written to it.

    /cluster/id                     the cluster id, text
    /cluster/producer-ids           {"next": 1000}: the first producer id that nobody has
    /cluster/broker-epoch           its version is the last broker epoch given out
    /brokers/1                      ephemeral; {"host", "port", "rack", "epoch"}
    /topics/NAME                    {"id": UUID, "replicas": [[1, 2], ...]}, one list for each partition
    /topics/NAME/state/0            {"leader", "leader_epoch", "isr"}; the version is the partition epoch
    /deleted/NAME                   {"leader_epoch"}: the last one of a topic that was deleted
    /config/topics/NAME             {"retention.ms": "1000", ...}, only what was set
    /config/brokers/1               the same for one broker; /config/brokers/default for all
    /config/groups/NAME             the same for one group, its id quoted as in a URL

Values are JSON. Each change is one `multi` whose operations carry the versions that the image was read with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote
from uuid import UUID

from penstock.metadata.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from penstock.metadata.store import Create, Delete, Op, Set, Versioned

CLUSTER_ID = "/cluster/id"
PRODUCER_IDS = "/cluster/producer-ids"
BROKER_EPOCH = "/cluster/broker-epoch"

Versions = Mapping[str, int]


def broker_path(broker_id: int) -> str:
    return f"/brokers/{broker_id}"


def topic_path(name: str) -> str:
    return f"/topics/{name}"


def state_path(name: str, partition: int) -> str:
    return f"/topics/{name}/state/{partition}"


def deleted_path(name: str) -> str:
    return f"/deleted/{name}"


def topic_config_path(name: str) -> str:
    return f"/config/topics/{name}"


def broker_config_path(name: str) -> str:
    """`name` as in ClusterImage.broker_configs: "" for all brokers."""
    return f"/config/brokers/{name or 'default'}"


def group_config_path(group_id: str) -> str:
    # Group ids are free text; a dot alone is no name of a node everywhere.
    return "/config/groups/" + quote(group_id, safe="").replace(".", "%2E")


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def decode(value: bytes) -> Any:
    return json.loads(value)


# Image to operations


def create_topic(topic: TopicImage, versions: Versions) -> Iterator[Op]:
    yield Create(topic_path(topic.name), _topic_value(topic))
    for partition in topic.partitions:
        yield Create(state_path(topic.name, partition.index), _state_value(partition))
    yield from put_topic_configs(topic.name, topic.configs, versions)
    tombstone = deleted_path(topic.name)
    if tombstone in versions:
        yield Delete(tombstone, versions[tombstone])


def delete_topic(topic: TopicImage, versions: Versions) -> Iterator[Op]:
    yield from put_topic_configs(topic.name, {}, versions)
    for partition in topic.partitions:
        yield Delete(state_path(topic.name, partition.index), partition.partition_epoch)
    yield Delete(topic_path(topic.name), versions[topic_path(topic.name)])
    yield Create(deleted_path(topic.name), encode({"leader_epoch": topic.last_leader_epoch}))


def add_partitions(old: TopicImage, new: TopicImage, versions: Versions) -> Iterator[Op]:
    path = topic_path(new.name)
    yield Set(path, _topic_value(new), versions[path])
    for partition in new.partitions[len(old.partitions) :]:
        yield Create(state_path(new.name, partition.index), _state_value(partition))


def put_state(name: str, old: PartitionImage, new: PartitionImage) -> Op:
    """The new partition epoch is the node's next version."""
    assert new.partition_epoch == old.partition_epoch + 1
    return Set(state_path(name, new.index), _state_value(new), old.partition_epoch)


def put_topic_configs(name: str, configs: Mapping[str, str], versions: Versions) -> Iterator[Op]:
    return _put_configs(topic_config_path(name), configs, versions)


def put_broker_configs(name: str, configs: Mapping[str, str], versions: Versions) -> Iterator[Op]:
    return _put_configs(broker_config_path(name), configs, versions)


def put_group_configs(group_id: str, configs: Mapping[str, str], versions: Versions) -> Iterator[Op]:
    return _put_configs(group_config_path(group_id), configs, versions)


def _put_configs(path: str, configs: Mapping[str, str], versions: Versions) -> Iterator[Op]:
    if configs and path in versions:
        yield Set(path, encode(dict(configs)), versions[path])
    elif configs:
        yield Create(path, encode(dict(configs)))
    elif path in versions:
        yield Delete(path, versions[path])


def broker_value(broker: BrokerInfo) -> bytes:
    return encode({"host": broker.host, "port": broker.port, "rack": broker.rack, "epoch": broker.epoch})


def _topic_value(topic: TopicImage) -> bytes:
    return encode({"id": str(topic.id), "replicas": [p.replicas for p in topic.partitions]})


def _state_value(partition: PartitionImage) -> bytes:
    return encode({"leader": partition.leader, "leader_epoch": partition.leader_epoch, "isr": partition.isr})


# Nodes to image


def read_image(nodes: Mapping[str, Versioned], controller_id: int) -> ClusterImage:
    """The image of everything below "/"; the cluster id must be there."""
    topics: dict[str, TopicImage] = {}
    brokers: dict[int, BrokerInfo] = {}
    broker_configs: dict[str, dict[str, str]] = {}
    group_configs: dict[str, dict[str, str]] = {}
    deleted: dict[str, int] = {}
    for path, (value, _) in nodes.items():
        match path.split("/")[1:]:
            case ["topics", name]:
                topics[name] = _read_topic(name, value, nodes)
            case ["brokers", broker_id]:
                brokers[int(broker_id)] = BrokerInfo(int(broker_id), **decode(value))
            case ["config", "brokers", name]:
                broker_configs["" if name == "default" else name] = decode(value)
            case ["config", "groups", name]:
                group_configs[unquote(name)] = decode(value)
            case ["deleted", name]:
                deleted[name] = decode(value)["leader_epoch"]
    return ClusterImage(
        cluster_id=nodes[CLUSTER_ID][0].decode(),
        controller_id=controller_id,
        brokers=brokers,
        topics=topics,
        topics_by_id={topic.id: topic for topic in topics.values()},
        broker_configs=broker_configs,
        group_configs=group_configs,
        deleted_epochs=deleted,
    )


def _read_topic(name: str, value: bytes, nodes: Mapping[str, Versioned]) -> TopicImage:
    topic = decode(value)
    partitions = []
    for index, replicas in enumerate(topic["replicas"]):
        state_bytes, version = nodes[state_path(name, index)]
        state = decode(state_bytes)
        partitions.append(
            PartitionImage(
                index=index,
                leader=state["leader"],
                leader_epoch=state["leader_epoch"],
                replicas=tuple(replicas),
                isr=tuple(state["isr"]),
                partition_epoch=version,
            )
        )
    configs = nodes.get(topic_config_path(name))
    return TopicImage(name, UUID(topic["id"]), tuple(partitions), decode(configs[0]) if configs else {})
