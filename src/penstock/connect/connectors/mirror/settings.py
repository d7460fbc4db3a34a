"""The settings of the three connectors, with MirrorMaker 2's names, and the connection to each cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.client import ClientSettings, Cluster
from penstock.client.errors import BadClientSetting
from penstock.client.settings import kafka_names
from penstock.config.types import ConfigType, OneOf, Range
from penstock.connect.connectors.mirror.policy import DEFAULT_POLICY, POLICIES, check_alias, check_expressions
from penstock.connect.settings import Field, Importance
from penstock.connect.transforms.chain import prefixed

SOURCE, TARGET = "source", "target"
PACKAGE = "org.apache.kafka.connect.mirror."
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
BYTES_ONLY = {"key.converter": BYTES, "value.converter": BYTES, "header.converter": BYTES}
"""Converters for records that are bytes already."""

_HIGH, _LOW = Importance.HIGH, Importance.LOW
_TEN_MINUTES = 600


def flag(name: str, default: bool, doc: str) -> Field:
    return Field(name, ConfigType.BOOLEAN, default, doc, importance=_LOW)


def seconds(name: str, default: int, doc: str) -> Field:
    return Field(f"{name}.interval.seconds", ConfigType.LONG, default, doc, Range(1), _LOW)


def names(name: str, default: tuple[str, ...], doc: str) -> Field:
    return Field(name, ConfigType.LIST, default, doc, importance=_HIGH)


def replicas(name: str, default: int, doc: str) -> Field:
    return Field(name, ConfigType.SHORT, default, f"{doc}; at most the number of brokers.", Range(1), _LOW)


COMMON = (
    Field("source.cluster.alias", doc="The name of the source cluster.", importance=_HIGH),
    Field("target.cluster.alias", default="target", doc="The name of the target cluster.", importance=_HIGH),
    flag("enabled", True, "Whether to replicate from the source to the target."),
    Field(
        "source.cluster.bootstrap.servers",
        doc="Brokers of the source cluster. Other settings of its clients have the same prefix.",
        importance=_HIGH,
    ),
    Field(
        "target.cluster.bootstrap.servers",
        doc="Brokers of the target cluster, which is the worker's. Other settings of its clients have the "
        "same prefix.",
        importance=_HIGH,
    ),
    Field(
        "replication.policy.class",
        default=DEFAULT_POLICY,
        doc="DefaultReplicationPolicy: the topic t of the cluster east is east.t in others. "
        "IdentityReplicationPolicy: topics keep their names, and only one direction can be replicated.",
        validator=OneOf(*POLICIES),
        importance=_LOW,
    ),
    Field("replication.policy.separator", default=".", doc="Between alias and topic.", importance=_LOW),
    flag(
        "replication.policy.internal.topic.separator.enabled",
        True,
        "Whether names of MirrorMaker's own topics have the separator; a dot otherwise.",
    ),
    Field("admin.timeout.ms", ConfigType.LONG, 60_000, "The limit of an admin request.", Range(1), _LOW),
)  # fmt: skip

TOPICS = (
    names("topics", (".*",), "Topics to replicate: names and regular expressions."),
    names(
        "topics.exclude",
        (r".*[\-\.]internal", r".*\.replica", "__.*"),
        "Topics that are not replicated, whatever topics says.",
    ),
)

OFFSET_SYNCS = (
    Field(
        "offset-syncs.topic.location",
        default=SOURCE,
        doc="The cluster that has the offset-syncs topic.",
        validator=OneOf(SOURCE, TARGET),
        importance=_LOW,
    ),
)

SOURCE_FIELDS = (
    *COMMON,
    *TOPICS,
    *OFFSET_SYNCS,
    names(
        "config.properties.exclude",
        (
            r"follower\.replication\.throttled\.replicas",
            r"leader\.replication\.throttled\.replicas",
            r"message\.timestamp\.difference\.max\.ms",
            r"message\.timestamp\.type",
            r"unclean\.leader\.election\.enable",
            r"min\.insync\.replicas",
        ),
        "Settings of topics that are not replicated.",
    ),
    Field(
        "use.defaults.from",
        default=TARGET,
        doc="Whose defaults a remote topic has for what its topic does not set.",
        validator=OneOf(SOURCE, TARGET),
        importance=_LOW,
    ),
    Field(
        "consumer.poll.timeout.ms", ConfigType.LONG, 1000, "How long a fetch waits at most.", Range(1), _LOW
    ),
    flag("refresh.topics.enabled", True, "Whether to look for new topics and partitions."),
    seconds("refresh.topics", _TEN_MINUTES, "How often."),
    flag("sync.topic.configs.enabled", True, "Whether settings of topics are replicated."),
    seconds("sync.topic.configs", _TEN_MINUTES, "How often."),
    flag("sync.topic.acls.enabled", True, "Whether ACLs of topics are replicated."),
    seconds("sync.topic.acls", _TEN_MINUTES, "How often."),
    replicas("replication.factor", 2, "Replicas of remote topics"),
    replicas("offset-syncs.topic.replication.factor", 3, "Replicas of the offset-syncs topic"),
    Field(
        "offset.lag.max",
        ConfigType.LONG,
        100,
        "The most records between two offset syncs: how many records a group that moves may read again.",
        Range(0),
        _LOW,
    ),
    flag("emit.offset-syncs.enabled", True, "Whether to write offset syncs, which checkpoints need."),
    flag("heartbeats.replication.enabled", True, "Whether heartbeats are replicated, whatever topics says."),
)  # fmt: skip

CHECKPOINT_FIELDS = (
    *COMMON,
    *TOPICS,
    *OFFSET_SYNCS,
    names("groups", (".*",), "Groups whose offsets are replicated: names and regular expressions."),
    names(
        "groups.exclude",
        ("console-consumer-.*", "connect-.*", "__.*"),
        "Groups that are left out, whatever groups says.",
    ),
    flag("refresh.groups.enabled", True, "Whether to look for new groups."),
    seconds("refresh.groups", _TEN_MINUTES, "How often."),
    flag("emit.checkpoints.enabled", True, "Whether to write checkpoints."),
    seconds("emit.checkpoints", 60, "How often."),
    flag(
        "sync.group.offsets.enabled",
        False,
        "Whether to commit translated offsets in the target for groups without members there.",
    ),
    seconds("sync.group.offsets", 60, "How often."),
    replicas("checkpoints.topic.replication.factor", 3, "Replicas of the checkpoints topic"),
)

HEARTBEAT_FIELDS = (
    *COMMON,
    flag("emit.heartbeats.enabled", True, "Whether to write heartbeats."),
    seconds("emit.heartbeats", 1, "How often."),
    replicas("heartbeats.topic.replication.factor", 3, "Replicas of the heartbeats topic"),
)


def client(config: Mapping[str, str], cluster: str, role: str) -> ClientSettings:
    """The settings of a client of the `source` or `target` cluster; `role` is consumer, producer or admin."""
    found = {
        **prefixed(config, f"{cluster}.cluster."),
        **prefixed(config, f"{role}."),
        **prefixed(config, f"{cluster}.{role}."),
    }
    found.pop("alias", None)
    if role == "admin":
        # `admin.timeout.ms` itself limits a single request.
        limit = found.pop("timeout.ms", None)
        if limit is not None:
            found.setdefault("default.api.timeout.ms", limit)
    if role == "consumer":
        found.setdefault("isolation.level", "read_committed")
        found.setdefault("max.partition.fetch.bytes", str(4 << 20))
        found.setdefault("fetch.max.bytes", str(16 << 20))
    found.setdefault("client.id", f"{config.get('name', 'mirror')}|{cluster}-{role}")
    try:
        return ClientSettings.from_kafka(kafka_names(found))
    except BadClientSetting as error:
        raise BadClientSetting(f"{cluster}.cluster.{error}") from error


def connect(config: Mapping[str, str], cluster: str, role: str) -> Cluster:
    return Cluster(client(config, cluster, role))


def problems(config: Mapping[str, str], fields: Iterable[Field]) -> dict[str, list[str]]:
    """Problems that the fields alone do not show."""
    found: dict[str, list[str]] = {}
    settings: dict[str, Any] = {}
    for each in fields:
        text = config.get(each.name)
        settings[each.name] = each.default if text is None else each.parse(text)
    for name in ("topics", "topics.exclude", "groups", "groups.exclude", "config.properties.exclude"):
        if name in settings:
            found[name] = check_expressions(name, settings[name])
    source, target = settings["source.cluster.alias"], settings["target.cluster.alias"]
    for name, alias in (("source.cluster.alias", source), ("target.cluster.alias", target)):
        found[name] = check_alias(name, alias, settings["replication.policy.separator"])
    if source == target:
        found["target.cluster.alias"].append(
            f"Invalid value {target} for configuration target.cluster.alias: the source has this alias"
        )
    for cluster, role in ((SOURCE, "consumer"), (TARGET, "admin")):
        try:
            client(config, cluster, role)
        except BadClientSetting as error:
            found.setdefault(f"{cluster}.cluster.bootstrap.servers", []).append(str(error))
    if config.get("transforms"):
        found["transforms"] = [
            "MirrorMaker's connectors copy records as they are: transforms must not be set. Transform the "
            "records where they are read."
        ]
    return found
