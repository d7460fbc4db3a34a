"""What a change of the files means for each flow is decided from prints alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.pipelines.plans.changes import Action, Change, plan_changes, rebuilt_together
from penstock.pipelines.plans.dependencies import Kept, Part
from penstock.pipelines.plans.fingerprint import (
    FlowPrint,
    PlanNode,
    normal,
    plan_hash,
    runs_python,
    source_identity,
    sources_by_cluster,
    sources_of,
    state_of,
)

RAW = FlowPrint("raw", "streaming table", ("penstock(subscribe=a)",), (), ("v string",), "p1")
KEY, FILTER, COUNT = (
    Part("a grouping key", "k", "1"),
    Part("a filter", "(v > 1)", "2"),
    Part("an aggregate", "count(1)", "3"),
)
COUNTS = FlowPrint(
    "counts",
    "streaming table",
    ("parquet(path=raw)",),
    ("Aggregate [k]",),
    ("n bigint",),
    "p2",
    reads=("raw",),
    query="q2",
    lineage=(Kept("Aggregate", (FILTER, KEY, COUNT)),),
)
ALERTS = FlowPrint(
    "alerts", "sink", ("parquet(path=counts)",), (), ("value string",), "p3", reads=("counts",)
)
TOTALS = FlowPrint("totals", "materialized view", (), (), ("n bigint",), "p4", looks_up=("counts",))
ALL = {"raw": RAW, "counts": COUNTS, "alerts": ALERTS, "totals": TOTALS}


def actions(changes: list[Change]) -> dict[str, str]:
    return {change.flow: str(change.action) for change in changes}


def reasons(changes: list[Change], flow: str) -> str:
    return "; ".join(next(change for change in changes if change.flow == flow).reasons)


def test_a_first_run_starts_everything():
    assert set(actions(plan_changes({}, ALL)).values()) == {"start"}


def test_nothing_is_touched_when_nothing_changed():
    assert set(actions(plan_changes(ALL, ALL)).values()) == {"keep"}


def test_a_stateless_query_that_changed_goes_on_from_its_checkpoint():
    changes = plan_changes(ALL, ALL | {"raw": replace(RAW, plan="other", columns=("v string", "w int"))})
    assert actions(changes) == {"raw": "restart", "counts": "keep", "alerts": "keep", "totals": "keep"}
    assert "it has no state" in reasons(changes, "raw")
    assert "w int" in reasons(changes, "raw")


def built_from(*parts: Part, operator: str = "Aggregate") -> FlowPrint:
    return replace(COUNTS, query="other", lineage=(Kept(operator, parts),))


@pytest.mark.promise(
    "pipelines",
    "A change after the stateful operator, such as HAVING, rebuilds the table, whose rows come from the "
    "previous query, unless the change says to keep them",
)
def test_a_change_above_the_state_rebuilds_the_table_unless_its_rows_are_to_be_kept():
    above = ALL | {"counts": replace(COUNTS, query="other")}
    changes = plan_changes(ALL, above)
    assert actions(changes) == {"raw": "keep", "counts": "rebuild", "alerts": "rebuild", "totals": "keep"}
    why = "its query changed, and the rows that are in its table were written by the query before"
    assert reasons(changes, "counts") == why
    changes = plan_changes(ALL, above, keep=["counts"])
    assert actions(changes) == {"raw": "keep", "counts": "restart", "alerts": "keep", "totals": "keep"}
    assert (
        reasons(changes, "counts") == f"its state, and the rows that it wrote, are kept as asked for; {why}"
    )
    # A sink has no rows that could be replaced.
    to_sink = replace(COUNTS, kind="sink")
    changes = plan_changes({"counts": to_sink}, {"counts": replace(to_sink, query="other")})
    assert actions(changes)["counts"] == "restart"
    assert "its state fits; rows that were written before stay as they are" in reasons(changes, "counts")


def test_only_state_that_can_be_used_is_kept():
    other_key = ALL | {"counts": built_from(FILTER, Part("a grouping key", "j", "9"), COUNT)}
    assert actions(plan_changes(ALL, other_key, keep=["counts"]))["counts"] == "rebuild"
    other_filter = ALL | {"counts": built_from(Part("a filter", "(v > 9)", "9"), KEY, COUNT)}
    assert actions(plan_changes(ALL, other_filter, keep=["counts"]))["counts"] == "restart"
    # A table that is emptied takes what feeds it and reads it with it, kept or not.
    first = ALL | {
        "raw": replace(RAW, sources=("penstock(subscribe=b)",)),
        "counts": replace(COUNTS, query="o"),
    }
    assert actions(plan_changes(ALL, first, keep=["counts"]))["counts"] == "rebuild"


def test_where_tables_are_what_their_queries_give_they_are_rebuilt_without_state_too():
    changed = ALL | {"raw": replace(RAW, plan="other")}
    assert actions(plan_changes(ALL, changed, whole_tables=True))["raw"] == "rebuild"
    assert actions(plan_changes(ALL, changed, whole_tables=True, keep=["raw"]))["raw"] == "restart"
    assert actions(plan_changes(ALL, ALL, whole_tables=True))["raw"] == "keep"


@pytest.mark.promise(
    "pipelines",
    "A change that fits the state is applied immediately; any other change stays pending until it is "
    "applied, while the old version keeps running",
)
def test_other_grouping_keys_rebuild_the_flow_and_all_that_reads_its_table():
    changes = plan_changes(ALL, ALL | {"counts": built_from(FILTER, Part("a grouping key", "j", "9"), COUNT)})
    assert actions(changes) == {"raw": "keep", "counts": "rebuild", "alerts": "rebuild", "totals": "keep"}
    assert (
        reasons(changes, "counts")
        == "its state was built from something else: a grouping key changed from k to j"
    )
    assert (
        reasons(changes, "alerts") == "'counts', which it reads, is rebuilt; its sink gets the records again"
    )


@pytest.mark.promise("pipelines", "The plan of a rebuild shows what changed before the stateful operator")
@pytest.mark.parametrize(
    "now, said",
    [
        pytest.param(built_from(KEY, COUNT), "a filter was removed: (v > 1)", id="a filter that is gone"),
        pytest.param(
            built_from(FILTER, Part("a filter", "(v < 9)", "9"), KEY, COUNT),
            "a filter is new: (v < 9)",
            id="one more filter",
        ),
        pytest.param(
            built_from(FILTER, COUNT, KEY), "the order or number of aggregates changed: count(1)", id="order"
        ),
        pytest.param(
            built_from(FILTER, KEY, replace(COUNT, digest="9")),
            "an aggregate changed: count(1)",
            id="what looks the same and is not",
        ),
        pytest.param(
            built_from(FILTER, KEY, COUNT, operator="Deduplicate"),
            "it kept the state of Aggregate, and now keeps that of Deduplicate",
            id="another operator",
        ),
    ],
)  # fmt: skip
def test_a_rebuild_says_what_the_state_was_built_from_and_is_not_now(now: FlowPrint, said: str):
    changes = plan_changes(ALL, ALL | {"counts": now})
    assert actions(changes)["counts"] == "rebuild"
    assert reasons(changes, "counts") == f"its state was built from something else: {said}"


@pytest.mark.promise("pipelines", "An unchanged query keeps its state, whatever is random in its plan")
def test_a_query_that_is_the_same_keeps_its_state_however_its_plan_is_made():
    planned_otherwise = replace(built_from(KEY, FILTER, COUNT), query="q2")
    assert actions(plan_changes(ALL, ALL | {"counts": planned_otherwise}))["counts"] == "keep"


@pytest.mark.promise(
    "pipelines", "State that an earlier version recorded is used only for an unchanged query"
)
def test_what_an_earlier_version_recorded_is_trusted_only_for_a_query_that_has_not_changed():
    earlier = COUNTS.to_json()
    del earlier["lineage"], earlier["query"]
    then = ALL | {"counts": FlowPrint.from_json(earlier)}
    assert actions(plan_changes(then, ALL))["counts"] == "keep"
    for change in ({"plan": "other"}, {"code": "other"}, {"conf": (("a", "b"),)}):
        changes = plan_changes(then, ALL | {"counts": replace(COUNTS, **change)})
        assert actions(changes)["counts"] == "rebuild"
        assert "did not record all that its state was built from" in reasons(changes, "counts")
    # Without state there is nothing that may not fit.
    stateless = {"raw": FlowPrint.from_json({**RAW.to_json(), "lineage": None})}
    changes = plan_changes(stateless, {"raw": replace(RAW, plan="other", lineage=())})
    assert actions(changes) == {"raw": "restart"}


@pytest.mark.promise(
    "pipelines", "State that an earlier version recorded is used only for an unchanged query"
)
def test_a_print_that_cannot_be_read_is_trusted_by_flows_without_state_alone():
    unknown = FlowPrint("", "", (), (), (), "")
    changes = plan_changes({"counts": unknown, "raw": unknown}, {"raw": RAW, "counts": COUNTS})
    assert actions(changes) == {"raw": "restart", "counts": "rebuild"}
    assert reasons(changes, "counts") == "it is not recorded what its state was built from"


def test_a_table_that_state_was_joined_with_and_that_has_another_query_rebuilds_the_flow():
    joined = replace(COUNTS, looks_up=("totals",), target="joined", reads=())
    old, new = {"joined": joined, "totals": TOTALS}, {"joined": joined, "totals": replace(TOTALS, plan="x")}
    changes = plan_changes(old, new)
    assert actions(changes) == {"joined": "rebuild", "totals": "restart"}
    assert reasons(changes, "joined") == "'totals', which its state has been joined with, has changed"
    stateless = replace(joined, state=(), lineage=())
    changes = plan_changes(old | {"joined": stateless}, new | {"joined": stateless})
    assert actions(changes)["joined"] == "keep"


@pytest.mark.promise(
    "pipelines",
    "A change that fits the state is applied immediately; any other change stays pending until it is "
    "applied, while the old version keeps running",
)
def test_another_topic_rebuilds_the_whole_chain():
    changes = plan_changes(ALL, ALL | {"raw": replace(RAW, sources=("penstock(subscribe=b)",))})
    assert actions(changes) == {"raw": "rebuild", "counts": "rebuild", "alerts": "rebuild", "totals": "keep"}
    assert "from penstock(subscribe=a) to penstock(subscribe=b)" in reasons(changes, "raw")


def test_a_table_that_cannot_hold_the_new_columns_is_rebuilt_with_all_flows_into_it():
    one = replace(RAW, shared=True)
    two = replace(RAW, shared=True, plan="p9")
    changes = plan_changes(
        {"one": one, "two": two}, {"one": one, "two": two}, replaced_tables={"raw": "v is int now"}
    )
    assert actions(changes) == {"one": "rebuild", "two": "rebuild"}
    assert reasons(changes, "one") == "v is int now"


def test_one_flow_of_a_shared_table_takes_the_others_with_it():
    one = replace(RAW, shared=True)
    two = replace(RAW, shared=True, plan="p9")
    changes = plan_changes({"one": one, "two": two}, {"one": replace(one, sources=("x",)), "two": two})
    assert actions(changes) == {"one": "rebuild", "two": "rebuild"}
    assert "'raw', which it feeds, is rebuilt" in reasons(changes, "two")


def test_a_second_flow_into_a_table_changes_how_the_table_is_kept():
    changes = plan_changes({"one": RAW}, {"one": replace(RAW, shared=True), "two": replace(RAW, shared=True)})
    assert actions(changes) == {"one": "rebuild", "two": "rebuild"}


def test_a_new_flow_into_a_shared_table_leaves_the_others_alone():
    one, two, three = (replace(RAW, shared=True, plan=plan) for plan in "123")
    changes = plan_changes({"one": one, "two": two}, {"one": one, "two": two, "three": three})
    assert actions(changes) == {"one": "keep", "two": "keep", "three": "start"}


def test_a_flow_that_is_gone_is_stopped():
    changes = plan_changes(ALL, {"raw": RAW})
    assert actions(changes) == {"raw": "keep", "counts": "stop", "alerts": "stop", "totals": "stop"}


def test_a_materialized_view_never_needs_a_rebuild():
    changes = plan_changes(ALL, ALL | {"totals": replace(TOTALS, plan="other", columns=("m int",))})
    assert actions(changes)["totals"] == "restart"


def test_python_code_and_settings_that_changed_restart_a_flow():
    with_code = replace(RAW, code="1")
    changes = plan_changes({"raw": with_code}, {"raw": replace(with_code, code="2")})
    assert (actions(changes), reasons(changes, "raw")) == ({"raw": "restart"}, "its Python code changed")
    changes = plan_changes({"raw": RAW}, {"raw": replace(RAW, conf=(("a", "b"),))})
    assert (actions(changes), reasons(changes, "raw")) == ({"raw": "restart"}, "its settings changed")


def test_a_rebuild_can_be_asked_for_by_flow_or_table():
    for name in ("counts",):
        changes = plan_changes(ALL, ALL, rebuild=[name])
        assert actions(changes) == {"raw": "keep", "counts": "rebuild", "alerts": "rebuild", "totals": "keep"}
    assert str(changes[1]) == "rebuild counts: asked for"


def test_who_agrees_to_a_rebuild_agrees_to_what_hangs_on_it_and_to_nothing_else():
    new = ALL | {
        "counts": built_from(KEY),
        "other": replace(RAW, target="other", sources=("x",)),
    }
    old = ALL | {"other": replace(RAW, target="other")}
    changes = [change for change in plan_changes(old, new) if change.action is Action.REBUILD]
    assert {change.flow for change in changes} == {"counts", "alerts", "other"}
    assert rebuilt_together(changes, new, ["counts"]) == {"counts", "alerts"}
    assert rebuilt_together(changes, new, ["alerts"]) == {"alerts"}
    assert rebuilt_together(changes, new, []) == set()


def test_prints_survive_their_file():
    for print_ in ALL.values():
        assert FlowPrint.from_json(print_.to_json()) == print_


# -- prints from plans


def source(topic: str, **options: str) -> PlanNode:
    chosen = {"subscribe": topic, "kafka.bootstrap.servers": "b:1", **options}
    return PlanNode("StreamingRelationV2", "x", True, source=("penstock", chosen))


def test_options_that_say_how_to_read_are_not_part_of_what_is_read():
    plain = source_identity("penstock", {"subscribe": "a", "kafka.bootstrap.servers": "b:1"})
    tuned = source_identity(
        "Penstock",
        {"Subscribe": "a", "kafka.bootstrap.servers": "b:1", "maxOffsetsPerTrigger": "5",
         "kafka.group.id": "g", "startingOffsets": "earliest", "failOnDataLoss": "false",
         "dead.letter.topic": "d", "dead.letter.query": "q"},
    )  # fmt: skip
    assert plain == tuned
    assert plain != source_identity("penstock", {"subscribe": "b", "kafka.bootstrap.servers": "b:1"})


def read_from(address: str, topic: str = "a") -> PlanNode:
    return source(topic, **{"kafka.bootstrap.servers": address})


def reading(plan: PlanNode, clusters: dict[str, str] | None = None) -> FlowPrint:
    """The flow RAW with the plan's sources; `clusters` has the ids that can be asked for, by address."""
    known = clusters or {}
    by_cluster = sources_by_cluster(plan, lambda options: known.get(options["kafka.bootstrap.servers"]))
    return replace(RAW, sources=sources_of(plan), by_cluster=by_cluster)


