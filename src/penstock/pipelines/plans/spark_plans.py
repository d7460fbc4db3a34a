"""Reads logical plans out of Spark's JVM: as PlanNodes for `fingerprint` and `lineage`, and which tables they
read.

Spark gives a plan as JSON, with null for each field that it has no JSON for; those are asked for one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.pipelines.plans import python_code
from penstock.pipelines.plans.dependencies import Kept
from penstock.pipelines.plans.expressions import Expression, digest_of
from penstock.pipelines.plans.fingerprint import (
    PlanNode,
    deciding_settings,
    source_identity,
    state_of,
)
from penstock.pipelines.plans.jvm_values import JvmValues, is_chosen_seed, is_plain, without_ids
from penstock.pipelines.plans.lineage import lineage, query_digest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WIDE = 10_000
"""Fields of a node that its text names: all of them."""
_NEEDS_INPUT = ("Join", "Deduplicate", "DeduplicateWithinWatermark")
_PLAIN_FIELDS = frozenset(("class", "num-children", "jvmId"))
_OF_PLANS = frozenset(
    # Children, what `source` and `table` say, and what is new with every analysis.
    ("child", "left", "right", "children", "nodeId", "hint", "stats", "cteId", "id", "desc",
     "sourceIdentifyingName", "allAttributes", "initialState")
)  # fmt: skip
_OF_LEAVES = frozenset(
    ("source", "table", "extraOptions", "output", "catalog", "identifier", "v1Relation", "dataSource",
     "relation", "catalogTable", "rdd", "session", "outputPartitioning", "outputOrdering", "options", "scan",
     "keyGroupedPartitioning", "ordering", "data", "stream", "isStreaming", "originStats",
     "originConstraints", "originLogicalPlan", "cacheBuilder")
)  # fmt: skip
_SEEDS = ("seed", "randomSeed")
_COLUMN = re.compile(r"(.*)#(\d+)L?(?:-T\d+ms)?", re.DOTALL)


_NO_OPTIONS: Mapping[str, str | None] = {}


def read_plan(
    spark: SparkSession,
    frame: Any,
    opaque: Callable[[], str] = str,
    options: Mapping[str, str | None] = _NO_OPTIONS,
) -> tuple[PlanNode, PlanNode | None]:
    """The analysed plan of a DataFrame, and the optimised one, which has only the columns that are used.

    The latter is None for an operator that only a running stream can optimise. `opaque` stands for what no
    plan shows: Python functions that cannot be taken apart, rows that Python code has given. `options` of
    streaming sources count with these values, whatever they are; with None not at all.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    session: Any = spark
    analysed = frame._jdf.queryExecution().analyzed()
    node = _Reader(session, opaque, options).read(analysed)
    if not frame.isStreaming:
        return node, node
    try:
        optimized = session._jsparkSession.sessionState().optimizer().execute(analysed)
    except (Py4JError, PySparkException):
        return node, None
    return node, _Reader(session, opaque, options).read(optimized)


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """A query as far as it decides what happens to state; parts of a FlowPrint."""

    plan: PlanNode
    state: tuple[str, ...]
    query: str
    gives: str
    lineage: tuple[Kept, ...]


def read_query(
    spark: SparkSession,
    frame: Any,
    *,
    opaque: Callable[[], str] = str,
    more: Mapping[str, str] | None = None,
    options: Mapping[str, str | None] = _NO_OPTIONS,
) -> ReadQuery:
    """The query of a DataFrame, in a session with the settings that it runs with. `more` are things beside
    them that change what it gives; `options` as in `read_plan`."""
    plan, optimized = read_plan(spark, frame, opaque, options)
    conf = spark.conf
    settings = deciding_settings(conf.getAll, lambda name: str(conf.get(name))) | dict(more or {})
    whole = digest_of(query_digest(plan), sorted(settings.items()))
    gives = digest_of(query_digest(plan, tuned=False), sorted(settings.items()))
    if not frame.isStreaming:
        return ReadQuery(plan, (), whole, gives, ())
    kept = lineage(optimized, plan, settings=settings)
    return ReadQuery(plan, state_of(optimized or plan), whole, gives, kept)


