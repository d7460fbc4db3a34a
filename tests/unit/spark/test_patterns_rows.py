"""The matcher over tables of rows, with its state saved between them."""

from __future__ import annotations

import random
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from penstock.spark.patterns.clauses import Clauses, Draft, Plan  # noqa: E402
from penstock.spark.patterns.errors import Fragment  # noqa: E402
from penstock.spark.patterns.rows import (  # noqa: E402
    PatternEngine,
    States,
    pack,
    states_of_bytes,
    states_to_bytes,
    unpacked,
)


def engine(pattern: str, define: dict[str, str], measures: dict[str, str]) -> PatternEngine:
    clauses = Clauses(
        Fragment(pattern),
        tuple((name, Fragment(text)) for name, text in define.items()),
        tuple((name, Fragment(text)) for name, text in measures.items()),
        within=20,
    )
    draft = Draft(clauses, ["x"])
    assert draft.texts == ["x"]
    return PatternEngine(Plan.from_json(draft.plan(["int"], ["x"]).to_json()), 1, 0)


@pytest.mark.parametrize("step", [1, 7, 200])
@pytest.mark.parametrize(
    "define", [{"B": "x > PREV(x)"}, {"B": "B.x > A.x"}, {"B": "x > PREV(x, 2) AND COUNT(B.*) < 4"}]
)
def test_rows_in_pieces_give_what_they_give_at_once(step: int, define: dict[str, str]) -> None:
    chance = random.Random(step)
    rows = [(at, chance.choice("ab"), 255, chance.randrange(9)) for at in range(200)]
    measures = {
        "n": "COUNT(*)", "s": "SUM(B.x)", "number": "MATCH_NUMBER()", "what": "CLASSIFIER()",
        "mean": "AVG(x)", "first": "FIRST(x)", "most": "MAX(x)", "before": "PREV(FIRST(x))",
    }  # fmt: skip

    def table(some: list[tuple[Any, ...]]) -> Any:
        columns = [list(column) for column in zip(*some, strict=True)]
        return pa.table(columns, names=["time", "k0", "holds", "c0"])

    whole = list(engine("A B+", define, measures).run({}, table(rows), 0, finished=True))
    states: States = {}
    found = []
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        found += engine("A B+", define, measures).run(states, table(some), some[-1][0])
        states = states_of_bytes(states_to_bytes(states))
    found += engine("A B+", define, measures).run(states, None, 0, finished=True)
    assert len(found) > 10
    assert sorted(found) == sorted(whole)


def test_time_that_is_up_ends_a_match_without_another_row() -> None:
    made, states = engine("A B+", {"B": "B.x > A.x"}, {"n": "COUNT(*)"}), {}  # type: ignore[var-annotated]
    table = pa.table({"time": [1, 2, 3], "k0": ["a"] * 3, "holds": [3] * 3, "c0": [1, 2, 3]})
    assert list(made.run(states, table, 20)) == []
    assert made.deadline(states) == 21
    assert list(made.run(states, None, 21)) == [("a", 3)]
    assert states == {} and made.deadline(states) is None


def test_rows_are_packed_by_bucket() -> None:
    schema = pa.schema([("time", pa.int64()), ("c0", pa.string())])
    columns = [pa.array([2, 1, 2, 1, 7], pa.int32()), [5, 4, 3, 2, 1], ["a", None, "c", "d", "e"]]
    batch = pa.RecordBatch.from_arrays([pa.array(each) for each in columns], names=["bucket", "time", "c0"])
    found = {number: unpacked(rows, schema).to_pylist() for number, rows in pack(batch, schema)}
    assert found == {
        1: [{"time": 4, "c0": None}, {"time": 2, "c0": "d"}],
        2: [{"time": 5, "c0": "a"}, {"time": 3, "c0": "c"}],
        7: [{"time": 1, "c0": "e"}],
    }
