"""The statements, as the parser gives them and the engine takes them. Frozen, without behaviour.

A query keeps its text as it was written; what is Penstock's own in it (windows, WITHIN, PARTITION BY, EMIT)
is distinguished as clauses with their places, and `rewrite` makes Spark's text of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Span = tuple[int, int]
"""From and to, as offsets in the text that the statement came from."""

Emit = Literal["changes", "final"]
Relation = Literal["stream", "table"]


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    """In Spark's words: `BIGINT`, `STRUCT<a: INT>`; a column name may have been quoted with backticks."""
    key: bool = False
    """PRIMARY KEY of a table, KEY of a stream: read from the record's key."""
    span: Span = (0, 0)
    """Of the name."""


@dataclass(frozen=True, slots=True)
class Window:
    """`WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS)` after a FROM; times as Spark's intervals."""

    kind: Literal["tumbling", "hopping", "session"]
    size: str
    """`1 MINUTE`; of a session, the gap that ends it."""
    advance: str | None
    grace: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Within:
    """`JOIN b WITHIN 10 MINUTES [GRACE PERIOD …] ON …`: how far apart two records may be to be joined."""

    left: str
    """Name or alias of what is before the JOIN, whose time counts."""
    right: str
    before: str
    after: str
    grace: str | None
    span: Span
    condition: Span
    """Of the ON condition, without the word ON."""


@dataclass(frozen=True, slots=True)
class Source:
    """A name in a FROM or JOIN that is not a common table expression of the query."""

    name: str
    alias: str
    """The name itself where none is given."""
    span: Span
    """Of the name."""
    aliased: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """`name MATCH_RECOGNIZE (…)` after FROM. Expressions are places in the text."""

    source: str
    alias: str
    """The name of the source where none is given."""
    aliased: bool
    span: Span
    """From the name to the closing bracket."""
    partition_by: tuple[tuple[str, Span], ...]
    """Columns."""
    order_by: tuple[tuple[str, Span], ...]
    measures: tuple[tuple[str, Span], ...]
    """Name and expression."""
    pattern: Span
    define: tuple[tuple[str, Span], ...]
    """Variable and condition."""
    subsets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    all_rows: bool = False
    skip: str = "past last row"
    """AFTER MATCH SKIP; or `next row`, and `first` or `last` with a variable."""
    skip_to: Span | None = None
    within: int | None = None
    """Microseconds."""
    grace: str | None = None


@dataclass(frozen=True, slots=True)
class WindowMark:
    """A WINDOWSTART or WINDOWEND (or WINDOW_START, WINDOW_END) in a SELECT with a WINDOW."""

    bound: Literal["start", "end"]
    span: Span
    bare: bool
    """It is a whole item of the SELECT list, so that it needs a name: `window_start`."""


@dataclass(frozen=True, slots=True)
class SelectPart:
    """One SELECT: the outermost, a branch of an outermost UNION, or one inside (subquery, WITH)."""

    outermost: bool
    source: str | None
    """Alias of the first relation after FROM (a subquery's too), whose time is the window's."""
    window: Window | None
    marks: tuple[WindowMark, ...]
    projections: tuple[tuple[str | None, Span], ...]
    """The SELECT list: output name where it has one (alias or column; `*` for a star), and the place of the
    whole item, alias included."""
    projection_end: int
    """The offset after the last of them, where columns can be added."""
    group_by: tuple[Span, ...]
    """Its expressions, one by one."""
    group_end: int
    """The offset after the last of them, or after the last clause before where GROUP BY would stand."""
    having: Span | None
    """Of its condition."""
    having_clause: Span | None
    aggregates: bool
    """It has a GROUP BY or an aggregate function, or DISTINCT."""