@pytest.mark.promise(
    "pipelines", "Sources are identified by the id of their cluster, whatever the addresses of its brokers"
)
@pytest.mark.parametrize(
    "then, now, action",
    [
        pytest.param({"b:1": "X"}, {"b:1,c:1": "X"}, "keep", id="more addresses of one cluster"),
        pytest.param({"b:1": "X"}, {"b:1": "Y"}, "rebuild", id="another cluster at the same address"),
        pytest.param({"b:1": "X"}, {"c:1": "Y"}, "rebuild", id="another cluster"),
        pytest.param({"b:1": ""}, {"b:1": "X"}, "keep", id="asked for the first time"),
        pytest.param({"b:1": "X"}, {"b:1": ""}, "keep", id="away now"),
        pytest.param({"b:1": ""}, {"c:1": "X"}, "rebuild", id="only the addresses can be compared"),
        pytest.param({"b:1": "X"}, {"c:1": ""}, "rebuild", id="away now, at another address"),
    ],
)
def test_a_cluster_is_the_same_by_its_id_and_by_its_address_only_where_that_is_not_known(then, now, action):
    (old,), (new,) = then, now
    before = reading(read_from(old), {key: value for key, value in then.items() if value})
    after = reading(read_from(new), {key: value for key, value in now.items() if value})
    changes = plan_changes({"raw": before}, {"raw": after})
    assert actions(changes) == {"raw": action}
    if action == "rebuild":
        said = reasons(changes, "raw")
        assert all(each in said for each in (("X", "Y") if then[old] and now[new] else (old, new)))


