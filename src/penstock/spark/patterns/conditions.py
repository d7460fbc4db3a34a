"""Conditions over several rows as Python functions: Spark cannot compute them, because it processes one row
at a time.

`_Compiler` lists the allowed nodes of sqlglot's tree; any other is rejected by name. No text is ever
executed: each node becomes one of these functions. Nulls and NaN behave as in Spark: NaN equals NaN and is
greater than every other number, and a comparison with null is null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NoReturn

from penstock.spark.patterns.errors import BadPattern, Fragment
from penstock.spark.patterns.values import (
    DOUBLE,
    FUNCTIONS,
    OF_DECIMALS,
    OF_DOUBLES,
    PLAIN,
    Function,
    Kind,
    Value,
    as_double,
    constant,
    like_pattern,
    negated,
    strict,
)

_NUMBERS = ("int", "decimal", "double")
_MICROSECONDS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_COMPARISONS = {"EQ": "=", "NEQ": "<>", "GT": ">", "GTE": ">=", "LT": "<", "LTE": "<=", "NullSafeEQ": "<=>"}
_TWO = frozenset(("this", "expression"))
_SEVERAL = frozenset(("this", "expressions", "ignore_nulls"))
_PARTS: dict[str, frozenset[str]] = {
    **dict.fromkeys((*_COMPARISONS, "And", "Or", "Is"), _TWO),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Mod"), _TWO | {"safe", "typed"}),
    **dict.fromkeys(("Boolean", "Paren", "Not", "Neg", "Abs"), frozenset(("this",))),
    **dict.fromkeys(("Coalesce", "Least", "Greatest"), _SEVERAL),
    "Null": frozenset(),
    "Column": frozenset(("this", "table", "db", "catalog")),
    "Literal": frozenset(("this", "is_string")),
    "Interval": frozenset(("this", "unit")),
    "Between": frozenset(("this", "low", "high")),
    "In": frozenset(("this", "expressions")),
    "Like": _TWO | {"negate"},
    "If": frozenset(("this", "true", "false")),
    "Case": frozenset(("this", "ifs", "default")),
}
"""sqlglot's nodes that are understood, and which of their parts: with others they mean another thing."""
_ARITHMETIC = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"}


