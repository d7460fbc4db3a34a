"""Texts of queries as Spark gets them: parsed and analysed, and looked over before anything of them is run.

Spark's SQL reaches further than a query's relations: files by their path, other catalogs, commands behind a
WITH, programs, Java. Who may use what is decided for the relations that a statement names; so a plan may have
those, which are temporary views of the session, and nothing else that reads or does anything. What is not
listed here is refused: the check looks at Spark's plan, and depends on no reading of the text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from penstock.sql.errors import NotAllowed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARSED = frozenset(
    ("Aggregate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join",
     "LateralJoin", "LimitAll", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Pivot",
     "PlanWithUnresolvedIdentifier", "Project", "RepartitionByExpression", "ResolvedInlineTable", "Sample",
     "ScriptTransformation", "Sort", "SubqueryAlias", "Union", "UnresolvedHaving", "UnresolvedHint",
     "UnresolvedInlineTable", "UnresolvedRelation", "UnresolvedSubqueryColumnAliases",
     "UnresolvedTVFAliases", "UnresolvedTableValuedFunction", "Unpivot", "Window", "WithWindowDefinition")
)  # fmt: skip
"""What the parser makes of a query. All else is a command, which Spark would carry out while it analyses."""
_OPERATORS = frozenset(
    ("Aggregate", "AsOfJoin", "CTERelationDef", "Deduplicate", "DeduplicateWithinWatermark", "Distinct",
     "EventTimeWatermark", "Except", "Expand", "Filter", "Generate", "GlobalLimit", "Intersect", "Join",
     "LateralJoin", "LimitAll", "LocalLimit", "Offset", "PipeOperator", "Project", "RebalancePartitions",
     "Repartition", "RepartitionByExpression", "ResolvedHint", "Sample", "Sort", "SubqueryAlias", "Union",
     "UnionLoop", "Window", "WithCTE")
)  # fmt: skip
"""Operators that compute from what is below them, and do nothing else."""
_CONSTANT = frozenset(
    ("CTERelationRef", "LocalRelation", "OneRowRelation", "Range", "ResolvedInlineTable", "UnionLoopRef")
)
"""Leaves that read nothing: what is in the text, or elsewhere in the plan."""
_MOST_PLANS = 20_000

_GROUPS = frozenset(
    f"{name}_funcs"
    for name in (
        "agg", "array", "bitwise", "collection", "conditional", "conversion", "csv", "datetime", "generator",
        "hash", "json", "lambda", "map", "math", "predicate", "sketch", "st", "string", "struct", "url",
        "variant", "vector", "window",
    )
)  # fmt: skip
"""Groups of Spark's functions whose results follow from their arguments."""
_NAMES = frozenset(
    ("aes_decrypt", "aes_encrypt", "assert_true", "bitmap_bit_position", "bitmap_bucket_number",
     "bitmap_count", "current_catalog", "current_database", "current_path", "current_schema", "current_user",
     "hmac", "monotonically_increasing_id", "raise_error", "session_user", "spark_partition_id", "to_xml",
     "try_aes_decrypt", "typeof", "user", "uuid", "version", "xpath", "xpath_boolean", "xpath_double",
     "xpath_float", "xpath_int", "xpath_long", "xpath_number", "xpath_short", "xpath_string")
)  # fmt: skip
"""Functions of other groups that reach nothing outside. Without those that call Java, that name files
(from_xml validates by a schema at a path or URL, from_protobuf reads a descriptor), and input_file_name."""
_TABLE_FUNCTIONS = frozenset(
    ("collations", "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode",
     "posexplode_outer", "range", "sql_keywords", "stack", "variant_explode", "variant_explode_outer")
)  # fmt: skip

_CONFINING = {
    # `text.`/etc/passwd`` is the name of a missing table.
    "spark.sql.runSQLOnFiles": "false",
    # Spark's own variables: `${env:NAME}` is one of the server's environment, in strings and comments, too.
    "spark.sql.variable.substitute": "false",
}
"""Whatever the settings of a session are otherwise."""