def test_another_topic_of_the_same_cluster_is_another_source():
    before, after = (reading(read_from("b:1", topic), {"b:1": "X"}) for topic in ("a", "b"))
    assert actions(plan_changes({"raw": before}, {"raw": after})) == {"raw": "rebuild"}


def test_a_source_that_is_added_or_whose_place_changes_is_noticed_with_clusters_too():
    clusters = {"b:1": "X"}
    one, other = read_from("b:1"), read_from("b:1", "b")
    both = PlanNode("Union", "Union", True, children=(one, other))
    turned = PlanNode("Union", "Union", True, children=(other, one))
    changes = plan_changes({"raw": reading(one, clusters)}, {"raw": reading(both, clusters)})
    assert "subscribe=b" in reasons(changes, "raw")
    changes = plan_changes({"raw": reading(both, clusters)}, {"raw": reading(turned, clusters)})
    assert "order" in reasons(changes, "raw")


@pytest.mark.promise(
    "pipelines", "Sources are identified by the id of their cluster, whatever the addresses of its brokers"
)
def test_prints_of_older_versions_have_no_clusters_and_fit_as_they_did():
    stored = reading(read_from("b:1")).to_json()
    del stored["by_cluster"]
    then, now = FlowPrint.from_json(stored), reading(read_from("b:1"), {"b:1": "X"})
    assert then.by_cluster == ()
    assert actions(plan_changes({"raw": then}, {"raw": now})) == {"raw": "keep"}


