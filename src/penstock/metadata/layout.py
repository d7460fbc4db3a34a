"""The layout of the cluster's metadata in the store, and the operations that write changes.

    /cluster/id                     the cluster id, text
    /cluster/producer-ids           {"next": 1000}: the first producer id that nobody has
    /cluster/broker-epoch           its version is the last broker epoch given out
    /controller                     ephemeral; {"broker", "epoch"}: who is the elected controller
    /controller_epoch               the epoch of the newest controller, a number as text; what counts is the
                                    version of the node, which is the same (older data: {})
    /cluster/leaving/1              broker 1 is shutting down and should lead nothing more
    /cluster/broken/1               ephemeral; {"NAME": [0, 2]}: partitions whose logs broker 1 cannot write
    /brokers/ids/1                  ephemeral; {"host", "port", "rack", "epoch", "listeners"}, the last a list
                                    of [name, host, port]
    /brokers/topics/NAME            {"id": UUID, "replicas": [[1, 2], ...]}, one list for each partition;
                                    "adding" and "removing" {"0": [3]} while partitions are reassigned
    /brokers/topics/NAME/state/0    {"leader", "leader_epoch", "isr"}; the version is the partition epoch
    /topic_ids/UUID                 there for as long as the topic with this id
    /deleted/NAME                   {"leader_epoch"}: the last one of a topic that was deleted
    /config/topics/NAME             {"retention.ms": "1000", ...}, only what was set
    /config/brokers/1               the same for one broker; /config/brokers/default for all
    /config/groups/NAME             the same for one group, its id quoted as in a URL
    /acls/HASH                      one ACL: [type, name, pattern, principal, host, operation, permission]
    /quotas/client-id,user=NAME     the quotas of a user, client id, both (as here, of any client id: the
                                    default has no name) or an ip: {"producer_byte_rate": 1048576.0, ...}
    /credentials/scram/MECHANISM/USER    {"salt", "stored_key", "server_key", "iterations"}, in hexadecimal
    /credentials/tokens/ID          a delegation token: {"owner", "requester", "renewers", "issued",
                                    "expires", "max"}
    /credentials/salt-key           random bytes, of which the salts of unknown users are made

Brokers, topics and the controller have the paths that Kafka uses. Values are JSON. Each change is one `multi`
whose operations check the versions on which the image is based.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote
from uuid import UUID

from penstock.credentials.scram import ScramCredential
from penstock.metadata.acls import Acl
from penstock.metadata.image import (
    BrokerInfo,
    PartitionImage,
    QuotaEntity,
    TopicImage,
)
from penstock.metadata.store import ANY_VERSION, Check, Create, Delete, Op, Set

CLUSTER_ID = "/cluster/id"
PRODUCER_IDS = "/cluster/producer-ids"
BROKER_EPOCH = "/cluster/broker-epoch"
CONTROLLER = "/controller"
SALT_KEY = "/credentials/salt-key"
CONTROLLER_EPOCH = "/controller_epoch"
TOPICS = "/brokers/topics"
TOPIC_IDS = "/topic_ids"

Versions = Mapping[str, int]


def epoch_value(epoch: int) -> bytes:
    """The value of /controller_epoch, for people and other tools; brokers use the version of the node."""
    return str(epoch).encode()


def broker_path(broker_id: int) -> str:
    return f"/brokers/ids/{broker_id}"


def leaving_path(broker_id: int) -> str:
    return f"/cluster/leaving/{broker_id}"


def broken_path(broker_id: int) -> str:
    return f"/cluster/broken/{broker_id}"


def broken_value(keys: Iterable[tuple[str, int]]) -> bytes:
    topics: dict[str, list[int]] = {}
    for name, index in sorted(keys):
        topics.setdefault(name, []).append(index)
    return encode(topics)


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def is_topic_path(path: str) -> bool:
    """Whether it is a topic node, not the state of a partition."""
    return path.startswith(f"{TOPICS}/") and path.count("/") == 3


def topic_id(value: bytes) -> UUID:
    """The topic id in the value of a topic node."""
    return UUID(decode(value)["id"])


def state_path(name: str, partition: int) -> str:
    return f"{TOPICS}/{name}/state/{partition}"


def id_path(topic_id: UUID) -> str:
    """The node that exists as long as the topic. The nodes of a recreated topic start with version 0 again,
    so changes that were planned for the former topic check that this node still exists."""
    return f"{TOPIC_IDS}/{topic_id}"


def is_id_path(path: str) -> bool:
    return path.startswith(f"{TOPIC_IDS}/")


def deleted_path(name: str) -> str:
    return f"/deleted/{name}"


def topic_config_path(name: str) -> str:
    return f"/config/topics/{name}"


def broker_config_path(name: str) -> str:
    """`name` as in ClusterImage.broker_configs: "" for all brokers."""
    return f"/config/brokers/{name or 'default'}"


def group_config_path(group_id: str) -> str:
    return "/config/groups/" + _quoted(group_id)


def client_metrics_path(name: str) -> str:
    return "/config/client-metrics/" + _quoted(name)


def acl_name(acl: Acl) -> str:
    """The name of the ACL's node: the same ACL can exist only once."""
    return hashlib.sha256(_acl_value(acl)).hexdigest()[:32]


