"""The topics that a flow reads and writes."""

from __future__ import annotations

from penstock.pipelines.plans.expressions import Expression
from penstock.pipelines.plans.fingerprint import PlanNode
from penstock.pipelines.plans.topics import topics_read, topics_written


def literal(value: str) -> Expression:
    return Expression("Literal", {"value": value})


def project(expression: Expression) -> PlanNode:
    return PlanNode(
        "Project", "", detail={"projectList": (Expression("Alias", {"name": "topic"}, (expression,)),)}
    )


def test_topics_of_sources():
    def source(format_: str, **options: str) -> PlanNode:
        return PlanNode("StreamingRelationV2", "", True, source=(format_, options))

    plan = PlanNode(
        "Union",
        "",
        children=(
            source("penstock", Subscribe="b, a,"),
            source("kafka", assign='{"c": [0, 1]}'),
            source("kafka", assign="no JSON"),
            source("penstock", subscribePattern="d.*"),
            source("rate", subscribe="x"),
        ),
    )
    assert topics_read(plan) == ("b", "a", "c", "d.*")


def test_topics_of_a_sink_are_its_option_or_the_constants_of_a_column():
    case = Expression(
        "CaseWhen",
        {},
        (
            Expression("EqualTo", {}, (literal("no"), literal("no"))),
            literal("dead"),
            Expression("IsNull"),
            Expression("Cast", {}, (literal("late"),)),
            Expression("If", {}, (literal("no"), literal("a"), literal("dead"))),
        ),
    )
    assert topics_written(project(case), "penstock", {}) == ("dead", "late", "a")
    assert topics_written(project(case), "penstock", {"Topic": "t"}) == ("t",)
    assert topics_written(project(Expression("AttributeReference")), "kafka", {}) == ()
    assert topics_written(project(case), "delta", {"topic": "t"}) == ()
