"""Whole replications from one set of properties, as connect-mirror-maker.sh takes them. Pure.

    clusters = east, west
    east.bootstrap.servers = east-1:9092
    west.bootstrap.servers = west-1:9092
    east->west.enabled = true
    east->west.topics = orders, payments.*

A flow is one worker on the target cluster with its connectors. The worker keeps its state there, in topics
that are named after the source, so that several flows into one cluster do not meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.config.types import did_you_mean, split_list
from penstock.connect.connectors.mirror.checkpoint_connector import MirrorCheckpointConnector
from penstock.connect.connectors.mirror.heartbeat import MirrorHeartbeatConnector
from penstock.connect.connectors.mirror.settings import SOURCE, TARGET
from penstock.connect.connectors.mirror.source_connector import MirrorSourceConnector
from penstock.connect.errors import ConnectError
from penstock.connect.runtime.definitions import fields_for
from penstock.connect.transforms.chain import prefixed
from penstock.connect.worker.options import FIELDS as WORKER_FIELDS

_CONNECTORS = (MirrorSourceConnector, MirrorCheckpointConnector, MirrorHeartbeatConnector)
_OF_CLIENTS = ("security.protocol", "ssl.", "sasl.", "https.")
_ROLES = ("producer.", "consumer.", "admin.")
_OF_WORKERS = frozenset(each.name for each in WORKER_FIELDS)
_IGNORED = ("clusters", "config.providers", "dedicated.mode.enable.internal.rest", "listeners")


class BadFlows(ConnectError):
    """Properties that do not describe a replication."""


@dataclass(frozen=True, slots=True)
class Flow:
    """`client` are the settings of the target cluster's clients, `worker` those of the worker."""

    source: str
    target: str
    client: Mapping[str, str]
    worker: Mapping[str, str]
    connectors: Mapping[str, Mapping[str, str]]


def flows(properties: Mapping[str, str]) -> list[Flow]:
    """The flows, those that replicate first. BadFlows says what is missing or contradictory."""
    clusters = list(dict.fromkeys(split_list(properties.get("clusters", ""))))
    if len(clusters) < 2:
        raise BadFlows("clusters: name at least two clusters, such as `clusters = east, west`")
    for name in clusters:
        if not properties.get(f"{name}.bootstrap.servers"):
            raise BadFlows(f"{name}.bootstrap.servers is missing: give at least one host:port")
    _check_pairs(properties, clusters)
    found = []
    for source in clusters:
        for target in clusters:
            if source != target:
                flow = _flow(properties, source, target)
                if flow.connectors:
                    found.append(flow)
    if not any(len(flow.connectors) > 1 for flow in found):
        first, second = clusters[:2]
        raise BadFlows(f"no replication is enabled: set one, such as `{first}->{second}.enabled = true`")
    return sorted(found, key=lambda flow: len(flow.connectors), reverse=True)


def _check_pairs(properties: Mapping[str, str], clusters: list[str]) -> None:
    for name in properties:
        source, arrow, rest = name.partition("->")
        if not arrow:
            continue
        target = rest.partition(".")[0]
        for cluster in (source, target):
            if cluster not in clusters:
                near = did_you_mean(cluster, set(clusters))
                raise BadFlows(f"{name}: {cluster} is not one of the clusters.{near}")


def unknown_names(properties: Mapping[str, str]) -> list[str]:
    """Unknown settings, each with similar known names."""
    clusters = split_list(properties.get("clusters", ""))
    known = _OF_WORKERS | {each.name for plugin in _CONNECTORS for each in fields_for(plugin)} | {*_IGNORED}
    pairs = tuple(f"{source}->{target}." for source in clusters for target in clusters)
    begins = (*(f"{name}." for name in clusters), *pairs, *_OF_CLIENTS, *_ROLES)
    return [
        f"{name}{did_you_mean(name, known)}"
        for name in properties
        if name not in known and not name.startswith(begins)
    ]


def _flow(properties: Mapping[str, str], source: str, target: str) -> Flow:
    pair = prefixed(properties, f"{source}->{target}.")
    enabled = pair.get("enabled", "false").strip().lower() == "true"
    heartbeats = pair.get("emit.heartbeats.enabled", properties.get("emit.heartbeats.enabled", "true"))
    plugins: list[type[MirrorSourceConnector | MirrorCheckpointConnector | MirrorHeartbeatConnector]] = []
    if enabled:
        plugins += [MirrorSourceConnector, MirrorCheckpointConnector]
    if heartbeats.strip().lower() == "true":
        # Also without replication: the opposite direction replicates the heartbeats of this cluster.
        plugins.append(MirrorHeartbeatConnector)
    settings = _of_cluster(properties, target)
    worker = {
        "exactly.once.source.support": "enabled",
        **{name: value for name, value in properties.items() if name in _OF_WORKERS},
        **{name: value for name, value in settings.items() if name in _OF_WORKERS},
        "group.id": f"{source}-mm2",
        "config.storage.topic": f"mm2-configs.{source}.internal",
        "offset.storage.topic": f"mm2-offsets.{source}.internal",
        "status.storage.topic": f"mm2-status.{source}.internal",
    }
    return Flow(
        source,
        target,
        {
            name: value
            for name, value in settings.items()
            if name not in _OF_WORKERS and not name.startswith(_ROLES)
        },
        worker,
        {each.__name__: _connector(properties, source, target, pair, each) for each in plugins},
    )


def _of_cluster(properties: Mapping[str, str], cluster: str) -> dict[str, str]:
    """`east.x` for the cluster east; login settings may be given once for all clusters."""
    common = {name: value for name, value in properties.items() if name.startswith(_OF_CLIENTS)}
    return {**common, **prefixed(properties, f"{cluster}.")}


def _connector(
    properties: Mapping[str, str],
    source: str,
    target: str,
    pair: Mapping[str, str],
    plugin: type[MirrorSourceConnector | MirrorCheckpointConnector | MirrorHeartbeatConnector],
) -> dict[str, str]:
    names = {each.name for each in fields_for(plugin)}
    config = {name: value for name, value in properties.items() if name in names or name.startswith(_ROLES)}
    for role, cluster in ((SOURCE, source), (TARGET, target)):
        for name, value in _of_cluster(properties, cluster).items():
            if name not in _OF_WORKERS:
                between = "." if name.startswith(_ROLES) else ".cluster."
                config[f"{role}{between}{name}"] = value
    config |= {name: value for name, value in pair.items() if name in names or name.startswith(_PAIR)}
    return {
        **config,
        "connector.class": plugin.__name__,
        "source.cluster.alias": source,
        "target.cluster.alias": target,
        "enabled": "true",
    }


_PAIR = (*_ROLES, *(f"{cluster}.{role}" for cluster in (SOURCE, TARGET) for role in _ROLES))