def acl_path(name: str) -> str:
    return f"/acls/{name}"


def quota_path(entity: QuotaEntity) -> str:
    """The path of an entity's quotas. A default has no "=", because user and client names may be empty."""
    return "/quotas/" + ",".join(kind if name is None else f"{kind}={_quoted(name)}" for kind, name in entity)


def _quoted(name: str) -> str:
    # The name is free text, and "." is not a valid node name in all stores.
    return quote(name, safe="").replace(".", "%2E")


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def decode(value: bytes) -> Any:
    return json.loads(value)


# Image to operations


def create_topic(topic: TopicImage, versions: Versions) -> Iterator[Op]:
    # Brokers see one node after the other: write the settings first, so that no topic is seen without them.
    yield from _put_configs(topic_config_path(topic.name), topic.configs, versions)
    yield Create(topic_path(topic.name), _topic_value(topic))
    yield Create(id_path(topic.id), b"")
    for partition in topic.partitions:
        yield Create(state_path(topic.name, partition.index), _state_value(partition))
    yield from _absent(deleted_path(topic.name), versions)


def delete_topic(topic: TopicImage, versions: Versions) -> Iterator[Op]:
    yield Delete(topic_path(topic.name), versions[topic_path(topic.name)])
    yield Delete(id_path(topic.id))
    for partition in topic.partitions:
        yield Delete(state_path(topic.name, partition.index), partition.partition_epoch)
    yield from _absent(topic_config_path(topic.name), versions)
    tombstone, value = deleted_path(topic.name), encode({"leader_epoch": topic.last_leader_epoch})
    yield Set(tombstone, value, versions[tombstone]) if tombstone in versions else Create(tombstone, value)


def _absent(path: str, versions: Versions) -> Iterator[Op]:
    """Makes sure that the node does not exist afterwards. If it exists and this broker has not read it yet,
    the change fails and is planned again: a new topic must not start with the settings or epochs of a former
    one."""
    if path not in versions:
        yield Create(path, b"{}")
    yield Delete(path, versions.get(path, 0))


def add_partitions(old: TopicImage, new: TopicImage, versions: Versions) -> Iterator[Op]:
    path = topic_path(new.name)
    yield same_topic(new.id)
    yield Set(path, _topic_value(new), versions[path])
    for partition in new.partitions[len(old.partitions) :]:
        yield Create(state_path(new.name, partition.index), _state_value(partition))


