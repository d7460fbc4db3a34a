"""Values that plans hold in Spark's JVM, as something that can be compared: equal exactly if the values are.

Values of users (patterns, options, sets, literals) are said element by element and by type; nothing is taken
out of their text, however much it looks like an id. What has no such form is said by its class and text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALYST = "org.apache.spark.sql.catalyst"
_BY_TEXT = frozenset(
    ("scala.Enumeration$Val", f"{_CATALYST}.expressions.NumericEvalContext",
     "org.apache.spark.unsafe.types.CalendarInterval")
)  # fmt: skip
_PLAIN_TYPE = re.compile(
    r"(boolean|byte|short|integer|long|float|double|string|char|varchar|date|time|timestamp|decimal|interval|void)"
    r"\b.*|timestamp_\w+"
)
_DEEPEST = 30
_ID = re.compile(r"#(\d+)L?(?:-T\d+ms)?")
_GENERATED = 1 << 31
"""Seeds that Spark chooses are any of 64 bits; people choose small ones."""


def is_plain(data_type: object) -> bool:
    """Whether a literal of the type, in the JSON of a plan, says all in its `value`."""
    return isinstance(data_type, str) and _PLAIN_TYPE.fullmatch(data_type) is not None


def is_chosen_seed(value: object) -> bool:
    """Whether somebody gave a seed. One of more than 31 bits is taken for one that Spark chose, which is
    another with every analysis."""
    text = str(value)
    return re.fullmatch(r"-?\d+", text) is not None and abs(int(text)) < _GENERATED


def without_ids(text: str, names: Mapping[int, str]) -> str:
    """The text of an operator or expression without the ids of columns, each of which stands behind the name
    that it has in the plan."""

    def known(found: re.Match[str]) -> str:
        name = names.get(int(found.group(1)))
        return "" if name is not None and text[: found.start()].endswith(name) else found.group()

    return _ID.sub(known, text)


class JvmValues:
    """`tree` reads an expression or a plan; `names` are those of columns by their ids."""

    def __init__(self, spark: SparkSession, tree: Callable[[Any], object], names: Mapping[int, str]) -> None:
        session: Any = spark
        self._jvm: Any = session._jvm
        self._gateway = session._sc._gateway
        self._tree = tree
        self._names = names

    def is_plan(self, value: Any) -> bool:
        return value is not None and self._is(value, f"{_CATALYST}.plans.logical.LogicalPlan")

    def of(self, value: Any, *, operator: bool = False, depth: int = 0) -> object:
        """What distinguishes a field's value. `operator`: it is no value of the user's, so that an object
        without a text of its own counts by its class."""
        if value is None:
            return "null"
        if isinstance(value, bool | int | float | Decimal | str):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, bytes | bytearray):
            return f"X'{bytes(value).hex()}'"
        kind = str(value.getClass().getName())
        if kind in _BY_TEXT:
            return str(value.toString())
        if kind == "org.apache.spark.unsafe.types.UTF8String":
            return f"str {bytes(value.getBytes())!r}"
        if kind.startswith("[") and depth < _DEEPEST:
            return tuple(self.of(each, operator=operator, depth=depth + 1) for each in value)
        if self._is(value, f"{_CATALYST}.trees.TreeNode"):
            return self._tree(value)
        if self._is(value, "org.apache.spark.sql.types.DataType"):
            return str(value.json())
        if depth < _DEEPEST:
            found = self._inside(kind, value, lambda each: self.of(each, operator=operator, depth=depth + 1))
            if found is not None:
                return found
        text = str(value.toString())
        if operator and re.fullmatch(rf"{re.escape(kind)}@[0-9a-f]+", text):
            return kind
        return f"{kind} {without_ids(text, self._names)}"

    def _inside(self, kind: str, value: Any, said: Callable[[Any], object]) -> object | None:
        """The elements of a collection, an Option or a case class; None if it is something else."""
        if kind.endswith(".ExprId"):
            return ""
        if kind.startswith(("scala.Some", "scala.None")):
            return ("Some", said(value.get())) if value.isDefined() else "None"
        if self._is(value, "scala.collection.Map"):
            pairs = ((said(each._1()), said(each._2())) for each in _all(value.iterator()))
            return ("Map", *sorted(pairs, key=lambda pair: str(pair[0])))
        if self._is(value, "scala.collection.Set"):
            return ("Set", *sorted((said(each) for each in _all(value.iterator())), key=str))
        if self._is(value, "scala.collection.Seq"):
            return tuple(said(each) for each in _all(value.iterator()))
        if self._is(value, "scala.Product") and not kind.endswith("$"):
            return (kind, *(said(each) for each in _all(value.productIterator())))
        return None

    def literal(self, expression: Any) -> str:
        """A literal of any type: as SQL, which Spark makes of it element by element."""
        return str(expression.sql())

    def set_of(self, expression: Any) -> str:
        """The values of an InSet, sorted, as literals of their type."""
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        anything = expressions.BoundReference(0, expression.child().dataType(), True)
        return str(expressions.InSet(anything, expression.hset()).sql())

    def rows(self, relation: Any) -> str:
        """Those of a LocalRelation."""
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        array = catalyst.util.GenericArrayData(relation.data())
        type_ = self._jvm.org.apache.spark.sql.types.ArrayType(relation.schema(), True)
        return str(catalyst.expressions.Literal(array, type_).sql())

    def _is(self, value: Any, kind: str) -> bool:
        from py4j.java_gateway import is_instance_of

        return bool(is_instance_of(self._gateway, value, kind))


def _all(iterator: Any) -> Iterator[Any]:
    while iterator.hasNext():
        yield iterator.next()
