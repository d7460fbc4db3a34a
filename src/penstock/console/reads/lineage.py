"""How records flow: topics, SQL queries, flows, connectors, tables and groups as one graph with rates.

Pure but for `connector_topics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import quote

from penstock.admin.connect_worker import ConnectWorker
from penstock.admin.failure import CommandFailed
from penstock.console.reads.connectors import Connector, list_connectors
from penstock.console.reads.streaming import SQL, StreamingQuery, Streams

MOST_NODES = 150
"""More than that nobody can read: the filter shows the others."""
_AT_ONCE = 8
_SWEEPS = 4


class Kind(StrEnum):
    TOPIC = "topic"
    QUERY = "SQL query"
    FLOW = "flow"
    CONNECTOR = "connector"
    TABLE = "table"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Node:
    kind: Kind
    name: str
    owner: str = ""
    """The pipeline of a flow or table."""
    failed: bool = False

    @property
    def key(self) -> tuple[Kind, str, str]:
        return (self.kind, self.owner, self.name)


Key = tuple[Kind, str, str]


@dataclass(frozen=True, slots=True)
class Edge:
    source: Key
    target: Key
    rate: float | None = None
    """Records a second; None where it is not known."""


@dataclass(frozen=True, slots=True)
class Lineage:
    nodes: dict[Key, Node] = field(default_factory=dict)
    edges: tuple[Edge, ...] = ()
    left_out: int = 0

    def neighbours(self) -> dict[Key, set[Key]]:
        found: dict[Key, set[Key]] = {key: set() for key in self.nodes}
        for edge in self.edges:
            found[edge.source].add(edge.target)
            found[edge.target].add(edge.source)
        return found


@dataclass(frozen=True, slots=True)
class ConnectorTopics:
    connector: Connector
    topics: tuple[str, ...]


def connector_topics(worker: ConnectWorker | None) -> list[ConnectorTopics]:
    """The connectors with the topics that each has used, as its worker has noted them; none without one."""
    if worker is None:
        return []

    def topics(each: Connector) -> ConnectorTopics:
        try:
            found = worker.ask("GET", f"/connectors/{quote(each.name, safe='')}/topics")
            return ConnectorTopics(each, tuple(found.get(each.name, {}).get("topics", ())))
        except CommandFailed:  # a worker may be set to note none
            return ConnectorTopics(each, ())

    connectors = list_connectors(worker)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(topics, connectors))


def lineage(
    streams: Streams | None,
    connectors: Sequence[ConnectorTopics],
    groups: Iterable[tuple[str, str]],
    written: Callable[[str], float | None],
    consumed: Callable[[str, str], float | None],
) -> Lineage:
    """`groups` are the groups with the topics that they have consumed. `written` is the rate of a topic,
    `consumed` that of a group in one.
    """
    graph = _Graph(written, consumed)
    for query in streams.queries.values() if streams is not None else ():
        graph.query(query)
    for each in connectors:
        graph.connector(each)
    for group, topic in groups:
        graph.group(group, topic)
    return graph.done()


class _Graph:
    def __init__(
        self, written: Callable[[str], float | None], consumed: Callable[[str, str], float | None]
    ) -> None:
        self._written, self._consumed = written, consumed
        self._nodes: dict[Key, Node] = {}
        self._edges: dict[tuple[Key, Key], float | None] = {}
        self._taken: set[str] = set()
        """Groups that are queries', flows' and connectors' own."""

    def _node(self, kind: Kind, name: str, owner: str = "", *, failed: bool = False) -> Key:
        node = Node(kind, name, owner, failed)
        self._nodes.setdefault(node.key, node)
        return node.key

    def _reads(self, topic: str, reader: Key, rate: float | None) -> None:
        self._edges[self._node(Kind.TOPIC, topic), reader] = rate

    def _writes(self, writer: Key, topic: str) -> None:
        self._edges[writer, self._node(Kind.TOPIC, topic)] = None  # see `done`

    def query(self, query: StreamingQuery) -> None:
        owner = query.owner
        kind = Kind.QUERY if owner == SQL else Kind.FLOW
        mine = self._node(kind, query.name, "" if owner == SQL else owner, failed=query.failed)
        self._taken.update(query.groups)
        for topic in query.reads:
            rates = [self._consumed(group, topic) for group in query.groups]
            rate = next((each for each in rates if each is not None), None)
            if rate is None and len(query.reads) == 1:
                rate = query.input_rate
            self._reads(topic, mine, rate)
        table_owner = "" if owner == SQL else owner
        for table in query.tables:
            self._edges[self._node(Kind.TABLE, table, table_owner), mine] = None
        for topic in query.writes:
            self._writes(mine, topic)
        if query.target:
            self._edges[mine, self._node(Kind.TABLE, query.target, table_owner)] = None

    def connector(self, each: ConnectorTopics) -> None:
        connector = each.connector
        mine = self._node(Kind.CONNECTOR, connector.name, failed=connector.failed)
        group = connector.config.get("consumer.override.group.id") or f"connect-{connector.name}"
        if connector.kind == "sink":
            self._taken.add(group)
        for topic in each.topics:
            if connector.kind == "sink":
                self._reads(topic, mine, self._consumed(group, topic))
            else:
                self._writes(mine, topic)

    def group(self, group: str, topic: str) -> None:
        if group not in self._taken and not topic.startswith("__"):
            self._reads(topic, self._node(Kind.GROUP, group), self._consumed(group, topic))

    def done(self) -> Lineage:
        writers: dict[Key, int] = {}
        for _, target in self._edges:
            if target[0] is Kind.TOPIC:
                writers[target] = writers.get(target, 0) + 1
        edges = []
        for (source, target), rate in self._edges.items():
            if target[0] is Kind.TOPIC and writers[target] == 1:  # of several, nobody knows who wrote what
                rate = self._written(target[2])
            edges.append(Edge(source, target, rate))
        return Lineage(self._nodes, tuple(edges))


