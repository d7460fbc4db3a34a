"""What the state of a query depends on: for each stateful operator, everything beneath it in the plan.

The keys of a row select its state, if filters, joins and the watermark pass it. So two queries can share the
state of an operator if the keys, values, conditions, event times and sources beneath it are the same,
whatever the names of columns: expressions are resolved down to the columns of sources.

Pure: takes plans as `PlanNode`s with `detail`. What cannot be resolved in parts (a table of a source with
filter pushdown, the current time, an unknown operator) counts as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.pipelines.plans.dependencies import Kept, Part
from penstock.pipelines.plans.expressions import (
    Expression,
    NotFollowed,
    Numbers,
    Said,
    digest_of,
    of_literal,
    resolved,
)
from penstock.pipelines.plans.fingerprint import PlanNode, is_stateful, source_identity

_AS_THEY_ARE = frozenset(
    ("SubqueryAlias", "View", "Repartition", "RepartitionByExpression", "RebalancePartitions", "ResolvedHint")
)
_CURRENT_TIME = frozenset(
    ("CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp", "CurrentTime", "CurDate")
)
_TAKES_CONDITIONS_OVER = ("DataSourceV2Relation", "DataSourceV2ScanRelation")
"""Tables whose source may take a condition out of the plan, and does not say so."""


def lineage(
    optimized: PlanNode | None,
    analysed: PlanNode,
    settings: Mapping[str, str],
) -> tuple[Kept, ...]:
    """The dependencies of each stateful operator of a streaming query, in Spark's order.

    `optimized` is None if Spark could not create it. `settings` are those that change results of expressions.
    """
    whole = query_digest(analysed, tuned=False)
    why = "an operator that Spark plans only when it runs"
    if optimized is not None and not uses_current_time(analysed):
        walk = _Walk(whole)
        try:
            walk.rows(optimized)
            common = (*walk.watermarks(), *_of_settings(settings))
            return tuple(Kept(each.operator, (*each.parts, *common)) for each in walk.found)
        except NotFollowed as error:
            why = f"`{error}`, which cannot be followed to a source,"
    elif optimized is not None:
        why = "the current time"
    operators = [node.name for node in (optimized or analysed).walk() if is_stateful(node)]
    part = Part(f"its query, which uses {why} and is compared as a whole,", "the query", whole)
    return tuple(Kept(name, (part, *_of_settings(settings))) for name in operators)


def _of_settings(settings: Mapping[str, str]) -> tuple[Part, ...]:
    return tuple(
        Part("a setting", f"{name}={value}", digest_of(name, value))
        for name, value in sorted(settings.items())
    )


def uses_current_time(plan: PlanNode) -> bool:
    """Whether the optimised plan contains the time of its creation."""
    return any(
        expression.kind in _CURRENT_TIME
        for node in plan.walk()
        for each in node.detail.values()
        for expression in _expressions(each)
    )


def _expressions(value: object) -> Iterator[Expression]:
    if isinstance(value, Expression):
        yield from value.walk()
    elif isinstance(value, tuple):
        for each in value:
            yield from _expressions(each)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The output of an operator: what decides which rows it has, and the definitions of their columns."""

    parts: tuple[Part, ...]
    columns: Mapping[int, Said]
    """By the ids of columns."""
    output: tuple[int, ...]

    def values(self) -> tuple[Said, ...]:
        if any(each not in self.columns for each in self.output):
            raise NotFollowed(str(self.output))
        return tuple(self.columns[each] for each in self.output)