class _Reader:
    def __init__(self, spark: Any, opaque: Callable[[], str], options: Mapping[str, str | None]) -> None:
        self._spark = spark
        self._opaque = opaque
        self._options = options

    def read(self, plan: Any) -> PlanNode:
        items = json.loads(plan.toJSON())
        self._names = dict(_named_ids(items))
        self._values = JvmValues(self._spark, self._tree, self._names)
        self._whole = plan
        return self._node(iter(items), plan)

    def _tree(self, at: Any) -> Expression:
        """An expression that the JSON of a plan does not have."""
        items = json.loads(at.toJSON())
        self._names.update(_named_ids(items))
        return self._expression(iter(items), at)

    def _node(self, items: Iterator[dict[str, Any]], plan: Any) -> PlanNode:
        item = next(items)
        name = item["class"].rsplit(".", 1)[-1]
        below = [(self._node(items, child), child) for child in _items(plan.children())]
        if name in _NEEDS_INPUT:
            children = tuple(_with_output(node, _columns(child)) for node, child in below)
        else:
            children = tuple(node for node, _ in below)
        streaming = bool(plan.isStreaming())
        source, table, types = None, "", {}
        if not children:
            source = self._source(plan, name) if streaming else None
            table = "" if streaming else self._table(plan, name)
            types = _types(item.get("output"))
        left_out = _OF_PLANS if children else _OF_PLANS | _OF_LEAVES
        left_out |= {"function"} if name == "SQLFunctionNode" else set()
        return PlanNode(
            name,
            plan.simpleString(_WIDE),
            streaming,
            children=children,
            source=source,
            table=table,
            detail=self._fields(item, plan, left_out, operator=True),
            ids=_ids(plan),
            types=types,
        )

    def _table(self, plan: Any, name: str) -> str:
        """What distinguishes a table that is read as it stands from others."""
        known = _table(plan)
        if name == "LogicalRelation":
            relation = plan.relation()
            try:
                if known:
                    return f"{known} {relation.toString()}"
                where = relation.location().rootPaths().mkString(", ")
                return f"{where} {relation.toString()} {relation.options().toString()}"
            except Exception:  # noqa: BLE001 - no relation of files; its class has other fields
                return known or self._opaque()
        if name in ("DataSourceV2Relation", "DataSourceV2ScanRelation"):
            read = plan if name == "DataSourceV2Relation" else plan.relation()
            options = dict(read.options().asCaseSensitiveMap())
            offsets = {key: each for key, each in options.items() if key.lower().endswith("ingoffsets")}
            return (
                f"{source_identity(known or str(read.table().name()), options, '')} {sorted(offsets.items())}"
            )
        if name == "LocalRelation":
            return f"rows {self._values.rows(plan)}"
        if name in ("LogicalRDD", "ExternalRDD", "InMemoryRelation"):
            return known or f"rows that Python code gives {self._opaque()}"
        return known or name

    # -- fields

    def _fields(
        self, item: Mapping[str, Any], at: Any, left_out: frozenset[str], *, operator: bool = False
    ) -> dict[str, object]:
        return {
            name: self._value(item, name, value, at, operator=operator)
            for name, value in item.items()
            if name not in left_out
            and name not in _PLAIN_FIELDS
            and (name not in _SEEDS or is_chosen_seed(value))
        }

    def _value(self, item: Mapping[str, Any], name: str, value: Any, at: Any, *, operator: bool) -> object:
        if name == "func" and "Python" in item["class"]:
            return self._function(at)
        if name == "hset" and at is not None:
            return self._values.set_of(at)
        if value is None:
            return self._asked(at, name, operator=operator)
        return self._converted(value, lambda: getattr(at, name)())

    def _asked(self, at: Any, name: str, *, operator: bool) -> object:
        """A field that has no JSON. Where the JVM does not say it either, the text of what has it stands for
        it: that may be another for the same query, and is never the same for another one."""
        from py4j.protocol import Py4JError

        if at is None:
            return self._text(self._whole)
        try:
            return self._values.of(getattr(at, name)(), operator=operator)
        except (Py4JError, AttributeError, TypeError):
            return self._text(at)

    def _text(self, at: Any) -> str:
        return without_ids(str(at.toString()), self._names)

    def _converted(self, value: Any, asked: Any) -> object:
        """A field's value; `asked` gives the JVM's own, if it is needed."""
        if isinstance(value, list):
            if value and isinstance(value[0], dict) and "class" in value[0]:
                # Most expressions are in the JSON as they are, and each question to the JVM takes its time.
                return self._expression(iter(value), _inside(asked) if _needs_jvm(value) else None)
            whole: list[Any] = []

            def each(at: int) -> Any:
                if not whole:
                    whole.append(_inside(asked))
                return whole[0].apply(at) if whole[0] is not None else None

            return tuple(self._converted(one, lambda at=at: each(at)) for at, one in enumerate(value))
        if isinstance(value, dict):
            if str(value.get("product-class", "")).endswith(".ExprId"):
                return ""
            if "object" in value:
                return str(value["object"])
            return json.dumps(value, sort_keys=True)
        return str(value)

    def _expression(self, items: Iterator[dict[str, Any]], at: Any) -> Expression:
        item = next(items)
        kind = item["class"].rsplit(".", 1)[-1]
        count = item["num-children"]
        inside = list(_items(at.children())) if at is not None and count else [None] * count
        # A function of SQL is its body, which is the child; the rest has the time of its making in it.
        of_sql = ("function",) if kind == "SQLScalarFunction" else ()
        if kind == "Literal":
            fields = self._literal(item, at)
        elif ".expressions." not in item["class"] and self._values.is_plan(at):
            fields = self._of_subquery(item, at, kind)
        else:
            fields = self._fields(item, at, frozenset(("exprId", "branches", *of_sql)))
        children = tuple(self._expression(items, inside[each]) for each in range(count))
        number = item.get("exprId") or {}
        type_ = json.dumps(item["dataType"]) if kind in ("AttributeReference", "NamedLambdaVariable") else ""
        if kind in ("AttributeReference", "NamedLambdaVariable"):
            fields = {"name": item["name"]}
        return Expression(kind, fields, children, int(number.get("id", -1)), type_)

    def _literal(self, item: Mapping[str, Any], at: Any) -> dict[str, object]:
        data_type, value = item["dataType"], item["value"]
        fields = {"dataType": data_type if isinstance(data_type, str) else json.dumps(data_type)}
        if value is None:
            return {**fields, "value": "NULL", "null": "True"}
        if is_plain(data_type):
            return {**fields, "value": str(value)}
        return {**fields, "value": self._text(self._whole) if at is None else self._values.literal(at)}

    def _of_subquery(self, item: Mapping[str, Any], at: Any, name: str) -> dict[str, object]:
        """The fields of an operator of a subquery. Of its leaves the columns are among them, too."""
        if item["num-children"]:
            return self._fields(item, at, _OF_PLANS, operator=True)
        fields = self._fields(item, at, _OF_PLANS | (_OF_LEAVES - {"output"}), operator=True)
        if at.isStreaming():
            format_, options = self._source(at, name)
            return {**fields, "source": f"{format_} {sorted(options.items())}"}
        return {**fields, "table": self._table(at, name)}

    def _source(self, at: Any, name: str) -> tuple[str, dict[str, str]]:
        format_, options = _source(self._spark, at, name)
        chosen = {key: self._options.get(key, value) for key, value in options.items()}
        return format_, {key: value for key, value in chosen.items() if value is not None}

    def _function(self, at: Any) -> str:
        """A Python function by what it does."""
        from pyspark import cloudpickle

        try:
            signed_bytes = str(at.func().command().mkString(","))
            command = cloudpickle.loads(bytes(int(each) & 0xFF for each in signed_bytes.split(",")))
            found = python_code.described(command)
        except Exception:  # noqa: BLE001 - unpickling runs code of others, and a large function is elsewhere
            return f"unknown {self._opaque()}"
        return f"{found.digest} unknown {self._opaque()}" if found.unknown else found.digest