def test_a_cluster_that_was_known_is_remembered_while_it_cannot_be_asked():
    known, away = reading(read_from("b:1"), {"b:1": "X"}), reading(read_from("b:1"))
    assert away.remembering(known) == known
    assert away.remembering(None) == away
    elsewhere = reading(read_from("c:1"))
    assert elsewhere.remembering(known) == elsewhere
    newer = reading(read_from("b:1"), {"b:1": "Y"})
    assert newer.remembering(known) == newer


def test_two_analyses_of_one_query_have_one_print():
    first = PlanNode("Filter", "~Filter (v#12L > 3)", True, children=(source("a"),))
    again = PlanNode("Filter", "~Filter (v#99L > 3)", True, children=(source("a"),))
    other = PlanNode("Filter", "~Filter (v#12L > 4)", True, children=(source("a"),))
    assert plan_hash(first) == plan_hash(again) != plan_hash(other)
    mark = "EventTimeWatermark 83bf8d08-223c-425d-a41e-f48a7e5d0ba9, t#11: timestamp, 5 seconds"
    assert normal(mark) == "EventTimeWatermark , t: timestamp, 5 seconds"


def test_a_changed_option_changes_the_plan_but_not_the_source():
    plain, tuned = source("a"), source("a", maxOffsetsPerTrigger="5")
    assert sources_of(plain) == sources_of(tuned)
    assert plan_hash(plain) != plan_hash(tuned)