class _Walk:
    def __init__(self, whole: str) -> None:
        self.found: list[Kept] = []
        self._whole = whole
        self._sources = 0
        self._marks: list[Said] = []

    def watermarks(self) -> tuple[Part, ...]:
        """The watermarks of the whole query: Spark uses one for all operators, the minimum of all."""
        return tuple(Part("a watermark", each.text, each.digest) for each in self._marks)

    def rows(self, node: PlanNode) -> _Rows:
        below = [self.rows(child) for child in node.children]
        found = self._of(node, below)
        output = tuple(each for each, _ in node.ids)
        return _Rows(found.parts, found.columns, output or found.output)

    def _of(self, node: PlanNode, below: list[_Rows]) -> _Rows:
        if not node.children:
            return self._leaf(node)
        known = {
            "Project": self._project,
            "Filter": self._filter,
            "Aggregate": self._aggregate,
            "Join": self._join,
            "Union": self._union,
            "Generate": self._generate,
            "Expand": self._expand,
            "EventTimeWatermark": self._watermark,
            "Deduplicate": self._deduplicate,
            "DeduplicateWithinWatermark": self._deduplicate,
            "GlobalLimit": self._limit,
            "LocalLimit": self._limit,
            "BatchEvalPython": self._python,
            "ArrowEvalPython": self._python,
        }.get(node.name)
        if node.name in _AS_THEY_ARE and len(below) == 1:
            return below[0]
        return known(node, below) if known is not None else self._other(node, below)

    # -- leaves

    def _leaf(self, node: PlanNode) -> _Rows:
        if node.source is not None:
            self._sources += 1
            format_, options = node.source
            chosen = {**options, **_isolation(options)}
            text = source_identity(format_, chosen, "")
            parts = (Part("a source", text, digest_of("source", text)),)
            key = digest_of("source", self._sources, text)
        elif node.name in _TAKES_CONDITIONS_OVER:
            label = f"its query, which looks up a table ({node.table}) and is compared as a whole,"
            parts = (Part(label, "the query", self._whole),)
            key = digest_of("table", self._whole)
        else:
            text = node.table or node.name
            shown = digest_of(text, _detail(node, {}))
            parts = (Part("a table that it looks up", text, shown),)
            self._sources += 1
            key = digest_of("table", self._sources, shown)
        columns = {
            number: Said(digest_of(key, name, node.types.get(number, "")), name) for number, name in node.ids
        }
        return _Rows(parts, columns, tuple(columns))

    # -- operators

    def _project(self, node: PlanNode, below: list[_Rows]) -> _Rows:
        (rows,) = below
        columns = dict(_named(node.detail["projectList"], rows.columns))
        return _Rows(rows.parts, columns, tuple(columns))

    def _filter(self, node: PlanNode, below: list[_Rows]) -> _Rows:
        (rows,) = below
        conditions = sorted(
            {resolved(each, rows.columns) for each in _conjuncts(node.detail["condition"])},
            key=lambda each: each.digest,
        )
        parts = (Part("a filter", each.text, each.digest) for each in conditions)
        return _Rows((*rows.parts, *parts), rows.columns, rows.output)

    def _aggregate(self, node: PlanNode, below: list[_Rows]) -> _Rows:
        (rows,) = below
        keys = [resolved(each, rows.columns) for each in _list(node.detail["groupingExpressions"])]
        results = _list(node.detail["aggregateExpressions"])
        values: dict[str, Said] = {}
        for each in results:
            for expression in each.walk():
                if expression.kind in ("AggregateExpression", "PythonUDAF"):
                    said = resolved(expression, rows.columns)
                    values.setdefault(said.digest, said)
        parts = (
            *rows.parts,
            *(Part("a grouping key", each.text, digest_of("key", each.digest)) for each in keys),
            *(Part("an aggregate", each.text, each.digest) for each in values.values()),
        )
        self._keep(node, parts)
        columns = dict(_named(results, rows.columns))
        return _Rows(parts, columns, tuple(columns))

    def _join(self, node: PlanNode, below: list[_Rows]) -> _Rows:
        left, right = below
        columns = {**left.columns, **right.columns}
        how = str(node.detail.get("joinType"))
        kind = how.rsplit(".", 1)[-1].rstrip("$'}")
        condition = node.detail.get("condition")
        said = resolved(condition, columns) if isinstance(condition, Expression) else Said("", "everything")
        # The condition's order is that of the keys in the state.
        part = Part("a join", f"{kind} on {said.text}", digest_of("join", how, said.digest))
        parts = (*left.parts, *right.parts, part)
        if is_stateful(node):
            sides = (("left", left), ("right", right))
            kept = [
                Part(f"the {side} side of a join", each.text, digest_of(side, each.digest))
                for side, rows in sides
                for each in rows.values()
            ]
            self._keep(node, (*parts, *kept))
        if "ExistenceJoin" in how:
            columns |= {number: Said(digest_of("exists", part.digest), "exists") for number, _ in node.ids
                        if number not in columns}  # fmt: skip
        return _Rows(parts, columns, (*left.output, *right.output))

    def _union(self, node: PlanNode, below: list[_Rows]) -> _Rows:
        parts = tuple(part for rows in below for part in rows.parts)
        each = list(zip(*(rows.values() for rows in below), strict=False))
        columns = {
            number: Said(digest_of("union", *(said.digest for said in column)), column[0].text)
            for (number, _), column in zip(node.ids, each, strict=False)
        }
        together = Part(
            "a union", f"of {len(below)}", digest_of("union", *(len(rows.parts) for rows in below))
        )
        return _Rows((*parts, together), columns, tuple(columns))

    def _generate(self, node: PlanNode, below: list[_Rows]) -> _Rows:
        (rows,) = below
        generator = resolved(_one(node.detail["generator"]), rows.columns)
        outer = str(node.detail.get("outer"))
        part = Part("a generator", generator.text, digest_of("generate", generator.digest, outer))
        made = {
            each.number: Said(digest_of(part.digest, at), f"{generator.text}.{at}")
            for at, each in enumerate(_list(node.detail["generatorOutput"]))
        }
        columns = {**rows.columns, **made}
        return _Rows((*rows.parts, part), columns, (*rows.output, *made))

    def _expand(self, node: PlanNode, below: list[_Rows]) -> _Rows:
        (rows,) = below
        lists = node.detail["projections"]
        if not isinstance(lists, tuple):
            raise NotFollowed("Expand")
        each = [[resolved(item, rows.columns) for item in _list(row)] for row in lists]
        columns = {}
        for at, output in enumerate(_list(node.detail["output"])):
            same = len({row[at] for row in each}) == 1
            digest = digest_of("expand", *(row[at].digest for row in each))
            columns[output.number] = each[0][at] if same else Said(digest, each[0][at].text)
        part = Part("how often a row counts", f"{len(each)} times", digest_of("expand", len(each)))
        return _Rows((*rows.parts, part), columns, tuple(columns))

    def _watermark(self, node: PlanNode, below: list[_Rows]) -> _Rows:
        (rows,) = below
        time = resolved(_one(node.detail["eventTime"]), rows.columns)
        delay = str(node.detail.get("delay"))
        self._marks.append(Said(digest_of("watermark", time.digest, delay), f"{time.text}, {delay}"))
        return rows

    def _deduplicate(self, node: PlanNode, below: list[_Rows]) -> _Rows:
        (rows,) = below
        keys = [resolved(each, rows.columns) for each in _list(node.detail["keys"])]
        parts = (
            *rows.parts,
            *(Part("a key of duplicates", each.text, digest_of(node.name, each.digest)) for each in keys),
        )
        self._keep(node, parts)
        return _Rows(parts, rows.columns, rows.output)

    def _limit(self, node: PlanNode, below: list[_Rows]) -> _Rows:
        (rows,) = below
        limit = of_literal(_one(node.detail["limitExpr"]))
        parts = (*rows.parts, Part("a limit", limit, digest_of(node.name, limit)))
        self._keep(node, parts)
        return _Rows(parts, rows.columns, rows.output)

    def _python(self, node: PlanNode, below: list[_Rows]) -> _Rows:
        (rows,) = below
        columns = dict(rows.columns)
        outputs = _list(node.detail["resultAttrs"])
        for output, call in zip(outputs, _list(node.detail["udfs"]), strict=True):
            columns[output.number] = resolved(call, columns)
        return _Rows(rows.parts, columns, (*rows.output, *(each.number for each in outputs)))

    def _other(self, node: PlanNode, below: list[_Rows]) -> _Rows:
        """An operator that is not resolved: all of its input counts."""
        columns = {number: Said(digest_of("output", at), name) for at, (number, name) in enumerate(node.ids)}
        columns |= {number: said for rows in below for number, said in rows.columns.items()}
        inside = digest_of(
            node.name,
            _detail(node, columns),
            *(said.digest for rows in below for said in rows.values()),
        )
        name = next((each.said() for each in _calls(node)), "")
        shown = f"{node.name} {name}".strip()
        parts = (*(part for rows in below for part in rows.parts), Part("an operator", shown, inside))
        self._keep(node, parts)
        made = {number: Said(digest_of(inside, at), name) for at, (number, name) in enumerate(node.ids)}
        if len(below) == 1 and set(made) <= set(below[0].columns):
            made = {number: below[0].columns[number] for number in made}  # it passes rows through
        return _Rows(parts, made, tuple(made))

    def _keep(self, node: PlanNode, parts: tuple[Part, ...]) -> None:
        if is_stateful(node):
            self.found.append(Kept(node.name, parts))


