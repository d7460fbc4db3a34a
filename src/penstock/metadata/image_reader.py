"""Builds images from the nodes of the metadata store; `layout` has their paths."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from penstock.credentials.scram import ScramCredential
from penstock.metadata.acls import Acl
from penstock.metadata.image import (
    NO_LEADER,
    BrokerInfo,
    ClusterImage,
    PartitionImage,
    QuotaEntity,
    TopicImage,
)
from penstock.metadata.layout import decode, state_path, topic_config_path, topic_path
from penstock.metadata.store import Versioned
from penstock.metadata.tokens import read_token


class ImageReader:
    """Builds images from changed nodes; unchanged ones are not read again.

    A topic of which nodes are missing is just being created or deleted: it stays unchanged in the image until
    all of them have arrived.
    """

    def __init__(self, controller_id: int = NO_LEADER) -> None:
        """`controller_id` is the controller if the store has no elected one (a single broker)."""
        self._alone = controller_id
        self._image = ClusterImage(cluster_id="", controller_id=controller_id)
        self._pending: dict[str, int] = {}  # by topic: a partition whose state has not arrived

    def is_behind(self, path: str) -> bool:
        """Whether this node of a topic has arrived, but is not in the image yet."""
        return bool(self._pending) and any(path == topic_path(name) for name in self._pending)

    def read(self, nodes: Mapping[str, Versioned], changed: Iterable[str]) -> ClusterImage:
        old = self._image
        dirty = {name for name, index in self._pending.items() if state_path(name, index) in nodes}
        partitions: dict[str, set[int]] = {}
        brokers, broker_configs = dict(old.brokers), dict(old.broker_configs)
        group_configs, deleted = dict(old.group_configs), dict(old.deleted_epochs)
        leaving, broken, credentials = set(old.leaving), dict(old.broken), dict(old.credentials)
        cluster_id, controller_id, tokens = old.cluster_id, old.controller_id, dict(old.tokens)
        acls, quotas, metrics = old.acls, old.quotas, old.client_metrics
        for path in changed:
            node = nodes.get(path)
            value = None if node is None else node[0]
            match path.split("/")[1:]:
                case ["brokers", "topics", name]:
                    dirty.add(name)
                case ["brokers", "topics", name, "state", index]:
                    partitions.setdefault(name, set()).add(int(index))
                case ["config", "topics", name]:
                    partitions.setdefault(name, set())
                case ["brokers", "ids", broker_id]:
                    one = int(broker_id)
                    _put(brokers, one, value, partial(_read_broker, one))
                case ["config", "brokers", name]:
                    _put(broker_configs, "" if name == "default" else name, value, decode)
                case ["config", "groups", name]:
                    _put(group_configs, unquote(name), value, decode)
                case ["config", "client-metrics", name]:
                    # Copied only if one changes: the broker compares the objects.
                    metrics = dict(metrics) if metrics is old.client_metrics else metrics
                    _put(metrics, unquote(name), value, decode)  # type: ignore[arg-type]
                case ["credentials", "scram", mechanism, user]:
                    _put(credentials, (mechanism, unquote(user)), value, _read_credential)
                case ["credentials", "tokens", token_id]:
                    _put(tokens, token_id, value, partial(read_token, token_id))
                case ["deleted", name]:
                    _put(deleted, name, value, lambda v: decode(v)["leader_epoch"])
                case ["cluster", "id"] if value is not None:
                    cluster_id = value.decode()
                case ["controller"]:
                    controller_id = self._alone if value is None else decode(value)["broker"]
                case ["cluster", "leaving", broker_id]:
                    leaving.discard(int(broker_id)) if value is None else leaving.add(int(broker_id))
                case ["cluster", "broken", broker_id]:
                    _put(broken, int(broker_id), value, _read_broken)
                case ["acls", name]:
                    # Copied only if one changes: there may be many, and the authorizer compares the objects.
                    acls = dict(acls) if acls is old.acls else acls
                    _put(acls, name, value, lambda v: Acl(*decode(v)))  # type: ignore[arg-type]
                case ["quotas", name]:
                    quotas = dict(quotas) if quotas is old.quotas else quotas
                    _put(quotas, _quota_entity(name), value, decode)  # type: ignore[arg-type]
        # A single broker reads its image before it is registered, and counts as alive.
        live = brokers.keys() if self._alone == NO_LEADER else None
        moved = live is not None and live != old.brokers.keys()
        if moved:
            for name in old.topics:
                partitions.setdefault(name, set())  # its offline replicas have changed
        topics = dict(old.topics)
        for name in dirty:
            self._read_topic(topics, name, nodes, live)
        for name in partitions.keys() - dirty:
            self._reread_partitions(topics, name, partitions[name], nodes, live, moved)
        self._image = ClusterImage(
            cluster_id=cluster_id,
            controller_id=controller_id,
            brokers=brokers,
            topics=topics,
            topics_by_id={topic.id: topic for topic in topics.values()},
            broker_configs=broker_configs,
            group_configs=group_configs,
            client_metrics=metrics,
            deleted_epochs=deleted,
            leaving=frozenset(leaving),
            broken=broken,
            acls=acls,
            quotas=quotas,
            credentials=credentials,
            tokens=tokens,
            version=old.version + 1,
        )
        return self._image

    def _read_topic(
        self,
        topics: dict[str, TopicImage],
        name: str,
        nodes: Mapping[str, Versioned],
        live: Collection[int] | None,
    ) -> None:
        self._pending.pop(name, None)
        node = nodes.get(topic_path(name))
        if node is None:
            topics.pop(name, None)
            return
        topic = decode(node[0])
        states = [nodes.get(state_path(name, index)) for index in range(len(topic["replicas"]))]
        if None in states:
            self._pending[name] = states.index(None)
            return
        adding, removing = topic.get("adding", {}), topic.get("removing", {})
        partitions = tuple(
            _read_partition(
                PartitionImage(
                    index,
                    NO_LEADER,
                    0,
                    tuple(replicas),
                    (),
                    adding=tuple(adding.get(str(index), ())),
                    removing=tuple(removing.get(str(index), ())),
                ),
                state,
                live,
            )
            for index, (replicas, state) in enumerate(zip(topic["replicas"], states, strict=True))
            if state is not None
        )
        topics[name] = TopicImage(name, UUID(topic["id"]), partitions, _read_configs(name, nodes))

    def _reread_partitions(
        self,
        topics: dict[str, TopicImage],
        name: str,
        changed: set[int],
        nodes: Mapping[str, Versioned],
        live: Collection[int] | None,
        moved: bool,
    ) -> None:
        """`moved`: brokers were registered or have gone offline."""
        topic = topics.get(name)
        if topic is None:
            return  # the topic node shows when it is complete
        # Thousands of partitions may change one after the other, so only the changed ones are processed.
        partitions = list(topic.partitions)
        if moved:
            for index, partition in enumerate(partitions):
                offline = _offline(partition.replicas, live)
                if offline != partition.offline:
                    partitions[index] = replace(partition, offline=offline)
        for index in changed:
            state = nodes.get(state_path(name, index))
            if state is None:
                return  # the topic is being deleted
            if index < len(partitions):
                partitions[index] = _read_partition(partitions[index], state, live)
        topics[name] = TopicImage(name, topic.id, tuple(partitions), _read_configs(name, nodes))


def read_image(nodes: Mapping[str, Versioned], controller_id: int) -> ClusterImage:
    """The image of all nodes below "/"; the cluster id must exist."""
    return ImageReader(controller_id).read(nodes, nodes)


def _put(into: dict[Any, Any], key: Any, value: bytes | None, read: Callable[[bytes], Any]) -> None:
    if value is None:
        into.pop(key, None)
    else:
        into[key] = read(value)


def _read_broker(broker_id: int, value: bytes) -> BrokerInfo:
    read = decode(value)
    listeners = tuple((name, host, port) for name, host, port in read.pop("listeners", ()))
    return BrokerInfo(broker_id, **read, listeners=listeners)


def _read_broken(value: bytes) -> frozenset[tuple[str, int]]:
    return frozenset((name, index) for name, indexes in decode(value).items() for index in indexes)


def _read_partition(
    partition: PartitionImage, node: Versioned, live: Collection[int] | None
) -> PartitionImage:
    state = decode(node[0])
    return replace(
        partition,
        leader=state["leader"],
        leader_epoch=state["leader_epoch"],
        isr=tuple(state["isr"]),
        partition_epoch=node[1],
        offline=_offline(partition.replicas, live),
    )


def _offline(replicas: tuple[int, ...], live: Collection[int] | None) -> tuple[int, ...]:
    if live is None:
        return ()
    return tuple(replica for replica in replicas if replica not in live)


def _read_configs(name: str, nodes: Mapping[str, Versioned]) -> Mapping[str, str]:
    node = nodes.get(topic_config_path(name))
    return decode(node[0]) if node else {}


def _read_credential(value: bytes) -> ScramCredential:
    read = decode(value)
    salt, stored_key, server_key = (
        bytes.fromhex(read[name]) for name in ("salt", "stored_key", "server_key")
    )
    return ScramCredential(salt, stored_key, server_key, read["iterations"])


def _quota_entity(name: str) -> QuotaEntity:
    parts = (part.partition("=") for part in name.split(","))
    return tuple((kind, unquote(text) if equals else None) for kind, equals, text in parts)