def around(whole: Lineage, text: str) -> Lineage:
    """What is connected with the nodes whose names contain the text; at most MOST_NODES."""
    wanted = [key for key, node in whole.nodes.items() if text.lower() in f"{node.name} {node.owner}".lower()]
    neighbours = whole.neighbours()
    chosen: dict[Key, None] = {}
    waiting = sorted(wanted, key=lambda key: (-len(neighbours[key]), key))
    seen = set(waiting)
    total = 0
    while waiting:
        key = waiting.pop(0)
        total += 1
        if len(chosen) < MOST_NODES:
            chosen[key] = None
        for other in sorted(neighbours[key] - seen):
            seen.add(other)
            waiting.append(other)
    edges = tuple(each for each in whole.edges if each.source in chosen and each.target in chosen)
    return Lineage(
        {key: whole.nodes[key] for key in whole.nodes if key in chosen}, edges, total - len(chosen)
    )


def placed(graph: Lineage) -> dict[Key, tuple[int, float]]:
    """The column of each node and its place in it: what a node reads stands left of it."""
    column = _columns(graph)
    columns: dict[int, list[Key]] = {}
    for key in sorted(graph.nodes):
        columns.setdefault(column[key], []).append(key)
    neighbours = graph.neighbours()
    place = {key: float(at) for keys in columns.values() for at, key in enumerate(keys)}
    for sweep in range(_SWEEPS):  # each to the mean place of its neighbours, so that few edges cross
        for number in sorted(columns, reverse=bool(sweep % 2)):
            keys = columns[number]
            middle = {
                key: sum(place[each] for each in neighbours[key]) / len(neighbours[key])
                if neighbours[key]
                else place[key]
                for key in keys
            }
            keys.sort(key=lambda key: (middle[key], key))
            place.update((key, float(at)) for at, key in enumerate(keys))
    tallest = max((len(keys) for keys in columns.values()), default=0)
    return {
        key: (number, at + (tallest - len(keys)) / 2)
        for number, keys in columns.items()
        for at, key in enumerate(keys)
    }


def _columns(graph: Lineage) -> Mapping[Key, int]:
    """The longest way from a node that reads nothing. Edges that close a circle do not count."""
    after: dict[Key, list[Key]] = {key: [] for key in graph.nodes}
    for edge in graph.edges:
        after[edge.source].append(edge.target)
    state: dict[Key, int] = {}
    order: list[Key] = []
    forward: set[tuple[Key, Key]] = set()
    for first in sorted(graph.nodes):
        if first in state:
            continue
        state[first] = 1
        stack = [(first, iter(sorted(after[first])))]
        while stack:
            key, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                state[key] = 2
                order.append(key)
                stack.pop()
            elif state.get(target) != 1:  # not on the way that leads here: no circle
                forward.add((key, target))
                if target not in state:
                    state[target] = 1
                    stack.append((target, iter(sorted(after[target]))))
    column = dict.fromkeys(graph.nodes, 0)
    for key in reversed(order):
        for target in after[key]:
            if (key, target) in forward:
                column[target] = max(column[target], column[key] + 1)
    return column