def _isolation(options: Mapping[str, str]) -> dict[str, str]:
    """Whether aborted transactions are read, under a name that does not count as a connection setting."""
    found = {key: value for key, value in options.items() if key.lower() == "kafka.isolation.level"}
    return {"isolation": next(iter(found.values()))} if found else {}


def _calls(node: PlanNode) -> Iterator[Expression]:
    for each in node.detail.values():
        yield from (expression for expression in _expressions(each) if expression.kind == "PythonUDF")


def _list(value: object) -> tuple[Expression, ...]:
    if not isinstance(value, tuple) or not all(isinstance(each, Expression) for each in value):
        raise NotFollowed("a list of expressions")
    return value


def _one(value: object) -> Expression:
    if not isinstance(value, Expression):
        raise NotFollowed("an expression")
    return value


def _named(items: object, columns: Mapping[int, Said]) -> Iterator[tuple[int, Said]]:
    for each in _list(items):
        yield each.number, resolved(each, columns)


def _conjuncts(condition: object) -> Iterator[Expression]:
    expression = _one(condition)
    if expression.kind == "And":
        for each in expression.children:
            yield from _conjuncts(each)
    else:
        yield expression


def _detail(node: PlanNode, columns: Mapping[int, Said]) -> str:
    """Everything about an operator, with its expressions resolved."""

    def said(value: object) -> str:
        if isinstance(value, Expression):
            return resolved(value, columns).digest
        if isinstance(value, tuple):
            return digest_of(*(said(each) for each in value))
        return str(value)

    return digest_of(*(f"{name}={said(value)}" for name, value in sorted(node.detail.items())))


