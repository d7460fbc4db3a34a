"""The automaton of patterns against a matcher that tries everything, by backtracking."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spark.patterns.errors import BadPattern, Fragment
from penstock.spark.patterns.matcher import Matcher, PatternPartition, Program, Row, Skip
from penstock.spark.patterns.registers import Register
from penstock.spark.patterns.syntax import compile_pattern
from tests.repetitions import times

VARIABLES = "ABC"

# A pattern as a tree: ("v", name), ("all", parts), ("any", parts), ("repeat", part, least, most, greedy).
Node = tuple[Any, ...]


def text(node: Node) -> str:
    match node:
        case ("v", name):
            return str(name)
        case ("all", parts):
            return "(" + " ".join(map(text, parts)) + ")"
        case ("any", parts):
            return "(" + " | ".join(map(text, parts)) + ")"
    _, inner, least, most, greedy = node
    plain = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
    counted = f"{{{least},{'' if most is None else most}}}"
    return f"({text(inner)}){plain or counted}{'' if greedy else '?'}"


def _nodes() -> st.SearchStrategy[Node]:
    names = st.sampled_from(VARIABLES).map(lambda name: ("v", name))
    bounds = st.sampled_from([(0, None), (1, None), (0, 1), (2, 3), (2, None), (0, 2), (1, 1)])

    def larger(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        several = st.lists(inner, min_size=2, max_size=3)
        return (
            several.map(lambda parts: ("all", parts))
            | several.map(lambda parts: ("any", parts))
            | st.tuples(inner, bounds, st.booleans()).map(lambda x: ("repeat", x[0], *x[1], x[2]))
        )

    return st.recursive(names, larger, max_leaves=5)


Labels = tuple[str, ...]
Condition = Callable[[list[int], Labels], bool]
"""Of the values of the rows of a match so far, the last one included, and their variables."""


def ways(node: Node, labels: Labels, holds: Callable[[Labels], bool]) -> Iterator[Labels]:
    """All that a match may be, the preferred first."""
    match node:
        case ("v", name):
            if holds((*labels, name)):
                yield (*labels, name)
        case ("all", parts):
            if not parts:
                yield labels
            else:
                for first in ways(parts[0], labels, holds):
                    yield from ways(("all", parts[1:]), first, holds)
        case ("any", parts):
            for part in parts:
                yield from ways(part, labels, holds)
        case ("repeat", inner, least, most, greedy):
            again: Node = ("repeat", inner, max(0, least - 1), None if most is None else most - 1, greedy)
            if least == 0 and not greedy:
                yield labels
            if most is None or most > 0:
                for first in ways(inner, labels, holds):
                    if first != labels:
                        yield from ways(again, first, holds)
                    else:  # a round without a row: all that must follow may be such, too
                        yield labels
            if least == 0 and greedy:
                yield labels


def expected(
    node: Node,
    rows: list[tuple[int, int]],
    conditions: dict[str, Condition],
    within: int | None,
    skip: Skip,
) -> list[tuple[int, Labels]]:
    """Where matches begin, and the variables of their rows."""
    found: list[tuple[int, Labels]] = []
    start = 0
    while start < len(rows):

        def holds(labels: Labels, start: int = start) -> bool:
            end = start + len(labels)
            if end > len(rows) or (within is not None and rows[end - 1][0] > rows[start][0] + within):
                return False
            return conditions[labels[-1]]([value for _, value in rows[start:end]], labels)

        best = next((each for each in ways(node, (), holds) if each), None)
        if best is None:
            start += 1
            continue
        found.append((start, best))
        if skip.to == "past last row":
            start += len(best)
        elif skip.to == "next row":
            start += 1
        else:
            there = [at for at, name in enumerate(best) if VARIABLES.index(name) in skip.variables]
            start += max(1, (there[0] if skip.to == "first" else there[-1]) if there else 0)
    return found


def of(values: list[int], labels: Labels, name: str) -> list[int]:
    return [value for value, label in zip(values, labels, strict=True) if label == name]


ASKING = {
    "more than LAST(A)": (
        Register("last", frozenset([0]), 0),
        lambda row, held: held is not None and row[0] > held,
        lambda values, labels: bool(of(values, labels, "A")) and values[-1] > of(values, labels, "A")[-1],
    ),
    "less than FIRST(B)": (
        Register("first", frozenset([1]), 0),
        lambda row, held: held != () and row[0] <= held[0],
        lambda values, labels: bool(of(values, labels, "B")) and values[-1] <= of(values, labels, "B")[0],
    ),
    "sum of C": (
        Register("sum", frozenset([2]), 0),
        lambda row, held: (held or 0) < 6,
        lambda values, labels: sum(of(values, labels, "C")) < 6,
    ),
    "count of all": (
        Register("count"),
        lambda row, held: held <= 4,
        lambda values, labels: len(values) <= 4,
    ),
    "the last A but one": (
        Register("last", frozenset([0]), 0, offset=1),
        lambda row, held: len(held) < 2 or held[0] <= row[0],
        lambda values, labels: len(of(values, labels, "A")) < 2 or of(values, labels, "A")[-2] <= values[-1],
    ),
}


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, ...]:
    node = draw(_nodes())
    values = draw(st.lists(st.integers(0, 5), max_size=11))
    gaps = draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values)))
    at, rows = 0, []
    for gap, value in zip(gaps, values, strict=True):
        at += gap
        rows.append((at, value))
    plain = {name: draw(st.sets(st.integers(0, 5), min_size=1)) for name in VARIABLES}
    asking = draw(st.dictionaries(st.sampled_from(VARIABLES), st.sampled_from(sorted(ASKING)), max_size=2))
    within = draw(st.none() | st.integers(0, 12))
    which = frozenset(draw(st.sets(st.integers(0, 2), min_size=1)))
    skip = draw(st.sampled_from([Skip(), Skip("next row"), Skip("first", which), Skip("last", which)]))
    return node, rows, plain, asking, within, skip


def program_of(
    node: Node, plain: dict[str, set[int]], asking: dict[str, str], within: int | None, skip: Skip
) -> tuple[Program, Callable[[int], int], dict[str, Condition], list[int]]:
    """The program, the bits of a value, the conditions as the other matcher has them, and the numbers of
    the program's variables."""
    auto = compile_pattern(Fragment(text(node)))
    order = [VARIABLES.index(name) for name in auto.variables]
    known = {number: at for at, number in enumerate(order)}

    def renumbered(variables: frozenset[int] | None) -> frozenset[int] | None:
        return None if variables is None else frozenset(known[each] for each in variables if each in known)

    chosen = {name: kind for name, kind in asking.items() if name in auto.variables}
    registers, conditions = [], {}
    for name, kind in chosen.items():
        register, condition, _ = ASKING[kind]
        at = len(registers)
        registers.append(
            Register(register.kind, renumbered(register.variables), register.column, register.offset)
        )
        conditions[known[VARIABLES.index(name)]] = lambda row, held, at=at, condition=condition: condition(
            row, held[at]
        )

    def bits(value: int) -> int:
        return sum(1 << at for at, name in enumerate(auto.variables) if value in plain[name])

    def slow(name: str) -> Condition:
        own = ASKING[chosen[name]][2] if name in chosen else (lambda values, labels: True)
        return lambda values, labels: values[-1] in plain[name] and own(values, labels)

    skipping = Skip(skip.to, renumbered(skip.variables) or frozenset())
    program = Program(auto, conditions, tuple(registers), within, skipping)
    return program, bits, {name: slow(name) for name in auto.variables}, order


