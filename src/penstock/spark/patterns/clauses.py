"""Compiles the clauses of MATCH_RECOGNIZE to a plan: the columns that Spark computes, and the matcher's
program.

Spark computes a condition on a single row, and passes the result as a bit. For a condition on several rows,
Spark computes columns for every row, and the matcher keeps registers. `Plan` is plain data: it is sent to the
workers, and shows whether the state of one pattern fits another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock.spark.patterns.conditions import compile_condition
from penstock.spark.patterns.errors import BadPattern, Fragment
from penstock.spark.patterns.matcher import Program, Skip
from penstock.spark.patterns.navigation import Leaf, Local, Reader, Reading
from penstock.spark.patterns.registers import Register
from penstock.spark.patterns.syntax import Automaton, compile_pattern
from penstock.spark.patterns.values import Function, Kind, Value
from penstock.sqltext.identifiers import quoted

MOST_VARIABLES = 60
"""Bits of a number that says which conditions hold for a row."""
_NUMBERS = ("int", "decimal", "double", "null")


@dataclass(frozen=True)
class Clauses:
    """The user's clauses."""

    pattern: Fragment
    define: tuple[tuple[str, Fragment], ...] = ()
    measures: tuple[tuple[str, Fragment], ...] = ()
    """Name and expression."""
    subsets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    within: int | None = None
    """Microseconds."""
    skip: str = "past last row"
    """Or `next row`, `first`, `last`."""
    skip_to: Fragment | None = None
    """The variable of `first` and `last`."""
    all_rows: bool = False

    def texts(self) -> list[Any]:
        """All clauses with normalised spaces: patterns with the same text are the same."""
        return [
            _spaced(self.pattern.text),
            [[name, _spaced(each.text)] for name, each in self.define],
            [[name, _spaced(each.text)] for name, each in self.measures],
            [[name, list(each)] for name, each in self.subsets],
            self.within,
            self.skip,
            self.skip_to.text if self.skip_to is not None else None,
            self.all_rows,
        ]


def _spaced(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True)
class Plan:
    """Everything that a worker needs. The columns of `Values` are Spark's, followed by those of
    previous rows.
    """

    pattern: str
    kinds: tuple[Kind, ...]
    """The kinds of Spark's columns."""
    before: tuple[tuple[int, int], ...]
    """Additional columns: one of Spark's, and the number of rows to look back."""
    conditions: Mapping[str, tuple[str, Mapping[str, tuple[str, int]]]]
    """By variable: a condition that Spark does not compute, and its leaves: `row` and a column, or `register`
    and one of `registers`.
    """
    registers: tuple[Mapping[str, Any], ...]
    outputs: tuple[Mapping[str, Any], ...]
    """The registers that MEASURES uses."""
    shown: tuple[int, ...]
    """With ALL ROWS PER MATCH: the columns of the matched rows."""
    within: int | None
    skip: tuple[str, tuple[int, ...]]
    all_rows: bool
    numbered: bool
    """Whether MATCH_NUMBER() is used, so that the number of a partition's last match must be kept."""
    texts: str
    """All clauses: a change of any of them is a change of the pattern."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        data = json.loads(text)
        skip = data["skip"]
        for name in ("kinds", "registers", "outputs", "shown"):
            data[name] = tuple(data[name])
        data["before"] = tuple((column, back) for column, back in data["before"])
        data["conditions"] = {
            name: (condition, {leaf: (what, number) for leaf, (what, number) in leaves.items()})
            for name, (condition, leaves) in data["conditions"].items()
        }
        return cls(**{**data, "skip": (skip[0], tuple(skip[1]))})

    @property
    def most_before(self) -> int:
        """How many rows of a partition must be kept before the newest."""
        return max((back for _, back in self.before), default=0)

    def output_registers(self) -> tuple[Register, ...]:
        return tuple(_register(each) for each in self.outputs)

    def program(self) -> tuple[Program, list[tuple[int, Function]]]:
        """The matcher's program, and the conditions that only depend on a row and those before it."""
        auto = compile_pattern(Fragment(self.pattern))
        registers = tuple(_register(each) for each in self.registers)
        asking: dict[int, Function] = {}
        alone: list[tuple[int, Function]] = []
        for name, (text, leaves) in self.conditions.items():
            variable = _number(auto, name)
            values = {leaf: self._value(registers, what, number) for leaf, (what, number) in leaves.items()}
            condition = compile_condition(text, values, Fragment(text))
            if any(what == "register" for what, _ in leaves.values()):
                asking[variable] = condition
            else:
                alone.append((variable, condition))
        skip = Skip(self.skip[0], frozenset(self.skip[1]))  # type: ignore[arg-type]
        return Program(auto, asking, registers, self.within, skip), alone

    def _value(self, registers: Sequence[Register], what: str, number: int) -> Value:
        if what == "row":
            return Value(self._kind_of(number), lambda values, held: values[number])
        register = registers[number]
        read = register.value
        return Value(self.kind_of(register), lambda values, held: read(held[number]))

    def _kind_of(self, column: int) -> Kind:
        known = len(self.kinds)
        return self.kinds[column] if column < known else self.kinds[self.before[column - known][0]]

    def kind_of(self, register: Register) -> Kind:
        if register.kind in ("count", "match_number"):
            return "int"
        if register.kind == "classifier":
            return "text"
        assert register.column is not None
        return "double" if register.kind == "avg" else self._kind_of(register.column)


