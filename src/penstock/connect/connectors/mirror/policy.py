"""Which topics and groups are replicated, and under which names, as in MirrorMaker 2. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

HEARTBEATS = "heartbeats"
DEFAULT_POLICY = "DefaultReplicationPolicy"
IDENTITY_POLICY = "IdentityReplicationPolicy"
_PACKAGE = "org.apache.kafka.connect.mirror."
POLICIES = (
    DEFAULT_POLICY,
    IDENTITY_POLICY,
    _PACKAGE + DEFAULT_POLICY,
    _PACKAGE + IDENTITY_POLICY,
)


class ReplicationPolicy:
    """`topic` of the cluster `east` is `east.topic` in every other cluster (DefaultReplicationPolicy).

    So a name shows where a topic came from, and topics that came from the target are not replicated back.
    """

    def __init__(self, source: str, separator: str = ".", *, internal_separator: bool = True) -> None:
        self.source = source
        self._separator = separator
        self._internal = separator if internal_separator else "."

    def remote_topic(self, topic: str) -> str:
        """The topic's name in the target."""
        return f"{self.source}{self._separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        """The cluster that a remote topic was replicated from; None for a topic of the cluster itself."""
        source, separator, rest = topic.partition(self._separator)
        return source if separator and rest else None

    def upstream_topic(self, topic: str) -> str | None:
        """The name of a remote topic in the cluster that it was replicated from."""
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self._separator) :]

    def original_topic(self, topic: str) -> str:
        """The topic's name in the cluster in which it was first written."""
        upstream = self.upstream_topic(topic)
        return topic if upstream is None or upstream == topic else self.original_topic(upstream)

    def is_cycle(self, topic: str, target: str) -> bool:
        """Whether a topic of the source came from the target, through any number of clusters."""
        source = self.topic_source(topic)
        if source is None:
            return False
        if source == target:
            return True
        upstream = self.upstream_topic(topic)
        return upstream is not None and upstream != topic and self.is_cycle(upstream, target)

    def is_heartbeats(self, topic: str) -> bool:
        return self.original_topic(topic) == HEARTBEATS

    def is_internal(self, topic: str) -> bool:
        """Kafka's, Connect's and MirrorMaker's own topics."""
        return topic.startswith(("__", ".")) or topic.endswith(
            ("-internal", ".internal", f"{self._internal}internal")
        )

    def offset_syncs_topic(self, other: str) -> str:
        """`other` is the alias of the cluster that does not have the topic."""
        return f"mm2-offset-syncs{self._internal}{other}{self._internal}internal"

    def checkpoints_topic(self) -> str:
        return f"{self.source}{self._internal}checkpoints{self._internal}internal"


class IdentityReplicationPolicy(ReplicationPolicy):
    """Topics keep their names, except heartbeats. A name does not show where a topic came from."""

    def remote_topic(self, topic: str) -> str:
        return super().remote_topic(topic) if _may_be_heartbeats(topic) else topic

    def topic_source(self, topic: str) -> str | None:
        return super().topic_source(topic) if _may_be_heartbeats(topic) else self.source

    def upstream_topic(self, topic: str) -> str | None:
        return super().upstream_topic(topic) if _may_be_heartbeats(topic) else topic


def _may_be_heartbeats(topic: str) -> bool:
    return topic.endswith(HEARTBEATS)


def policy_of(settings: Mapping[str, Any]) -> ReplicationPolicy:
    named = settings["replication.policy.class"].removeprefix(_PACKAGE)
    kind = IdentityReplicationPolicy if named == IDENTITY_POLICY else ReplicationPolicy
    return kind(
        settings["source.cluster.alias"],
        settings["replication.policy.separator"],
        internal_separator=settings["replication.policy.internal.topic.separator.enabled"],
    )


class NameFilter:
    """Names and regular expressions to include and to exclude; exclusion takes precedence."""

    def __init__(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        self._include = _pattern(include)
        self._exclude = _pattern(exclude)

    def matches(self, name: str) -> bool:
        included = self._include is not None and self._include.fullmatch(name) is not None
        return included and (self._exclude is None or self._exclude.fullmatch(name) is None)


def _pattern(expressions: Iterable[str]) -> re.Pattern[str] | None:
    words = list(expressions)
    if not words:
        return None
    return re.compile("|".join(f"(?:{word})" for word in words))


def check_expressions(name: str, expressions: Iterable[str]) -> list[str]:
    """What is wrong with a list of names and regular expressions."""
    problems = []
    for word in expressions:
        try:
            re.compile(word)
        except re.error as error:
            problems.append(
                f"Invalid value {word} for configuration {name}: not a regular expression: {error}"
            )
    return problems


class TopicFilter:
    """The topics of the source that are replicated."""

    def __init__(self, settings: Mapping[str, Any], policy: ReplicationPolicy) -> None:
        self._names = NameFilter(settings["topics"], settings["topics.exclude"])
        self._heartbeats = bool(settings.get("heartbeats.replication.enabled", False))
        self._target = settings["target.cluster.alias"]
        self._policy = policy

    def matches(self, topic: str) -> bool:
        policy = self._policy
        wanted = self._names.matches(topic) or (self._heartbeats and policy.is_heartbeats(topic))
        return wanted and not policy.is_internal(topic) and not policy.is_cycle(topic, self._target)


def check_alias(name: str, alias: str, separator: str) -> list[str]:
    """A cluster's alias becomes part of topic names, so it must be valid there."""
    if re.fullmatch(r"[a-zA-Z0-9._-]+", alias) and separator not in alias:
        return []
    return [
        f"Invalid value {alias} for configuration {name}: an alias is a part of topic names: use letters, "
        f"digits, '_' and '-', without the separator '{separator}'"
    ]