def run(
    program: Program,
    rows: list[Row],
    order: list[int],
    restarts: set[int] = frozenset(),  # type: ignore[assignment]
) -> list[tuple[int, Labels]]:
    """As `expected`; after the rows of `restarts`, with its state saved and read again."""
    matcher = Matcher(program)
    partition = PatternPartition(matcher)
    found: list[tuple[int, Labels]] = []

    def add(matches: Iterator[Any]) -> None:
        for each in matches:
            assert each.number == len(found) + 1
            labels = tuple(VARIABLES[order[label]] for label, _ in each.rows)
            found.append((each.rows[0][1][2][1], labels))

    for number, row in enumerate(rows):
        add(partition.passed(row[0] - 1))
        add(partition.push(row))
        if number in restarts:
            partition = PatternPartition(matcher, pickle.loads(pickle.dumps(partition.saved())))
    add(partition.finish())
    return found


def nullable(node: Node) -> bool:
    match node:
        case ("v", _):
            return False
        case ("all", parts):
            return all(map(nullable, parts))
        case ("any", parts):
            return any(map(nullable, parts))
    return node[2] == 0 or nullable(node[1])


@pytest.mark.promise(
    "sql", "MATCH_RECOGNIZE finds the matches that SQL:2016 defines, whatever the pattern and the rows"
)
@pytest.mark.repeated
@settings(max_examples=times(150, 5_000), deadline=None)
@given(case=cases(), restarts=st.sets(st.integers(0, 13)))
def test_matches_are_those_that_trying_everything_finds(case: tuple[Any, ...], restarts: set[int]) -> None:
    node, rows, plain, asking, within, skip = case
    if nullable(node):
        with pytest.raises(BadPattern, match="no row at all"):
            compile_pattern(Fragment(text(node)))
        return
    program, bits, conditions, order = program_of(node, plain, asking, within, skip)
    given_rows = [(at, bits(value), (value, number)) for number, (at, value) in enumerate(rows)]
    assert run(program, given_rows, order, restarts) == expected(node, rows, conditions, within, skip)


