"""The words of the language, and its statements in a table: the reference in `docs/sql.md` and the shell's completion
are made of it. In a syntax line, `[a]` may be left out, `a | b` is a choice, `…` means again and again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StatementSyntax:
    name: str
    syntax: str
    meaning: str
    """One sentence."""


STATEMENTS = (
    StatementSyntax(
        "CREATE STREAM",
        "CREATE [OR REPLACE] STREAM [IF NOT EXISTS] name (column type [KEY], …) [WITH (option = value, …)]",
        "Gives the records of a topic columns, so that queries can read them; the topic is made if it is missing.",
    ),
    StatementSyntax(
        "CREATE STREAM AS",
        "CREATE [OR REPLACE] STREAM [IF NOT EXISTS] name [WITH (option = value, …)] AS query",
        "Runs a query for as long as the stream is there and appends its rows to a topic, each exactly once.",
    ),
    StatementSyntax(
        "CREATE TABLE",
        "CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name (column type [PRIMARY KEY], …) [WITH (option = value, …)]",
        "Reads a topic as the newest row of each key.",
    ),
    StatementSyntax(
        "CREATE TABLE AS",
        "CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name [WITH (option = value, …)] AS query",
        "Runs a query and keeps its result, a row for each key, in a compacted topic or a Delta table.",
    ),
    StatementSyntax(
        "INSERT INTO … SELECT",
        "INSERT INTO name [WITH (option = value, …)] query",
        "Runs a query and appends its rows to a stream or table that is there, column by column of the same name.",
    ),
    StatementSyntax(
        "INSERT INTO … VALUES",
        "INSERT INTO name [(column, …)] VALUES (expression, …), …",
        "Writes these rows at once.",
    ),
    StatementSyntax(
        "SELECT",
        "[WITH name AS (query), …] SELECT expression [[AS] alias], …"
        " [FROM relation [[AS] alias]"
        " [[LEFT | RIGHT | FULL] JOIN relation [WITHIN time [GRACE PERIOD time]] ON condition] …]"
        " [WINDOW window] [WHERE condition] [GROUP BY expression, …] [HAVING condition]"
        " [PARTITION BY expression, …] [EMIT CHANGES | FINAL] [LIMIT count]",
        "Queries in Spark's SQL: with EMIT CHANGES the rows as they come, without it what is there now.",
    ),
    StatementSyntax(
        "WINDOW",
        "WINDOW TUMBLING (SIZE time [, GRACE PERIOD time])"
        " | HOPPING (SIZE time, ADVANCE BY time [, GRACE PERIOD time])"
        " | SESSION (time [, GRACE PERIOD time])",
        "Groups also by time: windows one after the other, windows that overlap, or spans between pauses;"
        " WINDOWSTART and WINDOWEND are their bounds.",
    ),
    StatementSyntax(
        "WITHIN",
        "WITHIN time | WITHIN (before, after)",
        "How far apart in time two records of a stream-stream join may be;"
        " with two times, how far the right one may be before and after the left one.",
    ),
    StatementSyntax(
        "CREATE FUNCTION",
        "CREATE [OR REPLACE] FUNCTION [IF NOT EXISTS] name (parameter type, …) RETURNS type"
        " LANGUAGE PYTHON AS $$ body $$",
        "Makes a Python function of this body, for every query that names it.",
    ),
    StatementSyntax(
        "DROP",
        "DROP STREAM | TABLE | FUNCTION [IF EXISTS] name [DELETE TOPIC]",
        "Takes a stream, table or function away, with DELETE TOPIC its topic and schemas too.",
    ),
    StatementSyntax(
        "SHOW",
        "SHOW | LIST TOPICS | STREAMS | TABLES | QUERIES | FUNCTIONS | VARIABLES | PROPERTIES [EXTENDED]",
        "Lists them.",
    ),
    StatementSyntax(
        "DESCRIBE",
        "DESCRIBE | DESC [EXTENDED] [FUNCTION] name",
        "Columns, topic and queries of a stream or table, state and progress of a query, text of a function.",
    ),
    StatementSyntax(
        "EXPLAIN",
        "EXPLAIN statement | query_id",
        "Says what the statement would do, without doing it, or how a query that runs is carried out.",
    ),
    StatementSyntax(
        "PAUSE", "PAUSE [QUERY] query_id | ALL", "Stops a query and keeps its state and position."
    ),
    StatementSyntax(
        "RESUME", "RESUME [QUERY] query_id | ALL", "Goes on with a query where PAUSE stopped it."
    ),
    StatementSyntax(
        "TERMINATE",
        "TERMINATE [QUERY] query_id | ALL",
        "Ends a query for good; what it has written stays.",
    ),
    StatementSyntax(
        "DEFINE", "DEFINE name = 'value'", "Puts the value in the place of ${name} in what follows."
    ),
    StatementSyntax("UNDEFINE", "UNDEFINE name", "Forgets the variable."),
    StatementSyntax("SET", "SET 'property' = 'value'", "Sets a property of the statements that follow."),
    StatementSyntax("UNSET", "UNSET 'property'", "Gives a property its default again."),
)

FIRST_WORDS = (
    "SELECT", "WITH", "FROM", "VALUES", "CREATE", "INSERT", "DROP", "SHOW", "LIST", "DESCRIBE", "DESC", "EXPLAIN",
    "PAUSE", "RESUME", "TERMINATE", "DEFINE", "UNDEFINE", "SET", "UNSET",
)  # fmt: skip
"""With which a statement can begin."""

_OURS = (
    "ADVANCE", "ALL", "AS", "BY", "CHANGES", "DELETE", "EMIT", "EXISTS", "EXTENDED", "FINAL", "FUNCTION", "FUNCTIONS",
    "GRACE", "HOPPING", "IF", "INTO", "KEY", "LANGUAGE", "NOT", "OR", "PARTITION", "PERIOD", "PRIMARY", "PROPERTIES",
    "PYTHON", "QUERIES", "QUERY", "REPLACE", "RETURNS", "SESSION", "SIZE", "STREAM", "STREAMS", "TABLE", "TABLES",
    "TOPIC", "TOPICS", "TUMBLING", "VARIABLES", "WINDOW", "WINDOWEND", "WINDOWSTART", "WITHIN",
)  # fmt: skip
_OF_QUERIES = (
    "AND", "ANTI", "ASC", "BETWEEN", "CASE", "CAST", "CROSS", "DISTINCT", "ELSE", "END", "EXCEPT", "EXPLODE", "FALSE",
    "FILTER", "FULL", "GROUP", "HAVING", "IN", "INNER", "INTERSECT", "INTERVAL", "IS", "JOIN", "LATERAL", "LEFT",
    "LIKE", "LIMIT", "NULL", "ON", "ORDER", "OUTER", "OVER", "RIGHT", "SEMI", "THEN", "TRUE", "UNION", "USING", "VIEW",
    "WHEN", "WHERE",
)  # fmt: skip
_OF_TIME = (
    "DAY", "DAYS", "HOUR", "HOURS", "MILLISECOND", "MILLISECONDS", "MINUTE", "MINUTES", "SECOND", "SECONDS", "WEEK",
    "WEEKS",
)  # fmt: skip
_TYPES = (
    "ARRAY", "BIGINT", "BINARY", "BOOLEAN", "DATE", "DECIMAL", "DOUBLE", "FLOAT", "INT", "MAP", "SMALLINT", "STRING",
    "STRUCT", "TIMESTAMP", "TINYINT", "VARIANT",
)  # fmt: skip

KEYWORDS = tuple(sorted({*FIRST_WORDS, *_OURS, *_OF_QUERIES, *_OF_TIME, *_TYPES}))
"""For completion; only few of them cannot be names."""

AGGREGATES = frozenset(
    word.upper()
    for word in [
        "any",
        "any_value",
        "approx_count_distinct",
        "approx_percentile",
        "approx_top_k",
        "approx_top_k_accumulate",
        "approx_top_k_combine",
        "array_agg",
        "avg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bitmap_and_agg",
        "bitmap_construct_agg",
        "bitmap_or_agg",
        "bool_and",
        "bool_or",
        "collect_list",
        "collect_set",
        "collect_union",
        "corr",
        "count",
        "count_if",
        "count_min_sketch",
        "covar_pop",
        "covar_samp",
        "every",
        "first",
        "first_value",
        "grouping",
        "grouping_id",
        "histogram_numeric",
        "hll_sketch_agg",
        "hll_union_agg",
        "kll_merge_agg_bigint",
        "kll_merge_agg_double",
        "kll_merge_agg_float",
        "kll_sketch_agg_bigint",
        "kll_sketch_agg_double",
        "kll_sketch_agg_float",
        "kurtosis",
        "last",
        "last_value",
        "listagg",
        "max",
        "max_by",
        "mean",
        "measure",
        "median",
        "min",
        "min_by",
        "mode",
        "percentile",
        "percentile_approx",
        "percentile_cont",
        "percentile_disc",
        "regr_avgx",
        "regr_avgy",
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "skewness",
        "some",
        "std",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "string_agg",
        "sum",
        "theta_intersection_agg",
        "theta_sketch_agg",
        "theta_union_agg",
        "try_avg",
        "try_sum",
        "tuple_intersection_agg_double",
        "tuple_intersection_agg_integer",
        "tuple_sketch_agg_double",
        "tuple_sketch_agg_integer",
        "tuple_union_agg_double",
        "tuple_union_agg_integer",
        "var_pop",
        "var_samp",
        "variance",
    ]
)
"""Spark's aggregate functions (group `agg_funcs` of its registry), in capitals."""