def put_topic(topic: TopicImage, versions: Versions) -> Op:
    """The operation for a topic whose replicas have changed."""
    path = topic_path(topic.name)
    return Set(path, _topic_value(topic), versions[path])


def put_state(name: str, old: PartitionImage, new: PartitionImage) -> Op:
    """The operation for a changed partition; its new partition epoch is the next version of the node."""
    assert new.partition_epoch == old.partition_epoch + 1
    return Set(state_path(name, new.index), _state_value(new), old.partition_epoch)


def same_topic(topic_id: UUID) -> Op:
    return Check(id_path(topic_id), ANY_VERSION)


def put_topic_configs(topic: TopicImage, configs: Mapping[str, str], versions: Versions) -> Iterator[Op]:
    """The operations for the settings of a topic; they fail if the topic is deleted before they are
    stored."""
    yield same_topic(topic.id)
    yield Check(topic_path(topic.name), versions[topic_path(topic.name)])
    yield from _put_configs(topic_config_path(topic.name), configs, versions)


def put_broker_configs(name: str, configs: Mapping[str, str], versions: Versions) -> Iterator[Op]:
    return _put_configs(broker_config_path(name), configs, versions)


def put_group_configs(group_id: str, configs: Mapping[str, str], versions: Versions) -> Iterator[Op]:
    return _put_configs(group_config_path(group_id), configs, versions)


def put_client_metrics(name: str, configs: Mapping[str, str], versions: Versions) -> Iterator[Op]:
    return _put_configs(client_metrics_path(name), configs, versions)


def create_acls(acls: Mapping[str, Acl]) -> Iterator[Op]:
    for name, acl in acls.items():
        yield Create(acl_path(name), _acl_value(acl))


def delete_acls(names: Iterable[str], versions: Versions) -> Iterator[Op]:
    for name in names:
        yield Delete(acl_path(name), versions[acl_path(name)])


def put_quotas(entity: QuotaEntity, values: Mapping[str, float], versions: Versions) -> Iterator[Op]:
    return _put_configs(quota_path(entity), values, versions)


def _put_configs(path: str, configs: Mapping[str, Any], versions: Versions) -> Iterator[Op]:
    if configs and path in versions:
        yield Set(path, encode(dict(configs)), versions[path])
    elif configs:
        yield Create(path, encode(dict(configs)))
    elif path in versions:
        yield Delete(path, versions[path])


def credential_path(mechanism: str, user: str) -> str:
    return f"/credentials/scram/{mechanism}/{_quoted(user)}"


def put_credentials(
    changed: Mapping[tuple[str, str], ScramCredential | None], versions: Versions
) -> Iterator[Op]:
    for (mechanism, user), one in changed.items():
        value: dict[str, str | int] = {}
        if one is not None:
            value = {
                "salt": one.salt.hex(),
                "stored_key": one.stored_key.hex(),
                "server_key": one.server_key.hex(),
                "iterations": one.iterations,
            }
        yield from _put_configs(credential_path(mechanism, user), value, versions)


def broker_value(broker: BrokerInfo) -> bytes:
    value: dict[str, Any] = {
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "epoch": broker.epoch,
    }
    if broker.listeners:
        value["listeners"] = broker.listeners
    return encode(value)


def _acl_value(acl: Acl) -> bytes:
    return encode([
        acl.resource_type, acl.name, acl.pattern_type, acl.principal, acl.host, acl.operation, acl.permission
    ])  # fmt: skip


def _topic_value(topic: TopicImage) -> bytes:
    value: dict[str, Any] = {"id": str(topic.id), "replicas": [p.replicas for p in topic.partitions]}
    for name in ("adding", "removing"):
        if moving := {p.index: getattr(p, name) for p in topic.partitions if getattr(p, name)}:
            value[name] = moving
    return encode(value)


def _state_value(partition: PartitionImage) -> bytes:
    return encode({"leader": partition.leader, "leader_epoch": partition.leader_epoch, "isr": partition.isr})