def _needs_jvm(value: Any) -> bool:
    """Whether the JSON of an expression does not say all of it."""
    if isinstance(value, dict):
        kind = value.get("class", "")
        if isinstance(kind, str) and kind.endswith(".Literal"):
            return value["value"] is not None and not is_plain(value["dataType"])
        return ".plans." in str(kind) or any(_needs_jvm(each) for each in value.values())
    if isinstance(value, list):
        return any(_needs_jvm(each) for each in value)
    return value is None


def _named_ids(value: Any) -> Iterator[tuple[int, str]]:
    """Ids and names of all columns in the JSON of a plan."""
    if isinstance(value, dict):
        number = value.get("exprId")
        if isinstance(number, dict) and isinstance(value.get("name"), str):
            yield number["id"], value["name"]
        for each in value.values():
            yield from _named_ids(each)
    elif isinstance(value, list):
        for each in value:
            yield from _named_ids(each)


def _inside(asked: Any) -> Any:
    """What the JVM has for a field, without an Option around it; None if it does not say."""
    from py4j.protocol import Py4JError

    try:
        found = asked()
        return found.get() if found is not None and found.getClass().getSimpleName() == "Some" else found
    except (Py4JError, AttributeError, TypeError):
        return None


def _with_output(node: PlanNode, columns: str) -> PlanNode:
    return replace(node, output=(columns,))


