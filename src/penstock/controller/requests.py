"""Requests to the controller and their results, independent of wire versions.

In every result `error` is None on success; the error of one item never affects another item.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from penstock.errors import ApiError

ZERO_UUID = UUID(int=0)
BROKER_DEFAULT = -1


class ResourceType(enum.IntEnum):
    """Kafka's config resource types. Broker loggers are not in the metadata."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterOp(enum.IntEnum):
    """Kafka's operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create; `assignments` are pairs of partition index and replicas."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTopicResult:
    name: str
    error: ApiError | None = None
    topic_id: UUID = ZERO_UUID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicRef:
    """A topic by name or by id, as in DeleteTopics version 6; never both."""

    name: str | None = None
    topic_id: UUID = ZERO_UUID


@dataclass(frozen=True, slots=True)
class DeleteTopicResult:
    name: str | None
    topic_id: UUID = ZERO_UUID
    error: ApiError | None = None


@dataclass(frozen=True, slots=True)
class PartitionsSpec:
    """A topic to extend to `count` partitions; `assignments` has the replicas of the new ones."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitionsResult:
    name: str
    error: ApiError | None = None


@dataclass(frozen=True, slots=True)
class ConfigOp:
    name: str
    value: str | None
    op: int = AlterOp.SET


@dataclass(frozen=True, slots=True)
class AlterResource:
    """Changes to one resource; `type` is a plain number because clients may send any."""

    type: int
    name: str
    ops: Sequence[ConfigOp]


@dataclass(frozen=True, slots=True)
class AlterConfigsResult:
    type: int
    name: str
    error: ApiError | None = None
