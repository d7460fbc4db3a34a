"""The catalog: what records make of it, and what statements may do to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.sql.catalog import catalog as plans
from penstock.sql.catalog.catalog import Catalog, Function, QueryDef, Record, Relation
from penstock.sql.errors import Clash, Exists, Unknown
from penstock.sql.language.statements import Column

ORDERS = Relation(
    "orders", "stream", "orders", (Column("id", "INT", True), Column("item", "STRING")), ("id",)
)
COUNTS = Relation("Counts", "table", "counts", (Column("n", "BIGINT"),), ("n",), made_by="ctas_counts_1")
DOUBLE = Function("double", (Column("x", "INT"),), "INT", "return x * 2")
QUERY = QueryDef(
    "ctas_counts_1", "ctas", "CREATE TABLE …", COUNTS, {"o": ORDERS}, (DOUBLE,), mode="update", uid="abc"
)


def image(*records: Record) -> Catalog:
    """Folded from what is read back from the topic."""
    read = [Record.decode(*record.encode()) for record in records]
    return Catalog().fold([record for record in read if record is not None])


def with_query() -> Catalog:
    return image(
        plans.relation_record(ORDERS),
        plans.relation_record(COUNTS),
        plans.query_record(QUERY),
        Record("function/double", DOUBLE.to_json()),
    )


def test_what_is_written_is_what_is_read_back() -> None:
    found = with_query()
    assert found.relation("ORDERS") == ORDERS
    assert found.relation("counts") == COUNTS
    assert found.queries["ctas_counts_1"] == QUERY
    assert found.function("Double") == DOUBLE


def test_a_record_without_a_value_deletes() -> None:
    found = with_query().fold([plans.gone("relation", "COUNTS"), plans.gone("query", "ctas_counts_1")])
    assert found.relation("counts") is None
    assert not found.queries
    assert with_query().relation("counts") is not None


def test_records_of_a_newer_version_are_passed_over() -> None:
    newer = {**ORDERS.to_json(), "colour": "blue"}
    found = image(Record("relation/orders", newer), Record("sequence/x", {"a": 1}))
    assert found.relation("orders") == ORDERS


@pytest.mark.parametrize(
    "data", [(None, b"{}"), (b"relation/x", b"[1]"), (b"relation/x", b"{"), (b"\xff", b"{}")]
)
def test_what_is_no_record_is_told_apart(data: tuple[bytes | None, bytes | None]) -> None:
    assert Record.decode(*data) is None


def test_no_two_queries_have_had_the_same_id() -> None:
    found = Catalog()
    ids = []
    for name in ("Page-Views", "page-views", "other"):
        query_id, record = plans.next_query_id(found, "csas", name)
        found = found.apply(record)
        ids.append(query_id)
    assert ids == ["csas_page_views_1", "csas_page_views_2", "csas_other_1"]


def test_a_name_is_taken_once() -> None:
    with pytest.raises(Exists, match="stream `orders` already exists"):
        plans.plan_relation(with_query(), replace(ORDERS, name="ORDERS"), False, None)
    assert plans.plan_relation(with_query(), ORDERS, True, None) == [plans.relation_record(ORDERS)]
    with pytest.raises(Clash, match="is already a stream"):
        plans.plan_relation(with_query(), replace(ORDERS, kind="table"), True, None)
    with pytest.raises(Clash, match="is written by query ctas_counts_1"):
        plans.plan_relation(with_query(), replace(COUNTS, made_by=None), True, None)


def test_what_is_read_or_written_is_not_dropped() -> None:
    with pytest.raises(Clash, match="Cannot drop `orders`: query `ctas_counts_1` reads it"):
        plans.plan_drop(with_query(), "orders", "stream", None)
    insert = replace(QUERY, id="insert_counts_1", kind="insert")
    with pytest.raises(Clash, match="query `insert_counts_1` writes to it"):
        plans.plan_drop(with_query().apply(plans.query_record(insert)), "counts", "table", None)
    with pytest.raises(Clash, match="`Counts` is a table: DROP TABLE Counts"):
        plans.plan_drop(with_query(), "counts", "stream", None)


def test_a_dropped_relation_takes_its_own_query_with_it() -> None:
    found = with_query()
    relation, ended, records = plans.plan_drop(found, "counts", "table", None)
    assert relation == COUNTS
    assert ended == [QUERY]
    left = found.fold(records)
    assert not left.queries
    assert left.relation("counts") is None
    assert plans.plan_drop(left, "counts", "table", None) == (None, [], [])


def test_queries_are_paused_and_resumed_once() -> None:
    found = with_query()
    changed, records = plans.plan_state(found, "CTAS_counts_1", "PAUSED")
    assert [each.id for each in changed] == ["ctas_counts_1"]
    found = found.fold(records)
    assert found.queries["ctas_counts_1"].state == "PAUSED"
    assert plans.plan_state(found, None, "PAUSED") == ([], [])
    with pytest.raises(Unknown, match="no query `ctas_count_1`; did you mean `ctas_counts_1`"):
        plans.plan_state(found, "ctas_count_1", "RUNNING")


def test_the_output_of_a_terminated_query_stays() -> None:
    found = with_query()
    ended, records = plans.plan_terminate(found, "ctas_counts_1")
    assert ended == [QUERY]
    left = found.fold(records)
    assert not left.queries
    assert left.relation("counts") == replace(COUNTS, made_by=None)


def test_a_function_that_a_query_calls_is_not_dropped() -> None:
    with pytest.raises(Clash, match="Cannot drop `double`: query `ctas_counts_1` calls it"):
        plans.plan_drop_function(with_query(), "DOUBLE", False, None)
    with pytest.raises(Exists):
        plans.plan_function(with_query(), DOUBLE, False, None)
    free = with_query().apply(plans.gone("query", "ctas_counts_1"))
    assert free.fold(plans.plan_drop_function(free, "double", False, None)).function("double") is None
    with pytest.raises(Unknown, match="did you mean `double`"):
        plans.plan_drop_function(free, "duble", False, None)
    assert plans.plan_drop_function(free, "duble", True, None) == []


def test_what_reads_a_topic_is_known_down_to_the_last_reader() -> None:
    middle = replace(ORDERS, name="middle", topic="middle", made_by="csas_middle_1")
    copy = replace(QUERY, id="csas_middle_1", kind="csas", target=middle)
    last = replace(QUERY, id="ctas_last_1", sources={"m": middle}, target=replace(COUNTS, topic="last"))
    over_table = replace(QUERY, id="ctas_joined_1", sources={"c": COUNTS}, target=replace(COUNTS, topic="x"))
    found = image(*(plans.query_record(each) for each in (copy, last, over_table)))
    assert found.downstream("orders") == ["csas_middle_1", "ctas_last_1"]
    assert found.downstream("middle") == ["ctas_last_1"]
    assert found.downstream("last") == []
