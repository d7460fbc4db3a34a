"""Values of a pattern's conditions: functions of a row and of registers, and what is computed with them.

Nulls and NaN are Spark's: NaN equals NaN and is more than every other number, and a comparison with null is
null.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context
from typing import Any, Literal

Kind = Literal["int", "decimal", "double", "text", "bool", "time", "date", "interval", "null", "other"]
"""Of a value: `time` and `interval` are microseconds, `date` is days, each as an int."""
Function = Callable[[tuple[Any, ...], tuple[Any, ...]], Any]
"""Of the values of a row and of registers."""
EXACT = Context(prec=38)


@dataclass(frozen=True, slots=True)
class Value:
    kind: Kind
    get: Function
    constant: Any = None
    """Of a literal."""


def constant(kind: Kind, value: Any) -> Value:
    return Value(kind, lambda values, held: value, value)


def negated(found: Value) -> Value:
    get = found.get

    def negated(values: Any, held: Any) -> bool | None:
        value = get(values, held)
        return None if value is None else not value

    return Value("bool", negated)


def as_double(found: Value) -> Value:
    if found.kind == "double":
        return found
    if found.constant is not None:
        return constant("double", float(found.constant))
    get = found.get

    def double(values: Any, held: Any) -> float | None:
        value = get(values, held)
        return None if value is None else float(value)

    return Value("double", double)


def strict(kind: Kind, function: Callable[[Any, Any], Any], one: Value, other: Value) -> Value:
    """Null if one of both is."""
    first, second = one.get, other.get

    def applied(values: Any, held: Any) -> Any:
        a = first(values, held)
        if a is None:
            return None
        b = second(values, held)
        return None if b is None else function(a, b)

    return Value(kind, applied)


def divided(a: Any, b: Any) -> Any:
    return a / b if b else None


def remainder(a: Any, b: Any) -> Any:
    """With the sign of the dividend, as in SQL."""
    return None if not b else abs(a) % abs(b) * (1 if a >= 0 else -1)


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": divided,
    "Mod": remainder,
}
OF_DOUBLES: dict[str, Callable[[Any, Any], Any]] = {
    "Mod": lambda a, b: math.fmod(a, b) if b and math.isfinite(a) else None if not b else math.nan,
}
OF_DECIMALS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": EXACT.add,
    "Sub": EXACT.subtract,
    "Mul": EXACT.multiply,
    "Div": lambda a, b: EXACT.divide(a, b) if b else None,
    "Mod": lambda a, b: EXACT.remainder(a, b) if b else None,
}
PLAIN: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<=>": operator.eq,
    "<>": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def equal(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


def more(a: float, b: float) -> bool:
    return a > b or (a != a and b == b)


DOUBLE: dict[str, Callable[[Any, Any], bool]] = {
    "=": equal,
    "<=>": equal,
    "<>": lambda a, b: not equal(a, b),
    ">": more,
    ">=": lambda a, b: not more(b, a),
    "<": lambda a, b: more(b, a),
    "<=": lambda a, b: not more(a, b),
}


def like_pattern(pattern: str) -> Callable[[str], Any]:
    """`%` is any text, `_` any character, and a backslash takes that from what follows it."""
    made, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            at += 1
            made.append(re.escape(pattern[at]))
        else:
            made.append({"%": ".*", "_": "."}.get(char, re.escape(char)))
        at += 1
    return re.compile("".join(made), re.DOTALL).fullmatch