def compile_condition(text: str, leaves: Mapping[str, Value], fragment: Fragment) -> Function:
    """The function of a condition, in which leaves are replaced by names; `fragment` is the user's text."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(f"SELECT {text}", read="spark")
    except (SqlglotError, RecursionError, ValueError) as error:
        raise BadPattern("this condition cannot be parsed", fragment) from error
    given = {name for name, value in tree.args.items() if value and name not in ("kind", "hint")}
    if not isinstance(tree, exp.Select) or given != {"expressions"} or len(tree.expressions) != 1:
        raise BadPattern("a condition is one expression", fragment)
    try:
        found = _Compiler(leaves, fragment).value(tree.expressions[0])
    except RecursionError as error:
        raise BadPattern("this condition has too many brackets inside each other", fragment) from error
    if found.kind not in ("bool", "null"):
        raise BadPattern("a condition must be true or false", fragment)
    return found.get


class _Compiler:
    def __init__(self, leaves: Mapping[str, Value], fragment: Fragment) -> None:
        self._leaves = leaves
        self._fragment = fragment
        self._methods: dict[str, Callable[[Any], Value]] = {
            "Column": self._column, "Literal": self._literal, "Boolean": self._boolean, "Null": self._null,
            "Paren": self._paren, "Interval": self._interval, "And": self._and, "Or": self._or,
            "Not": self._not, "Is": self._is, "Between": self._between, "In": self._in, "Like": self._like,
            "Neg": self._neg, "Abs": self._abs, "Coalesce": self._coalesce, "Least": self._least,
            "Greatest": self._greatest, "If": self._if, "Case": self._case,
        }  # fmt: skip

    def value(self, node: Any) -> Value:
        name = type(node).__name__
        parts = _PARTS.get(name)
        if parts is None or any(value and part not in parts for part, value in node.args.items()):
            self._refuse(node)
        if name in _COMPARISONS:
            return self._comparison(name, self.value(node.this), self.value(node.expression), node)
        if name in _ARITHMETIC:
            return self._arithmetic(name, self.value(node.this), self.value(node.expression), node)
        return self._methods[name](node)

    def _refuse(self, node: Any, why: str = "") -> NoReturn:
        shown = self._shown(node)
        raise BadPattern(
            why or f"`{shown}` can only be computed of one row, and not of several",
            self._fragment,
        )

    def _shown(self, node: Any) -> str:
        return re.sub(r"__leaf_\d+", "…", str(node.sql(dialect="spark")))[:80]

    # -- what stands alone

    def _column(self, node: Any) -> Value:
        found = self._leaves.get(node.name) if not node.table else None
        if found is None:
            self._refuse(node, f"no column `{self._shown(node)}`")
        return found

    def _literal(self, node: Any) -> Value:
        if node.is_string:
            return constant("text", str(node.this))
        text = str(node.this)
        if text.isdecimal():
            return constant("int", int(text))
        if re.fullmatch(r"\d*\.?\d*", text):
            return constant("decimal", Decimal(text))
        if re.fullmatch(r"\d*\.?\d*[eE][+-]?\d+", text):
            return constant("double", float(text))
        self._refuse(node)

    def _boolean(self, node: Any) -> Value:
        return constant("bool", bool(node.this))

    def _null(self, node: Any) -> Value:
        return constant("null", None)

    def _paren(self, node: Any) -> Value:
        return self.value(node.this)

    def _interval(self, node: Any) -> Value:
        unit = str(node.args.get("unit") or "").upper().removesuffix("S")
        amount = str(getattr(node.this, "this", ""))
        if unit not in _MICROSECONDS or not re.fullmatch(r"-?\d{1,12}", amount):
            self._refuse(node, f"`{self._shown(node)}`: an interval is one number and a unit up to WEEK")
        return constant("interval", int(amount) * _MICROSECONDS[unit])

    # -- logic

    def _and(self, node: Any) -> Value:
        one, other = self._bool(node.this), self._bool(node.expression)

        def both(values: Any, held: Any) -> bool | None:
            first = one(values, held)
            if first is False:
                return False
            second = other(values, held)
            return False if second is False else None if first is None or second is None else True

        return Value("bool", both)

    def _or(self, node: Any) -> Value:
        one, other = self._bool(node.this), self._bool(node.expression)

        def either(values: Any, held: Any) -> bool | None:
            first = one(values, held)
            if first is True:
                return True
            second = other(values, held)
            return True if second is True else None if first is None or second is None else False

        return Value("bool", either)

    def _not(self, node: Any) -> Value:
        return negated(Value("bool", self._bool(node.this)))

    def _bool(self, node: Any) -> Function:
        found = self.value(node)
        if found.kind not in ("bool", "null"):
            self._refuse(node, f"`{self._shown(node)}` is not true or false")
        return found.get

    def _is(self, node: Any) -> Value:
        tested, what = self.value(node.this).get, type(node.expression).__name__
        if what == "Null":
            return Value("bool", lambda values, held: tested(values, held) is None)
        if what == "Boolean":
            wanted = bool(node.expression.this)
            return Value("bool", lambda values, held: tested(values, held) is wanted)
        self._refuse(node)

    # -- comparisons

    def _comparison(self, name: str, one: Value, other: Value, node: Any) -> Value:
        one, other, double = self._alike(one, other, node)
        if one.kind == "other" or (one.kind == "bool" and name not in ("EQ", "NEQ", "NullSafeEQ")):
            self._refuse(node, f"`{self._shown(node)}`: such values cannot be compared over several rows")
        first, second = one.get, other.get
        test = (DOUBLE if double else PLAIN)[_COMPARISONS[name]]
        if name == "NullSafeEQ":

            def same(values: Any, held: Any) -> bool:
                a, b = first(values, held), second(values, held)
                return a is None and b is None if a is None or b is None else bool(test(a, b))

            return Value("bool", same)

        def compared(values: Any, held: Any) -> bool | None:
            a = first(values, held)
            if a is None:
                return None
            b = second(values, held)
            return None if b is None else test(a, b)

        return Value("bool", compared)

    def _alike(self, one: Value, other: Value, node: Any) -> tuple[Value, Value, bool]:
        """Both converted to a common kind, and whether that is double."""
        if "null" in (one.kind, other.kind):
            return one, other, False
        if one.kind in _NUMBERS and other.kind in _NUMBERS:
            if "double" in (one.kind, other.kind):
                return as_double(one), as_double(other), True
            return one, other, False
        if one.kind != other.kind:
            words = {"int": "a number", "decimal": "a number", "double": "a number", "bool": "a boolean",
                     "time": "a timestamp", "other": "a value"}  # fmt: skip
            kinds = " and ".join(words.get(each.kind, f"a {each.kind}") for each in (one, other))
            self._refuse(node, f"`{self._shown(node)}` compares {kinds}: CAST one of them, of one row")
        return one, other, False

    def _between(self, node: Any) -> Value:
        tested = self.value(node.this)
        low = self._comparison("GTE", tested, self.value(node.args["low"]), node).get
        high = self._comparison("LTE", tested, self.value(node.args["high"]), node).get

        def within(values: Any, held: Any) -> bool | None:
            first, second = low(values, held), high(values, held)
            if first is False or second is False:
                return False
            return None if first is None or second is None else True

        return Value("bool", within)

    def _in(self, node: Any) -> Value:
        if not node.expressions:
            self._refuse(node)
        tested = self.value(node.this)
        tests = [self._comparison("EQ", tested, self.value(each), node).get for each in node.expressions]

        def among(values: Any, held: Any) -> bool | None:
            found: bool | None = False
            for test in tests:
                result = test(values, held)
                if result is True:
                    return True
                if result is None:
                    found = None
            return found

        return Value("bool", among)

    def _like(self, node: Any) -> Value:
        tested, pattern = self.value(node.this), self.value(node.expression)
        if tested.kind != "text" or not isinstance(pattern.constant, str):
            self._refuse(node, f"`{self._shown(node)}`: LIKE takes a text and a pattern in quotes")
        match, get = like_pattern(pattern.constant), tested.get

        def like(values: Any, held: Any) -> bool | None:
            text = get(values, held)
            return None if text is None else match(text) is not None

        return negated(Value("bool", like)) if node.args.get("negate") else Value("bool", like)

    # -- numbers and times

    def _arithmetic(self, name: str, one: Value, other: Value, node: Any) -> Value:
        times = {one.kind, other.kind}
        if times & {"time", "interval"}:
            kind = {
                ("Sub", "time", "time"): "interval",
                ("Add", "time", "interval"): "time",
                ("Add", "interval", "time"): "time",
                ("Sub", "time", "interval"): "time",
                ("Add", "interval", "interval"): "interval",
                ("Sub", "interval", "interval"): "interval",
            }.get((name, one.kind, other.kind))
            if kind is None:
                self._refuse(node)
            return strict(kind, FUNCTIONS[name], one, other)  # type: ignore[arg-type]
        if not all(each.kind in (*_NUMBERS, "null") for each in (one, other)):
            self._refuse(node)
        one, other, double = self._alike(one, other, node)
        if double:
            return strict("double", OF_DOUBLES.get(name, FUNCTIONS[name]), one, other)
        if "decimal" in (one.kind, other.kind):
            return strict("decimal", OF_DECIMALS[name], one, other)
        return strict("double" if name == "Div" else "int", FUNCTIONS[name], one, other)

    def _neg(self, node: Any) -> Value:
        found = self.value(node.this)
        if found.kind not in (*_NUMBERS, "interval", "null"):
            self._refuse(node)
        get = found.get

        def negative(values: Any, held: Any) -> Any:
            value = get(values, held)
            return None if value is None else -value

        return Value(found.kind, negative)

    def _abs(self, node: Any) -> Value:
        found = self.value(node.this)
        if found.kind not in (*_NUMBERS, "null"):
            self._refuse(node)
        get = found.get

        def absolute(values: Any, held: Any) -> Any:
            value = get(values, held)
            return None if value is None else abs(value)

        return Value(found.kind, absolute)

    # -- choices

    def _same_kind(self, found: list[Value], node: Any) -> tuple[Kind, list[Function]]:
        kinds = {each.kind for each in found} - {"null"}
        if kinds <= set(_NUMBERS) and "double" in kinds:
            return "double", [as_double(each).get for each in found]
        if kinds == {"int", "decimal"}:
            return "decimal", [each.get for each in found]
        if len(kinds) > 1:
            self._refuse(node, f"`{self._shown(node)}` gives values of several types")
        return (next(iter(kinds)) if kinds else "null"), [each.get for each in found]

    def _coalesce(self, node: Any) -> Value:
        kind, gets = self._same_kind([self.value(each) for each in (node.this, *node.expressions)], node)

        def first(values: Any, held: Any) -> Any:
            for get in gets:
                value = get(values, held)
                if value is not None:
                    return value
            return None

        return Value(kind, first)

    def _least(self, node: Any) -> Value:
        return self._extreme(node, min)

    def _greatest(self, node: Any) -> Value:
        return self._extreme(node, max)

    def _extreme(self, node: Any, choose: Callable[..., Any]) -> Value:
        kind, gets = self._same_kind([self.value(each) for each in (node.this, *node.expressions)], node)
        if kind in ("other", "bool"):
            self._refuse(node)

        def order(value: Any) -> Any:
            return (value != value, value)

        def chosen(values: Any, held: Any) -> Any:
            found = [value for get in gets if (value := get(values, held)) is not None]
            return choose(found, key=order) if found else None

        return Value(kind, chosen)

    def _if(self, node: Any) -> Value:
        return self._choice([(node.this, node.args["true"])], node.args.get("false"), None, node)

    def _case(self, node: Any) -> Value:
        branches = [(each.this, each.args["true"]) for each in node.args["ifs"]]
        return self._choice(branches, node.args.get("default"), node.this, node)

    def _choice(self, branches: list[tuple[Any, Any]], default: Any, subject: Any, node: Any) -> Value:
        if subject is None:
            tests = [self._bool(condition) for condition, _ in branches]
        else:
            whole = self.value(subject)
            tests = [self._comparison("EQ", whole, self.value(each), node).get for each, _ in branches]
        results = [self.value(result) for _, result in branches]
        results.append(constant("null", None) if default is None else self.value(default))
        kind, gets = self._same_kind(results, node)
        pairs = list(zip(tests, gets, strict=False))

        def chosen(values: Any, held: Any) -> Any:
            for test, get in pairs:
                if test(values, held) is True:
                    return get(values, held)
            return gets[-1](values, held)

        return Value(kind, chosen)