NO_SELECT = SelectPart(True, None, None, (), (), 0, (), 0, None, None, False)
"""Of a query such as `VALUES (1)` or `TABLE t`."""


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT (or WITH … SELECT, UNION …) with Penstock's clauses taken note of."""

    text: str
    """The whole text that the spans point into."""
    span: Span
    """Of the query in it, without a trailing EMIT, LIMIT included."""
    sources: tuple[Source, ...]
    withins: tuple[Within, ...] = ()
    partition_by: Span | None = None
    """Of the expressions after PARTITION BY at the end (not those of OVER)."""
    partition_clause: Span | None = None
    """The same with the words PARTITION BY, which Spark must not see."""
    emit: Emit | None = None
    limit: int | None = None
    """The LIMIT of the whole. Of a query with EMIT, where the push ends: taken out of what Spark sees."""
    limit_clause: Span | None = None
    union: bool = False
    columns: frozenset[str] = frozenset()
    """Every identifier that the query mentions, casefolded: says whether `__headers` must be read."""
    selects: tuple[SelectPart, ...] = ()
    """Every SELECT of it."""
    cte_names: frozenset[str] = frozenset()
    """Names that its WITH gives, casefolded."""
    patterns: tuple[Pattern, ...] = ()
    """Its MATCH_RECOGNIZE clauses."""

    @property
    def first(self) -> SelectPart:
        """The first outermost SELECT, which names the columns of all."""
        return next((each for each in self.selects if each.outermost), NO_SELECT)

    @property
    def aggregates(self) -> bool:
        """An outermost SELECT has a GROUP BY or an aggregate function, or DISTINCT."""
        return any(each.aggregates for each in self.selects if each.outermost)


@dataclass(frozen=True, slots=True)
class Statement:
    text: str
    """The whole text that was given, for messages; the statement is `text[span[0]:span[1]]`."""
    span: Span


@dataclass(frozen=True, slots=True)
class CreateRelation(Statement):
    """CREATE [OR REPLACE] STREAM|TABLE [IF NOT EXISTS] name [(columns)] [WITH (…)] [AS query]"""

    kind: Relation
    name: str
    name_span: Span
    columns: tuple[Column, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case; numbers and booleans as text."""
    query: Query | None = None
    or_replace: bool = False
    if_not_exists: bool = False
    option_spans: Mapping[str, Span] = field(default_factory=dict)
    """Where each option is named, for messages."""


@dataclass(frozen=True, slots=True)
class InsertQuery(Statement):
    target: str
    target_span: Span
    query: Query
    options: Mapping[str, str] = field(default_factory=dict)
    option_spans: Mapping[str, Span] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InsertValues(Statement):
    target: str
    target_span: Span
    columns: tuple[str, ...]
    """Empty: all, in the order of the relation."""
    rows: tuple[tuple[Span, ...], ...]
    """Expressions of Spark SQL without columns: `1`, `'a'`, `current_timestamp()`, `array(1, 2)`, NULL."""
    column_spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Select(Statement):
    query: Query


@dataclass(frozen=True, slots=True)
class CreateFunction(Statement):
    """CREATE [OR REPLACE] FUNCTION name (x INT, …) RETURNS type LANGUAGE PYTHON AS $$ … $$ (or '…')

    The body is that of a Python function with those parameters, or a whole module text with a `def name(…)`.
    """

    name: str
    parameters: tuple[Column, ...]
    returns: str
    language: str
    body: str
    or_replace: bool = False
    if_not_exists: bool = False
    name_span: Span = (0, 0)
    body_span: Span = (0, 0)
    """Of the body with its quotes."""


@dataclass(frozen=True, slots=True)
class Show(Statement):
    what: Literal["topics", "streams", "tables", "queries", "functions", "variables", "properties"]
    extended: bool = False


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    """Of a relation, a query or (DESCRIBE FUNCTION f) a function."""

    name: str
    name_span: Span
    extended: bool = False
    function: bool = False


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """EXPLAIN of a statement, or of a running query by its id. Nothing is changed."""

    statement: Statement | None = None
    query_id: str | None = None
    id_span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class ControlQuery(Statement):
    action: Literal["pause", "resume", "terminate"]
    query_id: str | None
    """None: ALL."""
    id_span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Drop(Statement):
    kind: Literal["stream", "table", "function"]
    name: str
    name_span: Span
    if_exists: bool = False
    delete_topic: bool = False


@dataclass(frozen=True, slots=True)
class SetVariable(Statement):
    """DEFINE name = 'value': replaces `${name}` in what follows. UNDEFINE name: value is None."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class SetProperty(Statement):
    """SET 'auto.offset.reset' = 'earliest' (also without quotes); UNSET: value is None."""

    name: str
    value: str | None
