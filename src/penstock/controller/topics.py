"""Plans requests to create, extend and delete topics. Pure; stores nothing.

Every `plan_*` function takes the current image and returns the results and the topics to write.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from penstock.config import BrokerConfig, validate_topic
from penstock.controller.placement import Load, check_replication_factor, place
from penstock.controller.requests import (
    BROKER_DEFAULT,
    ZERO_UUID,
    CreatePartitionsResult,
    CreateTopicResult,
    DeleteTopicResult,
    PartitionsSpec,
    TopicRef,
    TopicSpec,
)
from penstock.errors import (
    ApiError,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.log.manager import KRAFT_METADATA
from penstock.metadata.image import ClusterImage, PartitionImage, TopicImage

MAX_NAME_LENGTH = 249
# Kafka's controller accepts at most this many records in one operation. Without a limit one small request
# could create two billion partitions.
MAX_NEW_PARTITIONS = 10_000
RESERVED_NAMES = frozenset({KRAFT_METADATA})

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_name(name: str) -> None:
    """Raises InvalidTopicException if the name is not valid."""
    if not name:
        raise InvalidTopicException("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopicException(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicException(
            f"Topic name is invalid: it has {len(name)} characters, and at most {MAX_NAME_LENGTH} are allowed"
        )
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopicException(
            f"Topic name is invalid: '{name}' has other characters than ASCII letters, digits, '.', '_', '-'"
        )


def metric_name(name: str) -> str:
    """The name in metrics, which write '.' as '_'. Topics whose names differ only there collide."""
    return name.replace(".", "_")


class _Budget:
    """How many more partitions a request may create."""

    def __init__(self) -> None:
        self._left = MAX_NEW_PARTITIONS

    def take(self, count: int) -> None:
        if count > self._left:
            raise PolicyViolation(f"One request can create at most {MAX_NEW_PARTITIONS} partitions")
        self._left -= count


def plan_create(
    image: ClusterImage, config: BrokerConfig, specs: Sequence[TopicSpec], new_id: Callable[[], UUID]
) -> tuple[list[CreateTopicResult], list[TopicImage]]:
    """One result for each name, in the order of the request; a name that occurs twice is rejected."""
    times = Counter(spec.name for spec in specs)
    colliding = {metric_name(name): name for name in image.topics}
    load, budget = Load.of(image), _Budget()
    results, created = [], []
    for spec in {spec.name: spec for spec in specs}.values():
        try:
            if times[spec.name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            topic = _new_topic(image, config, spec, new_id, colliding, load, budget)
        except ApiError as error:
            results.append(CreateTopicResult(spec.name, error))
            continue
        colliding[metric_name(topic.name)] = topic.name
        created.append(topic)
        results.append(
            CreateTopicResult(
                name=topic.name,
                topic_id=topic.id,
                num_partitions=len(topic.partitions),
                replication_factor=len(topic.partitions[0].replicas),
                configs=topic.configs,
            )
        )
    return results, created


def _new_topic(
    image: ClusterImage,
    config: BrokerConfig,
    spec: TopicSpec,
    new_id: Callable[[], UUID],
    colliding: dict[str, str],
    load: Load,
    budget: _Budget,
) -> TopicImage:
    if spec.name in RESERVED_NAMES:
        raise InvalidRequest(f"Creation of internal topic {spec.name} is prohibited.")
    check_topic_name(spec.name)
    if spec.name in image.topics:
        raise TopicAlreadyExists(f"Topic '{spec.name}' already exists.")
    other = colliding.get(metric_name(spec.name))
    if other is not None:
        raise InvalidTopicException(f"Topic '{spec.name}' collides with existing topic: {other}")
    configs = _checked_configs(config, spec)
    if spec.assignments:
        replicas = _manual_assignment(image, spec)
        budget.take(len(replicas))
        for assigned in replicas:
            load.add(assigned)
    else:
        replicas = _automatic_assignment(image, config, spec, load, budget)
    leader_epoch = image.deleted_epochs.get(spec.name, -1) + 1
    partitions = _new_partitions(0, replicas, leader_epoch)
    return TopicImage(spec.name, new_id(), partitions, configs)


def _checked_configs(config: BrokerConfig, spec: TopicSpec) -> dict[str, str]:
    configs = {name: value for name, value in spec.configs.items() if value is not None}
    if len(configs) < len(spec.configs):
        missing = sorted(set(spec.configs) - set(configs))
        raise InvalidConfig(f"Null value not supported for topic configs: {','.join(missing)}")
    validate_topic(config, configs)
    return configs


def _automatic_assignment(
    image: ClusterImage, config: BrokerConfig, spec: TopicSpec, load: Load, budget: _Budget
) -> list[tuple[int, ...]]:
    factor, count = spec.replication_factor, spec.num_partitions
    if factor != BROKER_DEFAULT and factor <= 0:
        raise InvalidReplicationFactor(
            f"Replication factor is {factor}; it must be larger than 0, or -1 to use the default value."
        )
    if count != BROKER_DEFAULT and count <= 0:
        raise InvalidPartitions(
            f"Number of partitions is {count}; it must be larger than 0, or -1 to use the default value."
        )
    factor = config.default_replication_factor if factor == BROKER_DEFAULT else factor
    count = config.num_partitions if count == BROKER_DEFAULT else count
    check_replication_factor(image.brokers.values(), factor)
    budget.take(count)
    return place(image.brokers.values(), load, count, factor)


def _manual_assignment(image: ClusterImage, spec: TopicSpec) -> list[tuple[int, ...]]:
    if spec.replication_factor != BROKER_DEFAULT or spec.num_partitions != BROKER_DEFAULT:
        raise InvalidRequest(
            "A manual partition assignment was specified, so the number of partitions and the replication "
            "factor must both be -1."
        )
    by_index: dict[int, tuple[int, ...]] = {}
    for index, replicas in spec.assignments:
        if index in by_index:
            raise InvalidReplicaAssignment(f"Found multiple manual assignments for partition {index}")
        by_index[index] = tuple(replicas)
    if set(by_index) != set(range(len(by_index))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    assigned = [by_index[index] for index in range(len(by_index))]
    for replicas in assigned:
        _check_replicas(image, replicas, len(assigned[0]))
    return assigned


def _check_replicas(image: ClusterImage, replicas: Sequence[int], replication_factor: int) -> None:
    if not replicas:
        raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
    if len(set(replicas)) < len(replicas):
        raise InvalidReplicaAssignment(
            f"The manual partition assignment {list(replicas)} includes a broker more than once."
        )
    for broker in replicas:
        if broker not in image.brokers:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
    if len(replicas) != replication_factor:
        raise InvalidReplicaAssignment(
            f"The manual partition assignment has a partition with {len(replicas)} replica(s), "
            f"while others have {replication_factor}."
        )


def _new_partitions(
    first: int, replicas: Sequence[tuple[int, ...]], leader_epoch: int
) -> tuple[PartitionImage, ...]:
    """The new partitions. All replicas are in the ISR, because the logs are empty."""
    return tuple(
        PartitionImage(first + i, assigned[0], leader_epoch, assigned, assigned)
        for i, assigned in enumerate(replicas)
    )


def plan_create_partitions(
    image: ClusterImage, specs: Sequence[PartitionsSpec]
) -> tuple[list[CreatePartitionsResult], list[TopicImage]]:
    """Returns the topics with all their partitions; existing ones are unchanged."""
    times = Counter(spec.name for spec in specs)
    load, budget = Load.of(image), _Budget()
    results, grown = [], []
    for spec in {spec.name: spec for spec in specs}.values():
        try:
            if times[spec.name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            grown.append(_grown_topic(image, spec, load, budget))
        except ApiError as error:
            results.append(CreatePartitionsResult(spec.name, error))
        else:
            results.append(CreatePartitionsResult(spec.name))
    return results, grown


def _grown_topic(image: ClusterImage, spec: PartitionsSpec, load: Load, budget: _Budget) -> TopicImage:
    topic = image.topics.get(spec.name)
    if topic is None:
        raise UnknownTopicOrPartition(f"The topic '{spec.name}' does not exist.")
    have = len(topic.partitions)
    if spec.count == have:
        raise InvalidPartitions(f"Topic already has {have} partition(s).")
    if spec.count < have:
        raise InvalidPartitions(
            f"The topic {spec.name} currently has {have} partition(s); {spec.count} would not be an increase."
        )
    additional = spec.count - have
    replication_factor = len(topic.partitions[0].replicas)
    if spec.assignments is not None and len(spec.assignments) != additional:
        raise InvalidReplicaAssignment(
            f"Attempted to add {additional} additional partition(s), but {len(spec.assignments)} "
            "assignment(s) were specified."
        )
    for replicas in spec.assignments or ():
        _check_replicas(image, replicas, replication_factor)
    if spec.assignments is None:
        check_replication_factor(image.brokers.values(), replication_factor)
    budget.take(additional)
    if spec.assignments is not None:
        assigned = [tuple(replicas) for replicas in spec.assignments]
    else:
        assigned = place(image.brokers.values(), load, additional, replication_factor)
    # A recreated topic has started above the leader epochs of the deleted one, which may have had more
    # partitions.
    leader_epoch = min(partition.leader_epoch for partition in topic.partitions)
    return replace(topic, partitions=topic.partitions + _new_partitions(have, assigned, leader_epoch))


def plan_delete(
    image: ClusterImage, refs: Sequence[TopicRef]
) -> tuple[list[DeleteTopicResult], list[TopicImage]]:
    """A topic that is named twice, by name or by id, is rejected and not deleted."""
    found = [_find(image, ref) for ref in refs]
    times = Counter(topic.id for topic in found if isinstance(topic, TopicImage))
    times_missing = Counter(
        ref for ref, topic in zip(refs, found, strict=True) if isinstance(topic, ApiError)
    )
    results, deleted, answered = [], [], set()
    for ref, topic in zip(refs, found, strict=True):
        if ref in answered:
            continue
        answered.add(ref)
        if isinstance(topic, ApiError):
            error = InvalidRequest("Duplicate topic.") if times_missing[ref] > 1 else topic
            results.append(DeleteTopicResult(ref.name, ref.topic_id, error))
        elif times[topic.id] > 1:
            # Do not add the other half of the reference: a client that may not describe a topic must not
            # learn its id.
            results.append(
                DeleteTopicResult(
                    ref.name, ref.topic_id, InvalidRequest("The topic is named more than once.")
                )
            )
        else:
            deleted.append(topic)
            results.append(DeleteTopicResult(topic.name, topic.id))
    return results, deleted


def _find(image: ClusterImage, ref: TopicRef) -> TopicImage | ApiError:
    if ref.name is not None and ref.topic_id != ZERO_UUID:
        return InvalidRequest("You may not specify both topic name and topic id.")
    if ref.name is not None:
        by_name = image.topics.get(ref.name)
        return by_name or UnknownTopicOrPartition(f"The topic '{ref.name}' does not exist.")
    if ref.topic_id != ZERO_UUID:
        return image.topics_by_id.get(ref.topic_id) or UnknownTopicId()
    return InvalidRequest("Neither topic name nor id were specified.")
