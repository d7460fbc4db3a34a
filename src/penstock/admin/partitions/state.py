"""Cluster state and requests for the commands that move partitions.

librdkafka supports neither reassignments, nor log sizes, nor leader elections with their errors, so this
sends the requests itself, also to Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.admin.partitions.moves import Key, Move
from penstock.admin.wire_client import CommandConnection, WireCluster, check
from penstock.errors import ApiError, NotController, error_for_code
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

PREFERRED, UNCLEAN = 0, 1
_TOPIC, _BROKER = 2, 4  # config resources
_SET, _DELETE = 0, 1
_OF_THIS_BROKER = 2  # the source of a setting
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS, _FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class BrokerPlacement:
    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionPlacement:
    topic: str
    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Moving:
    """A partition that is being reassigned."""

    topic: str
    index: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def source(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.replicas if broker not in self.adding)


@dataclass(frozen=True, slots=True)
class ClusterPlacement:
    cluster_id: str
    controller: int
    brokers: dict[int, BrokerPlacement]
    partitions: dict[Key, PartitionPlacement]
    moving: dict[Key, Moving] = field(default_factory=dict)

    @property
    def racks(self) -> dict[int, str | None]:
        return {broker.id: broker.rack for broker in self.brokers.values()}

    @property
    def placed(self) -> dict[Key, tuple[int, ...]]:
        """The replicas of each partition; during a reassignment the target replicas."""
        return {
            key: self.moving[key].target if key in self.moving else one.replicas
            for key, one in self.partitions.items()
        }


def read_state(wire: WireCluster) -> ClusterPlacement:
    answer = wire.metadata(None)
    brokers = {
        one.node_id: BrokerPlacement(one.node_id, one.host, one.port, one.rack) for one in answer.brokers
    }
    partitions = {
        (topic.name, one.partition_index): PartitionPlacement(
            topic.name, one.partition_index, one.leader_id, tuple(one.replica_nodes), tuple(one.isr_nodes)
        )
        for topic in answer.topics
        if not topic.error_code
        for one in topic.partitions
    }
    return ClusterPlacement(answer.cluster_id, answer.controller_id, brokers, partitions, read_moving(wire))


def controller(wire: WireCluster) -> CommandConnection:
    """The controller as the brokers know it now. NotController, which is retriable, if there is none."""
    answer = wire.metadata()
    if answer.controller_id not in {broker.node_id for broker in answer.brokers}:
        raise NotController("the cluster has no controller at the moment")
    return wire.broker(answer.controller_id)


def read_moving(wire: WireCluster) -> dict[Key, Moving]:
    def ask() -> Message:
        request = Message(timeout_ms=_TIMEOUT_MS, topics=None)
        answer = controller(wire).request(ApiKey.LIST_PARTITION_REASSIGNMENTS, request)
        check(answer.error_code, answer.error_message)
        return answer

    return {
        (topic.name, one.partition_index): Moving(
            topic.name,
            one.partition_index,
            tuple(one.replicas),
            tuple(one.adding_replicas),
            tuple(one.removing_replicas),
        )
        for topic in wire.retry(ask).topics
        for one in topic.partitions
    }


def reassign(wire: WireCluster, wanted: Mapping[Key, Sequence[int] | None]) -> dict[Key, ApiError]:
    """Start these reassignments (None cancels one). Returns the rejected ones with the reason."""
    topics: dict[str, list[Message]] = {}
    for (topic, index), replicas in wanted.items():
        asked = Message(partition_index=index, replicas=None if replicas is None else list(replicas))
        topics.setdefault(topic, []).append(asked)
    request = Message(
        timeout_ms=_TIMEOUT_MS,
        allow_replication_factor_change=True,
        topics=[Message(name=name, partitions=partitions) for name, partitions in topics.items()],
    )

    def ask() -> Message:
        answer = controller(wire).request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
        check(answer.error_code, answer.error_message)
        return answer

    return {
        (topic.name, one.partition_index): error_for_code(one.error_code)(one.error_message)
        for topic in wire.retry(ask).responses
        for one in topic.partitions
        if one.error_code
    }


def elect(
    wire: WireCluster, partitions: Mapping[str, Sequence[int]] | None, election: int
) -> dict[Key, ApiError | None]:
    """The result for each partition; for all partitions (None) only those whose leader had to change are
    reported.
    """
    asked = None
    if partitions is not None:
        asked = [Message(topic=name, partitions=list(indexes)) for name, indexes in partitions.items()]
    request = Message(election_type=election, topic_partitions=asked, timeout_ms=_TIMEOUT_MS)

    def ask() -> Message:
        answer = controller(wire).request(ApiKey.ELECT_LEADERS, request)
        check(getattr(answer, "error_code", 0))
        return answer

    return {
        (topic.topic, one.partition_id): error_for_code(one.error_code)(one.error_message)
        if one.error_code
        else None
        for topic in wire.retry(ask).replica_election_results
        for one in topic.partition_result
    }


def read_sizes(wire: WireCluster, keys: Iterable[Key] | None = None) -> dict[tuple[Key, int], int]:
    """The bytes of each live replica, by partition and broker."""
    topics: dict[str, list[int]] | None = None
    if keys is not None:
        topics = {}
        for topic, index in keys:
            topics.setdefault(topic, []).append(index)
    asked = None if topics is None else [Message(topic=name, partitions=one) for name, one in topics.items()]
    found: dict[tuple[Key, int], int] = {}
    for node in sorted(one.node_id for one in wire.metadata().brokers):
        answer = wire.broker(node).request(ApiKey.DESCRIBE_LOG_DIRS, Message(topics=asked))
        for directory in answer.results:
            for topic in directory.topics:
                for one in topic.partitions:
                    if not one.is_future_key:
                        found[(topic.name, one.partition_index), node] = one.partition_size
    return found


# The throttle: a rate on every broker that takes part, and the replicas it is for on every topic


def set_throttle(wire: WireCluster, moves: Sequence[Move], brokers: Iterable[int], rate: int) -> None:
    resources = []
    for topic in sorted({move.topic for move in moves}):
        copied = [move for move in moves if move.topic == topic and move.adding]
        leaders = [f"{move.partition}:{broker}" for move in copied for broker in move.old]
        followers = [f"{move.partition}:{broker}" for move in copied for broker in move.adding]
        if copied:
            values = {_LEADERS: ",".join(leaders), _FOLLOWERS: ",".join(followers)}
            resources.append(_resource(_TOPIC, topic, values))
    _alter(wire, resources)
    _alter_brokers(wire, brokers, str(rate))


def is_throttled(wire: WireCluster, state: ClusterPlacement) -> bool:
    """Whether a throttle, set by us or by Kafka's tool, is active on any broker."""
    for broker in state.brokers:
        asked = Message(resource_type=_BROKER, resource_name=str(broker), configuration_keys=list(_RATES))
        answer = wire.broker(broker).request(ApiKey.DESCRIBE_CONFIGS, Message(resources=[asked]))
        if any(one.config_source == _OF_THIS_BROKER for found in answer.results for one in found.configs):
            return True
    return False


def lift_throttle(wire: WireCluster, brokers: Iterable[int], topics: Iterable[str]) -> None:
    _alter_brokers(wire, brokers, None)
    _alter(wire, [_resource(_TOPIC, topic, dict.fromkeys((_LEADERS, _FOLLOWERS))) for topic in topics])


def _alter_brokers(wire: WireCluster, brokers: Iterable[int], rate: str | None) -> None:
    for broker in brokers:
        _alter(wire, [_resource(_BROKER, str(broker), dict.fromkeys(_RATES, rate))], broker)


def _resource(kind: int, name: str, values: Mapping[str, str | None]) -> Message:
    return Message(
        resource_type=kind,
        resource_name=name,
        configs=[
            Message(name=key, config_operation=_DELETE if value is None else _SET, value=value)
            for key, value in values.items()
        ],
    )


def _alter(wire: WireCluster, resources: list[Message], broker: int | None = None) -> None:
    """A broker's own settings are changed on that broker."""

    def ask() -> None:
        connection = controller(wire) if broker is None else wire.broker(broker)
        answer = connection.request(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, Message(resources=resources, validate_only=False)
        )
        for one in answer.responses:
            check(one.error_code, one.error_message)

    if resources:
        wire.retry(ask)