def matched(pattern: str, letters: str, within: int | None = None) -> list[str]:
    """Of rows that are letters, one a second: the letters of matches. Each variable holds for its letter."""
    auto = compile_pattern(Fragment(pattern))
    matcher = Matcher(Program(auto, within=within))
    partition = PatternPartition(matcher)
    rows: list[Row] = [
        (at, sum(1 << n for n, name in enumerate(auto.variables) if letter in name), (letter,))
        for at, letter in enumerate(letters)
    ]
    found = [each for row in rows for each in partition.push(row)] + list(partition.finish())
    return ["".join(row[2][0] for _, row in each.rows) for each in found]


@pytest.mark.parametrize(
    ("pattern", "letters", "expected"),
    [
        ("A B+ C", "abbcab", []),
        ("A B+", "ABBAB", ["ABB", "AB"]),
        ("A B+?", "ABBAB", ["AB", "AB"]),
        ("A B??  C?", "ABCAC", ["A", "AC"]),
        ("A{2,3}", "AAAAAAA", ["AAA", "AAA"]),
        ("A{2,3}?", "AAAAAAA", ["AA", "AA", "AA"]),
        ("A{2}", "AAAAA", ["AA", "AA"]),
        ("A{,2} B", "AAAB", ["AAB"]),
        ("(A | B C)+ D", "ABCAD", ["ABCAD"]),
        ("(A?)+ B", "AAB", ["AAB"]),
    ],
)
def test_quantifiers(pattern: str, letters: str, expected: list[str]) -> None:
    assert matched(pattern, letters) == expected


def test_within_is_the_longest_time_between_the_first_and_the_last_row() -> None:
    assert matched("A X* B".replace("X", "AX"), "AAAB", within=2) == ["AAB"]
    assert matched("A B+", "ABBBB", within=2) == ["ABB"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("A*", "no row at all"),
        ("", "expected a variable"),
        ("A B)", "unexpected `)`"),
        ("(A B", "never closed"),
        ("A{3,2}", "not possible"),
        ("A{x}", "expected a number"),
        ("PERMUTE(A, B)", "PERMUTE is not supported"),
        ("A {- B -} C", "exclusion"),
        ("^ A", "anchor"),
        ("A & B", "unexpected `&`"),
        ("A{100000}", "too long"),
    ],
)
def test_a_pattern_that_is_none_is_rejected_by_name(pattern: str, message: str) -> None:
    with pytest.raises(BadPattern, match=message.replace("(", r"\(").replace(")", r"\)")):
        compile_pattern(Fragment(pattern))
