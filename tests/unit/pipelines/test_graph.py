"""Definitions that contradict each other are refused, each with both places."""

from __future__ import annotations

import pytest

from penstock.pipelines.errors import BadDefinition, Where
from penstock.pipelines.project.graph import Dataset, FlowDefinition, Graph, Kind, split_name


def where(line: int) -> Where:
    return Where("a.py", line)


def graph() -> Graph:
    return Graph("spark_catalog", "default")


def add_table(into: Graph, name: str, line: int = 1, kind: Kind = Kind.STREAMING_TABLE) -> None:
    into.add_dataset(Dataset(into.qualify(name), kind, where(line)))


def add_flow(into: Graph, name: str, target: str, line: int = 1) -> None:
    into.add_flow(FlowDefinition(name, into.qualify(target), where(line), select="SELECT 1"))


def test_names_are_compared_as_spark_compares_them():
    assert split_name("`My.Table`") == ("my.table",)
    assert split_name("Db.T") == ("db", "t")
    assert graph().qualify("T") == ("spark_catalog", "default", "t")
    assert graph().short(("spark_catalog", "default", "t")) == "t"
    assert graph().short(("spark_catalog", "other", "t")) == "spark_catalog.other.t"


def test_a_table_that_is_defined_twice_is_named_with_both_places():
    into = graph()
    add_table(into, "t", 3)
    with pytest.raises(BadDefinition, match=r"a.py:9: streaming table 't' is defined at a.py:3 already"):
        add_table(into, "T", 9)


def test_a_flow_that_is_defined_twice_is_named_with_both_places():
    into = graph()
    add_flow(into, "f", "t", 3)
    with pytest.raises(BadDefinition, match=r"a.py:9: flow 'f' is defined already at a.py:3"):
        add_flow(into, "f", "t", 9)


def test_a_flow_into_nothing_is_refused():
    into = graph()
    add_flow(into, "f", "t", 4)
    with pytest.raises(BadDefinition, match=r"a.py:4: flow 'f' goes into 't', which is not defined"):
        into.check()


def test_a_table_that_nothing_feeds_is_refused():
    into = graph()
    add_table(into, "t", 5)
    with pytest.raises(BadDefinition, match=r"a.py:5: streaming table 't' has no flow"):
        into.check()


def test_a_materialized_view_has_one_flow():
    into = graph()
    add_table(into, "m", 5, Kind.MATERIALIZED_VIEW)
    add_flow(into, "m", "m")
    into.check()
    add_flow(into, "other", "m")
    with pytest.raises(BadDefinition, match="has 2 flows, and must have exactly one"):
        into.check()


def test_a_project_without_flows_is_refused():
    with pytest.raises(BadDefinition, match="defines no flow"):
        graph().check()


def test_flows_find_sinks_by_their_short_name():
    into = graph()
    into.add_dataset(Dataset(("out",), Kind.SINK, where(1), format="penstock"))
    add_flow(into, "f", "out")
    into.resolve_targets()
    into.check()
    assert into.flows["f"].target == ("out",)
