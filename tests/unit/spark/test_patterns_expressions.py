"""Expressions of patterns: what is Spark's, what becomes functions of ours, and what is refused by name."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from penstock.spark.patterns.clauses import Clauses, Draft, Plan
from penstock.spark.patterns.conditions import compile_condition
from penstock.spark.patterns.errors import BadPattern, Fragment
from penstock.spark.patterns.navigation import Leaf, Local, Reader
from penstock.spark.patterns.rows import states_of_bytes, states_to_bytes
from penstock.spark.patterns.values import Kind, Value

COLUMNS = ("price", "name", "at", "place")


@pytest.mark.parametrize(
    ("text", "rest", "leaves"),
    [
        ("B.price > PREV(price, 2)", "0 > 1", [
            Leaf("row", None, Local("price")), Leaf("row", None, Local("price", 2))]),
        ("price >= A.price * 1.1", "0 >= 1 * 1.1", [
            Leaf("row", None, Local("price")), Leaf("last", "A", Local("price"))]),
        ("LAST(B.price) > FIRST(A.price, 1)", "0 > 1", [
            Leaf("row", None, Local("price")), Leaf("first", "A", Local("price"), 1)]),
        ("SUM(A.price * 2) + COUNT(*) < 3", "0 + 1 < 3", [
            Leaf("sum", "A", Local("price * 2")), Leaf("count")]),
        ("PREV(LAST(A.price, 1)) < COUNT(A.*)", "0 < 1", [
            Leaf("last", "A", Local("price", 1), 1), Leaf("count", "A")]),
        ("upper(B.name) = A.place.city[0].`x y`", "0 = 1", [
            Leaf("row", None, Local("upper(name)")), Leaf("last", "A", Local("place.city[0].`x y`"))]),
    ],
)  # fmt: skip
def test_what_is_about_rows_of_the_match_becomes_leaves(text: str, rest: str, leaves: list[Leaf]) -> None:
    reader = Reader(["A", "B"], COLUMNS)
    reading = reader.define(Fragment(text), "B")
    assert list(reading.leaves.values()) == leaves
    for number, name in enumerate(reading.leaves):
        reading.text = reading.text.replace(name, str(number))
    assert (reading.text, reading.local) == (rest, None)


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("price > 3 AND B.name LIKE 'x%'", "price > 3 AND name LIKE 'x%'"),
        ("array_contains(split(B.name, ','), 'a')", "array_contains(split(name, ','), 'a')"),
        ("b.place.city = 'Oslo'", "place.city = 'Oslo'"),
    ],
)
def test_a_condition_about_one_row_is_sparks(text: str, local: str) -> None:
    assert Reader(["A", "B"], COLUMNS).define(Fragment(text), "B").local == Local(local)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("price > NEXT(price)", "NEXT is not supported"),
        ("price > (SELECT 1)", "SELECT cannot stand"),
        ("COUNT(DISTINCT A.price) > 1", "DISTINCT"),
        ("STDDEV(A.price) > 1", "STDDEV is not supported"),
        ("SUM(A.price + B.price) > 1", "columns of one variable"),
        ("FINAL LAST(A.price) > 1", "FINAL cannot stand in DEFINE"),
        ("MATCH_NUMBER() > 1", "MATCH_NUMBER"),
        ("LAST(A.price, price) > 1", "offset"),
        ("", "missing"),
    ],
)
def test_what_a_pattern_cannot_ask_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(BadPattern, match=message):
        Reader(["A", "B"], COLUMNS).define(Fragment(text), "B")


VALUES: dict[str, tuple[Kind, Any]] = {
    "i": ("int", 7), "j": ("int", -2), "d": ("double", 2.5), "nan": ("double", math.nan),
    "x": ("decimal", Decimal("1.10")), "s": ("text", "a_b"), "yes": ("bool", True), "no": ("bool", False),
    "n": ("int", None), "u": ("bool", None), "t": ("time", 3_600_000_000), "t0": ("time", 0),
    "day": ("date", 20_000), "o": ("other", b"x"),
}  # fmt: skip


def value_of(text: str) -> Any:
    leaves = {
        name: Value(kind, lambda values, held, value=value: value) for name, (kind, value) in VALUES.items()
    }
    return compile_condition(text, leaves, Fragment(text))((), ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i > j AND d < 3", True), ("i + j = 5", True), ("i / 2 = 3.5", True), ("j % 3 = -2", True),
        ("i / 0 IS NULL", True), ("x * 2 = 2.2", True), ("x < d", True), ("-i < 0", True),
        ("n > 1", None), ("NOT n > 1", None), ("n > 1 OR yes", True), ("n > 1 AND no", False),
        ("u OR no", None), ("u IS NULL", True), ("n IS NOT NULL", False), ("n <=> NULL", True),
        ("u IS TRUE", False), ("yes IS NOT FALSE", True),
        ("nan = nan", True), ("nan > d", True), ("d >= nan", False), ("nan <= d", False),
        ("nan <> nan", False), ("NOT s LIKE 'a%'", False),
        ("i BETWEEN 1 AND 7", True), ("i NOT BETWEEN 1 AND n", None), ("i IN (1, 7)", True),
        ("i IN (1, n)", None), ("i NOT IN (1, 2)", True),
        ("s LIKE 'a%'", True), ("s LIKE '__'", False), (r"s LIKE 'a\\_b'", True), ("n IN (1)", None),
        ("s NOT LIKE 'b%'", True),
        ("CASE WHEN i > 100 THEN no WHEN u THEN no ELSE yes END", True), ("CASE i WHEN 7 THEN yes END", True),
        ("CASE WHEN no THEN yes END", None), ("IF(yes, i, d) = 7", True),
        ("COALESCE(n, i) = 7", True), ("GREATEST(i, n, d) = 7", True), ("LEAST(d, nan) = 2.5", True),
        ("ABS(j) = 2", True), ("t - t0 = INTERVAL 1 HOUR", True), ("t - t0 < INTERVAL '59' MINUTE", False),
        ("t0 + INTERVAL 2 HOURS > t", True), ("day = day", True), ("yes = true", True), ("yes <> no", True),
    ],
)  # fmt: skip
def test_conditions_over_several_rows_are_as_in_sql(text: str, expected: bool | None) -> None:
    assert value_of(text) is expected


@pytest.mark.promise(
    "sql",
    "A condition of a pattern consists of allowed operations only, and is never run as Python",
)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os').system('true')", "cannot be parsed|only be computed|no column"),
        ("eval('1') = 1", "can only be computed of one row"),
        ("java_method('java.lang.System', 'exit', 1) = 1", "can only be computed of one row"),
        ("i.__class__ = 1", "no column"),
        ("(lambda: 1)() = 1", "cannot be parsed|one expression|only be computed"),
        ("upper(s) = 'A'", "can only be computed of one row"),
        ("i = s", "compares a number and a text"),
        ("o = o", "cannot be compared"),
        ("yes > no", "cannot be compared"),
        ("i + 1", "true or false"),
        ("i > 1, j > 1", "one expression"),
        ("i > 1 FROM x", "one expression"),
        ("s LIKE s", "LIKE takes"),
        ("s LIKE ANY ('a', 'b')", "only be computed"),
        ("s LIKE 'a/_b' ESCAPE '/'", "only be computed"),
        ("CAST(i AS STRING) = '7'", "only be computed"),
        ("i::int = 7", "only be computed"),
        ("s ILIKE 'A%'", "only be computed"),
        ("missing > 1", "no column `missing`"),
        ("i IN (SELECT 1)", "only be computed"),
        ("t > INTERVAL 1 MONTH", "interval"),
    ],
)
def test_what_is_not_allowed_in_a_condition_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(BadPattern, match=message):
        value_of(text)


def plan_of(**more: Any) -> Plan:
    given: dict[str, Any] = {
        "pattern": Fragment("A B+"),
        "define": (("B", Fragment("B.price > PREV(price) AND B.price > A.price")),),
        "measures": (("n", Fragment("COUNT(B.*)")),),
        "within": 1000,
    }
    draft = Draft(Clauses(**(given | more)), COLUMNS)
    return draft.plan(["double"] * len(draft.texts), COLUMNS)


@pytest.mark.parametrize(
    "more",
    [
        {"pattern": Fragment("A B*")},
        {"define": (("B", Fragment("B.price > PREV(price, 2) AND B.price > A.price")),)},
        {"define": (("B", Fragment("B.price < 3")),)},
        {"measures": (("n", Fragment("COUNT(A.*)")),)},
        {"within": 2000},
        {"skip": "next row"},
        {"skip": "last", "skip_to": Fragment("B")},
        {"all_rows": True},
        {"subsets": (("U", ("A", "B")),)},
    ],
)
def test_a_plan_says_that_any_of_the_clauses_has_changed(more: dict[str, Any]) -> None:
    assert plan_of(**more).to_json() != plan_of().to_json()
    assert plan_of(pattern=Fragment(" A   B+")).texts == plan_of().texts


def test_a_plan_travels_as_text() -> None:
    plan = plan_of(all_rows=True, skip="first", skip_to=Fragment("b"))
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"define": (("C", Fragment("price > 1")),)}, "no variable `C`"),
        ({"define": (("B", Fragment("price > 1")), ("b", Fragment("price > 2")))}, "defined twice"),
        ({"skip": "first", "skip_to": Fragment("X")}, "no variable `X`"),
        ({"subsets": (("U", ("A", "X")),)}, "SUBSET names `X`"),
        ({"subsets": (("A", ("A", "B")),)}, "already defined"),
    ],
)
def test_a_variable_that_is_not_in_the_pattern_is_named(more: dict[str, Any], message: str) -> None:
    with pytest.raises(BadPattern, match=message):
        plan_of(**more)


class Evil:
    def __reduce__(self) -> Any:
        return eval, ("1",)


@pytest.mark.promise(
    "sql",
    "A condition of a pattern consists of allowed operations only, and is never run as Python",
)
def test_the_state_of_a_pattern_is_read_as_plain_values_only() -> None:
    states: Any = {("a", Decimal("1.5")): ((1, ((5, 1, (None, 2.5, "x", b"y")),), (0, 1), 1, 0), ())}
    assert states_of_bytes(states_to_bytes(states)) == states
    with pytest.raises(Exception, match=r"has no builtins\.eval"):
        states_of_bytes(states_to_bytes({"a": Evil()}))  # type: ignore[dict-item]