def _ids(plan: Any) -> tuple[tuple[int, str], ...]:
    columns = str(plan.output().mkString("\x01"))
    found = [_COLUMN.fullmatch(each) for each in columns.split("\x01")] if columns else []
    return tuple((int(each.group(2)), each.group(1)) for each in found if each is not None)


def _types(output: Any) -> dict[int, str]:
    """Of the columns of a leaf, as its JSON has them."""
    if not isinstance(output, list):
        return {}
    return {
        each[0]["exprId"]["id"]: json.dumps(each[0]["dataType"])
        for each in output
        if isinstance(each, list) and each and "exprId" in each[0]
    }


def _columns(plan: Any) -> str:
    return str(plan.schema().simpleString())


def _source(spark: Any, plan: Any, name: str) -> tuple[str, dict[str, str]]:
    if name == "StreamingRelationV2":
        return str(plan.sourceName()), dict(plan.extraOptions().asCaseSensitiveMap())
    if name == "StreamingRelation":
        source = plan.dataSource()
        options = spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(source.options())
        return str(source.className()), dict(options)
    return name, {"plan": plan.simpleString(_WIDE)}


def tables_read(spark: SparkSession, frame: Any) -> tuple[list[str], list[str]]:
    """The full names of the catalog's tables that a query reads: as streams, and as they stand."""
    analysed = frame._jdf.queryExecution().analyzed()
    streams: dict[str, None] = {}
    static: dict[str, None] = {}
    for plan in (analysed, *_items(analysed.subqueriesAll())):
        for leaf in _items(plan.collectLeaves()):
            name = _table(leaf)
            if name:
                (streams if leaf.isStreaming() else static).setdefault(name.lower())
    return list(streams), list(static)


def _table(leaf: Any) -> str | None:
    kind = leaf.getClass().getSimpleName()
    if kind == "StreamingRelation":
        table = leaf.dataSource().catalogTable()
        return str(table.get().identifier().unquotedString()) if table.isDefined() else None
    if kind == "LogicalRelation":
        table = leaf.catalogTable()
        return str(table.get().identifier().unquotedString()) if table.isDefined() else None
    if kind == "HiveTableRelation":
        return str(leaf.tableMeta().identifier().unquotedString())
    if kind in ("DataSourceV2Relation", "StreamingRelationV2"):
        identifier, catalog = leaf.identifier(), leaf.catalog()
        if identifier.isDefined() and catalog.isDefined():
            return f"{catalog.get().name()}.{identifier.get()}"
    return None


def _items(sequence: Any) -> Iterator[Any]:
    for at in range(sequence.size()):
        yield sequence.apply(at)
