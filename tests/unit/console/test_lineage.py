"""The graph of what reads and writes what."""

from __future__ import annotations

from penstock.console.reads.connectors import Connector
from penstock.console.reads.lineage import (
    MOST_NODES,
    ConnectorTopics,
    Edge,
    Kind,
    Lineage,
    Node,
    around,
    lineage,
    placed,
)
from penstock.console.reads.streaming import SQL, StreamingQuery, Streams


def connector(name: str, kind: str, state: str = "RUNNING") -> Connector:
    return Connector(name, kind, "", state, "", "", (), {})


def sample() -> Streams:
    queries = [
        StreamingQuery(SQL, "q1", "RUNNING", reads=("orders",), writes=("big",), groups=("penstock-q1",)),
        StreamingQuery(SQL, "q2", "FAILED", "x", reads=("big", "orders"), target="/tables/t", groups=("g2",)),
        StreamingQuery(
            "shop", "f", "running", reads=("big",), writes=("alerts",), tables=("names",), input_rate=7.0
        ),
        StreamingQuery(
            "shop", "g", "running", reads=("big",), writes=("alerts",), groups=("penstock-shop.g",)
        ),
    ]
    return Streams(0.0, {each.key: each for each in queries})


def whole() -> Lineage:
    consumed = {("penstock-q1", "orders"): 30.0, ("app", "alerts"): 2.0, ("connect-out", "alerts"): 1.0}
    return lineage(
        sample(),
        [
            ConnectorTopics(connector("in", "source"), ("orders",)),
            ConnectorTopics(connector("out", "sink", "FAILED"), ("alerts",)),
        ],
        [
            ("penstock-q1", "orders"),
            ("connect-out", "alerts"),
            ("app", "alerts"),
            ("app", "__consumer_offsets"),
        ],
        {"orders": 31.0, "big": 11.0, "alerts": 5.0}.get,
        lambda group, topic: consumed.get((group, topic)),
    )


def test_edges_have_the_rates_that_are_known():
    rates = {(edge.source[2], edge.target[2]): edge.rate for edge in whole().edges}
    assert rates == {
        ("in", "orders"): 31.0,
        ("orders", "q1"): 30.0,
        ("q1", "big"): 11.0,
        ("orders", "q2"): None,
        ("big", "q2"): None,
        ("q2", "/tables/t"): None,
        ("big", "f"): 7.0,
        ("names", "f"): None,
        ("big", "g"): None,
        ("f", "alerts"): None,  # two write there
        ("g", "alerts"): None,
        ("alerts", "out"): 1.0,
        ("alerts", "app"): 2.0,
    }


def test_groups_of_queries_and_connectors_are_no_nodes_of_their_own():
    nodes = whole().nodes
    assert [name for kind, _, name in nodes if kind is Kind.GROUP] == ["app"]
    assert nodes[Kind.QUERY, "", "q2"].failed and nodes[Kind.CONNECTOR, "", "out"].failed


def test_what_is_read_stands_left_of_who_reads_it_also_in_a_circle():
    columns = {key[2]: column for key, (column, _) in placed(whole()).items()}
    assert [columns[name] for name in ("in", "orders", "q1", "big", "q2", "/tables/t")] == [0, 1, 2, 3, 4, 5]
    assert columns["names"] == 0 and columns["alerts"] == columns["g"] + 1 == columns["app"] - 1
    nodes = [Node(Kind.TOPIC, "a"), Node(Kind.QUERY, "x"), Node(Kind.TOPIC, "b"), Node(Kind.QUERY, "y")]
    keys = [each.key for each in nodes]
    circle = tuple(Edge(keys[at], keys[(at + 1) % 4]) for at in range(4))
    assert sorted(column for column, _ in placed(Lineage({n.key: n for n in nodes}, circle)).values()) == [
        0,
        1,
        2,
        3,
    ]


def test_no_two_nodes_have_one_place():
    places = list(placed(whole()).values())
    assert len(set(places)) == len(places)


def test_the_filter_shows_what_is_connected_and_says_what_is_left_out():
    nodes = [Node(Kind.TOPIC, f"t{n}") for n in range(MOST_NODES + 10)] + [Node(Kind.GROUP, "alone")]
    keys = [each.key for each in nodes]
    edges = tuple(Edge(keys[0], each) for each in keys[1:-1])
    graph = Lineage({each.key: each for each in nodes}, edges)
    assert [key[2] for key in around(graph, "alon").nodes] == ["alone"]
    found = around(graph, "t0")
    assert len(found.nodes) == MOST_NODES and found.left_out == 10
    assert all(edge.target in found.nodes for edge in found.edges)
    assert around(graph, "nothing").nodes == {}