def _register(data: Mapping[str, Any]) -> Register:
    variables = data["variables"]
    return Register(**{**data, "variables": None if variables is None else frozenset(variables)})


def _number(auto: Automaton, name: str) -> int:
    return [each.upper() for each in auto.variables].index(name)


class Draft:
    """The parsed clauses, before the types of columns are known."""

    def __init__(self, clauses: Clauses, columns: Sequence[str]) -> None:
        self.clauses = clauses
        self.automaton = compile_pattern(clauses.pattern)
        if len(self.automaton.variables) > MOST_VARIABLES:
            raise BadPattern(f"a pattern has at most {MOST_VARIABLES} variables", clauses.pattern)
        self._groups = self._subsets()
        reader = Reader(list(self._groups), columns)
        self.bits: dict[int, str] = {}
        """Conditions of Spark, by variable."""
        self.places: dict[str, Fragment] = {}
        """Where an expression of Spark was written."""
        self._asked: dict[str, Reading] = {}
        self.measures: list[tuple[str, Reading]] = []
        self._texts: dict[str, int] = {}
        self._define(reader)
        self._measure(reader, columns)

    @property
    def texts(self) -> list[str]:
        """The expressions that Spark computes of each row."""
        return list(self._texts)

    def _subsets(self) -> dict[str, frozenset[int]]:
        """The variables of a name: the variable itself, or those of a subset."""
        names = [each.upper() for each in self.automaton.variables]
        groups = {name: frozenset([at]) for at, name in enumerate(names)}
        for name, parts in self.clauses.subsets:
            unknown = [each for each in parts if each.upper() not in names]
            if unknown:
                raise BadPattern(
                    f"SUBSET names `{unknown[0]}`, which is not in PATTERN", self.clauses.pattern
                )
            if name.upper() in groups:
                raise BadPattern(f"`{name}` in SUBSET is already defined", self.clauses.pattern)
            groups[name.upper()] = frozenset(names.index(each.upper()) for each in parts)
        return groups

    def _define(self, reader: Reader) -> None:
        names = [each.upper() for each in self.automaton.variables]
        seen: set[str] = set()
        for name, fragment in self.clauses.define:
            upper = name.upper()
            if upper not in names:
                raise BadPattern(f"DEFINE {name}: PATTERN has no variable `{name}`", fragment)
            if upper in seen:
                raise BadPattern(f"`{name}` is defined twice", fragment)
            seen.add(upper)
            reading = reader.define(fragment, upper)
            if reading.local is not None:
                self.bits[names.index(upper)] = reading.local.text
                self.places[reading.local.text] = fragment
            else:
                self._asked[upper] = reading
                self._note(reading)

    def _measure(self, reader: Reader, columns: Sequence[str]) -> None:
        for name, fragment in self.clauses.measures:
            reading = reader.measure(fragment)
            self._note(reading)
            self.measures.append((name, reading))
        if self.clauses.all_rows:
            for column in columns:
                self._texts.setdefault(quoted(column), len(self._texts))

    def _note(self, reading: Reading) -> None:
        for leaf in reading.leaves.values():
            if leaf.variable is not None and leaf.variable not in self._groups:
                raise BadPattern(f"PATTERN has no variable `{leaf.variable}`", reading.fragment)
            if leaf.local is not None:
                self._texts.setdefault(leaf.local.text, len(self._texts))
                self.places.setdefault(leaf.local.text, reading.fragment)

    def plan(self, kinds: Sequence[Kind], columns: Sequence[str]) -> Plan:
        """`kinds` are the types of `texts`. Raises BadPattern for a condition that cannot be computed."""
        before: dict[tuple[int, int], int] = {}

        def column(local: Local) -> int:
            at = self._texts[local.text]
            if not local.back:
                return at
            return before.setdefault((at, local.back), len(kinds) + len(before))

        registers: dict[Register, int] = {}
        conditions: dict[str, tuple[str, dict[str, tuple[str, int]]]] = {}
        for name, reading in self._asked.items():
            leaves: dict[str, tuple[str, int]] = {}
            for leaf_name, leaf in reading.leaves.items():
                if leaf.kind == "row":
                    assert leaf.local is not None
                    leaves[leaf_name] = ("row", column(leaf.local))
                else:
                    register = self._register_of(leaf, column, kinds, reading)
                    leaves[leaf_name] = ("register", registers.setdefault(register, len(registers)))
            conditions[name] = (reading.text, leaves)
        outputs: dict[Register, int] = {}
        self.leaf_outputs: dict[str, int] = {}
        for _, reading in self.measures:
            for leaf_name, leaf in reading.leaves.items():
                register = self._register_of(leaf, column, kinds, reading)
                self.leaf_outputs[leaf_name] = outputs.setdefault(register, len(outputs))
        shown = [self._texts[quoted(each)] for each in columns] if self.clauses.all_rows else []
        plan = Plan(
            pattern=self.clauses.pattern.text,
            kinds=tuple(kinds),
            before=tuple(before),
            conditions=conditions,
            registers=tuple(_described(each) for each in registers),
            outputs=tuple(_described(each) for each in outputs),
            shown=tuple(shown),
            within=self.clauses.within,
            skip=(self.clauses.skip, tuple(sorted(self._skip_to()))),
            all_rows=self.clauses.all_rows,
            numbered=any(each.kind == "match_number" for each in outputs),
            texts=json.dumps(self.clauses.texts()),
        )
        self._check(plan)
        return plan

    def _register_of(self, leaf: Leaf, column: Any, kinds: Sequence[Kind], reading: Reading) -> Register:
        at = None if leaf.local is None else column(leaf.local)
        if leaf.kind in ("sum", "avg", "min", "max") and leaf.local is not None:
            kind = kinds[self._texts[leaf.local.text]]
            wrong = kind in ("bool", "other") if leaf.kind in ("min", "max") else kind not in _NUMBERS
            if wrong:
                raise BadPattern(f"{leaf.kind.upper()}({leaf.local.text}) is not possible", reading.fragment)
        variables = None if leaf.variable is None else self._groups[leaf.variable]
        return Register(leaf.kind, variables, at, leaf.offset, leaf.final)  # type: ignore[arg-type]

    def _skip_to(self) -> frozenset[int]:
        target = self.clauses.skip_to
        if target is None:
            return frozenset()
        found = self._groups.get(target.text.strip().strip("`").upper())
        if found is None:
            raise BadPattern(f"PATTERN has no variable `{target.text.strip()}`", target)
        return found

    def _check(self, plan: Plan) -> None:
        """Compiles the conditions as the workers do, with the user's text for error messages."""
        registers = tuple(_register(each) for each in plan.registers)
        for name, (text, leaves) in plan.conditions.items():
            values = {leaf: plan._value(registers, *what) for leaf, what in leaves.items()}
            compile_condition(text, values, self._asked[name].fragment)


def _described(register: Register) -> dict[str, Any]:
    described = asdict(register)
    if register.variables is not None:
        described["variables"] = sorted(register.variables)
    return described