def test_only_operators_over_streams_have_state():
    stream = PlanNode("Aggregate", "~Aggregate [k#1], [count(1) AS n#2L]", True, children=(source("a"),))
    batch = PlanNode("Aggregate", "Aggregate [k#1]", False, children=(PlanNode("LogicalRelation", "t"),))
    assert state_of(stream) == ("Aggregate [k], [count(1) AS n]",)
    assert state_of(batch) == ()


def test_a_join_of_two_streams_keeps_the_columns_of_both_and_one_with_a_table_keeps_nothing():
    left = replace(source("a"), output=("struct<k:int>",))
    right = replace(source("b"), output=("struct<k:int,w:int>",))
    wider = replace(right, output=("struct<k:int,w:int,x:int>",))
    static = PlanNode("LogicalRelation", "t", False, output=("struct<k:int>",))
    assert state_of(PlanNode("Join", "Join Inner", True, children=(left, static))) == ()
    both = state_of(PlanNode("Join", "Join Inner", True, children=(left, right)))
    assert both == ("Join Inner of (struct<k:int>) and (struct<k:int,w:int>)",)
    assert state_of(PlanNode("Join", "Join Inner", True, children=(left, wider))) != both


def test_python_functions_are_seen_in_a_plan():
    assert runs_python(PlanNode("Project", "Project [f(v#1)#2 AS w#3]", True, children=(source("a"),)))
    assert runs_python(PlanNode("MapInPandas", "MapInPandas", True, children=(source("a"),)))
    assert not runs_python(PlanNode("Project", "Project [upper(v#1) AS w#3]", True, children=(source("a"),)))


def test_actions_read_as_words():
    assert [str(action) for action in Action] == ["start", "keep", "restart", "rebuild", "stop"]