_PASSES_ON = frozenset(
    ("Project", "Filter", "Aggregate", "Join", "SubqueryAlias", "View", "EventTimeWatermark", "Deduplicate",
     "DeduplicateWithinWatermark", "Repartition", "RepartitionByExpression")
)  # fmt: skip
"""Operators that use no column which they do not name. `Project` and `Aggregate` drop the others."""


def query_digest(plan: PlanNode, *, tuned: bool = True) -> str:
    """A whole analysed plan. Columns are identified by the place where they first stand; without `tuned`,
    options that say how sources are read are left out, and so are columns of sources that nothing uses."""
    numbers = Numbers()
    lines: list[str] = []
    all_columns = tuned or any(node.children and node.name not in _PASSES_ON for node in plan.walk())
    given = {number for number, _ in plan.ids}

    def add(node: PlanNode, depth: int) -> None:
        if node.source is not None:
            format_, options = node.source
            chosen = {**options, **_isolation(options)}
            said = source_identity(format_, chosen, "")
            if tuned:
                said += str(sorted((key.lower(), value) for key, value in options.items()))
        else:
            said = node.table
        if not node.children:
            said += str(
                [
                    (name, node.types.get(number))
                    for number, name in node.ids
                    if all_columns or number in given
                ]
            )
        detail = [f"{name}={numbers.said(value)}" for name, value in sorted(node.detail.items())]
        lines.append(f"{depth} {node.name} {said} {detail}")
        for child in node.children:
            add(child, depth + 1)

    add(plan, 0)
    return digest_of(*lines)
