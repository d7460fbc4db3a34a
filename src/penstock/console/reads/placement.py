"""Where partitions are: brokers, replicas and leaders, moves with a preview, and what moves now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.admin.cluster import Cluster
from penstock.admin.failure import CommandFailed, UnknownTopic
from penstock.admin.partitions import execution
from penstock.admin.partitions.execution import Copying
from penstock.admin.partitions.moves import Key, Move, TooFewBrokers, rebalance, vacate
from penstock.admin.partitions.state import ClusterPlacement, PartitionPlacement, read_sizes
from penstock.admin.wire_client import WireCluster, failure
from penstock.errors import ApiError, PenstockError

SHOWN = ("all", "leader not preferred", "under-replicated", "offline", "moving")


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """`up` is False for one that has replicas but is not up; `bytes` is None where sizes are not reported."""

    id: int
    address: str
    rack: str | None
    up: bool
    controller: bool
    leaders: int
    replicas: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """A preview: the moves, and how many bytes each copies (None where sizes are not reported)."""

    state: ClusterPlacement
    moves: list[Move]
    bytes: dict[Key, int] | None

    @property
    def total(self) -> int | None:
        return None if self.bytes is None else sum(self.bytes.values())

    @property
    def copies(self) -> int:
        return sum(len(move.adding) for move in self.moves)

    def bytes_of(self, move: Move) -> int | None:
        return None if self.bytes is None else self.bytes.get((move.topic, move.partition), 0)


@dataclass(frozen=True, slots=True)
class Leaders:
    """A preview of an election: partitions that another replica should lead, and can."""

    partitions: list[PartitionPlacement]

    @property
    def by_topic(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for each in self.partitions:
            found.setdefault(each.topic, []).append(each.index)
        return found


def brokers(cluster: Cluster) -> list[BrokerRow]:
    state = execution.cluster_state(cluster)
    sizes: Counter[int] | None = None
    try:
        with WireCluster(cluster) as wire:
            found = read_sizes(wire)
    except (PenstockError, CommandFailed):  # managed clusters forbid DescribeLogDirs
        pass
    else:
        sizes = Counter()
        for (_, broker), size in found.items():
            sizes[broker] += size
    leaders = Counter(one.leader for one in state.partitions.values())
    replicas = Counter(broker for one in state.partitions.values() for broker in one.replicas)
    rows = []
    for id in sorted({*state.brokers, *replicas}):
        known = state.brokers.get(id)
        rows.append(
            BrokerRow(
                id,
                f"{known.host}:{known.port}" if known else "",
                known.rack if known else None,
                known is not None,
                id == state.controller,
                leaders[id],
                replicas[id],
                None if sizes is None else sizes[id],
            )
        )
    return rows


def partitions(
    cluster: Cluster, *, text: str, shown: str, sort: str, descending: bool, first: int, count: int
) -> tuple[list[PartitionPlacement], int]:
    """Partitions of topics whose name contains `text`."""
    state = execution.cluster_state(cluster)
    lower = text.lower()

    def fits(one: PartitionPlacement) -> bool:
        return lower in one.topic.lower() and _is(one, shown, state)

    def key(one: PartitionPlacement) -> tuple[object, ...]:
        return (one.leader,) if sort == "leader" else (one.replicas,) if sort == "replicas" else ()

    found = sorted(filter(fits, state.partitions.values()), key=lambda one: (one.topic, one.index))
    found.sort(key=key, reverse=descending)
    if sort not in ("leader", "replicas") and descending:
        found.reverse()
    return found[first : first + count], len(found)


def _is(one: PartitionPlacement, shown: str, state: ClusterPlacement) -> bool:
    if shown == "leader not preferred":
        return bool(one.replicas) and one.leader != one.replicas[0]
    if shown == "under-replicated":
        return len(one.isr) < len(one.replicas)
    if shown == "offline":
        return one.leader < 0
    return shown != "moving" or (one.topic, one.index) in state.moving


# Previews


def plan_rebalance(cluster: Cluster, topic: str = "") -> Plan:
    """Balanced replicas and leaders, of all topics or of one."""
    state = execution.cluster_state(cluster)
    if topic:
        _check_topic(state, topic)
    placed = {key: one for key, one in state.placed.items() if not topic or key[0] == topic}
    return _plan(cluster, state, rebalance(placed, state.racks))


def plan_vacate(cluster: Cluster, broker: int) -> Plan:
    """A broker without replicas."""
    state = execution.cluster_state(cluster)
    try:
        return _plan(cluster, state, vacate(state.placed, state.racks, broker))
    except TooFewBrokers as error:
        raise CommandFailed(f"cannot empty broker {broker}: {error}. Add a broker first.") from None


def plan_move(cluster: Cluster, topic: str, partition: int, text: str) -> Plan:
    """One partition on the brokers that `text` lists, such as 1,2,3."""
    state = execution.cluster_state(cluster)
    _check_topic(state, topic)
    if (topic, partition) not in state.partitions:
        raise CommandFailed(f"topic '{topic}' has no partition {partition}.")
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise CommandFailed(f"'{text}' is not a list of brokers such as 1,2,3.")
    target = tuple(map(int, words))
    unknown = [broker for broker in target if broker not in state.brokers]
    if unknown:
        known = ", ".join(map(str, sorted(state.brokers)))
        raise CommandFailed(f"broker {unknown[0]} is not up: the cluster has {known}.")
    return _plan(cluster, state, execution.requested_moves(state, {(topic, partition): target}))


def _plan(cluster: Cluster, state: ClusterPlacement, moves: list[Move]) -> Plan:
    return Plan(state, moves, execution.copied_bytes(cluster, state, moves))


def _check_topic(state: ClusterPlacement, topic: str) -> None:
    known = {name for name, _ in state.partitions}
    if topic not in known:
        raise UnknownTopic(topic, known)


def plan_election(cluster: Cluster) -> Leaders:
    """Partitions whose preferred replica is in sync and does not lead."""
    state = execution.cluster_state(cluster)
    return Leaders(
        [
            one
            for _, one in sorted(state.partitions.items())
            if one.replicas and one.leader != one.replicas[0] and one.replicas[0] in one.isr
        ]
    )


# Changes


def start(cluster: Cluster, plan: Plan, throttle: int | None) -> None:
    """Carry out a previewed plan; it is not computed again."""
    doing = "cannot move partitions"
    _raise_first(
        execution.asking(lambda: execution.begin(cluster, plan.state, plan.moves, throttle), doing), doing
    )


def under_way(cluster: Cluster) -> list[Copying]:
    return execution.copying(cluster)


def lift_throttle_if_idle(cluster: Cluster) -> bool:
    return execution.lift_if_idle(cluster)


def cancel(cluster: Cluster, keys: Sequence[Key]) -> None:
    _raise_first(execution.cancel(cluster, keys), "cannot cancel the reassignments")


def throttle(cluster: Cluster, rate: int) -> None:
    execution.change_throttle(cluster, rate)


def elect(cluster: Cluster, leaders: Leaders) -> int:
    """Returns the number of partitions with another leader."""
    results = execution.elect(cluster, leaders.by_topic)
    _raise_first(results.failed, "cannot elect leaders")
    return len(results.elected)


def _raise_first(refused: dict[Key, ApiError], doing: str) -> None:
    for (topic, index), error in sorted(refused.items()):
        raise failure(error, f"{doing} ({topic}-{index}; {len(refused)} in all)")