_withheld: WeakKeyDictionary[SparkSession, tuple[tuple[Any, ...], tuple[Any, ...]]] = WeakKeyDictionary()


def confine(spark: SparkSession, session: SparkSession) -> None:
    """Takes from a session what reaches outside of a query: functions, files by path, the environment.

    `spark` is the application's first session, for which it is found out once which functions those are.
    """
    for name, value in _CONFINING.items():
        session.conf.set(name, value)
    if spark not in _withheld:
        _withheld[spark] = _find_withheld(spark)
    state = _java(session).sessionState()
    for registry, names in zip((state.functionRegistry(), state.tableFunctionRegistry()), _withheld[spark]):
        for name in names:
            if not registry.dropFunction(name):
                raise NotAllowed(f"Spark does not take `{name.funcName()}` from the session of a query")


def withheld(spark: SparkSession) -> tuple[str, ...]:
    """The names of functions that sessions do not have."""
    return tuple(str(name.funcName()) for names in _withheld.get(spark, ()) for name in names)


def analysed(session: SparkSession, text: str, views: Collection[str] = ()) -> DataFrame:
    """A query of these views. NotAllowed for what is no query, or reads or does more; else Spark's errors."""
    from pyspark.sql import DataFrame

    jvm: Any = session._jvm
    own = _java(session)
    # Spark looks settings up in the thread's session, and threads of ours may have none yet.
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(own)
    state = own.sessionState()
    parsed = state.sqlParser().parsePlan(text)
    _check_parsed(parsed)
    execution = state.executePlan(parsed, jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP())
    execution.assertAnalyzed()
    plan = execution.analyzed()
    _check_plan(plan, {each.casefold() for each in views})
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(own, plan), session)


def _java(session: SparkSession) -> Any:
    return session._jsparkSession


def _find_withheld(spark: SparkSession) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    jvm: Any = spark._jvm
    there = jvm.scala.Option.apply
    built_in = [
        (str(info.getName()), str(info.getGroup()))
        for info in jvm.org.apache.spark.sql.api.python.PythonSQLUtils.listBuiltinFunctionInfos()
    ]
    state = _java(spark).sessionState()
    registry, tables = state.functionRegistry(), state.tableFunctionRegistry()
    functions = []
    for name, group in built_in:
        if group in _GROUPS or name in _NAMES:
            continue
        found = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name, there("builtin"), there("system"))
        if registry.functionExists(found):
            functions.append(found)
    of_tables = [each for each in _items(tables.listFunction()) if each.funcName() not in _TABLE_FUNCTIONS]
    return tuple(functions), tuple(of_tables)


def _check_parsed(plan: Any) -> None:
    kind = _kind(plan)
    while kind == "UnresolvedWith":
        plan = plan.child()
        kind = _kind(plan)
    if kind not in _PARSED:
        raise NotAllowed(f"only a query can stand here, and to Spark this is {_said(kind)}")


def _check_plan(plan: Any, views: Collection[str]) -> None:
    waiting = [plan]
    looked_at = 0
    while waiting:
        plan = waiting.pop()
        looked_at += 1
        kind = _kind(plan)
        if kind == "View" and plan.isTempView():
            name = plan.desc().identifier()
            if name.database().isEmpty() and str(name.table()).casefold() in views:
                continue  # what is below it was put there by us
        below = list(_items(plan.children()))
        if kind not in (_OPERATORS if below else _CONSTANT) or looked_at > _MOST_PLANS:
            raise NotAllowed(f"a query reads streams, tables and topics; this one has {_said(kind)}")
        waiting += below
        waiting += _items(plan.subqueries())


def _said(kind: str) -> str:
    if kind == "ScriptTransformation":
        return "TRANSFORM … USING, which starts a program"
    return f"Spark's {kind}"


def _kind(plan: Any) -> str:
    return str(plan.getClass().getSimpleName()).removesuffix("$")


def _items(sequence: Any) -> Iterator[Any]:
    for at in range(sequence.size()):
        yield sequence.apply(at)
