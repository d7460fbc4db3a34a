"""The words of the language, and its statements in a table.

The reference in `docs/sql.md` and the shell's completion are made of it. In a syntax line, `[a]`
may be left out, `a | b` is a choice, `…` means again and again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
        "Gives the records of a topic columns, so that queries can read them; a missing topic is made.",
    ),
    StatementSyntax(
        "CREATE STREAM AS",
        "CREATE [OR REPLACE] STREAM [IF NOT EXISTS] name [WITH (option = value, …)] AS query",
        "Runs a query for as long as the stream is there and appends its rows to a topic, each exactly once.",
    ),
    StatementSyntax(
        "CREATE TABLE",
        "CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name (column type [PRIMARY KEY], …)"
        " [WITH (option = value, …)]",
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
        "Runs a query and appends its rows to a stream or table that is there, by the names of columns.",
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

OPTIONS = {
    "topic": "the topic that is read or written; the name of the stream or table if it is not given",
    "format": "`json`, `avro`, `protobuf`, `json_schema`, `csv`, `string` or `bytes`: what values are; by"
    " itself that of the registered schema, or of the first source of the query",
    "key_format": "what keys are: `string` (by itself), `bytes`, `json`, `avro`, `protobuf` or `json_schema`",
    "timestamp": "the column that is the time of a row: a TIMESTAMP, or a BIGINT of milliseconds since 1970;"
    " by itself the time of the record",
    "timestamp_format": "the pattern of a `timestamp` that is text, as `to_timestamp` reads it",
    "watermark": "how late rows may come, as `10 minutes`, where a query says nothing of it. Default of"
    " windows and of joins of streams: 24 hours",
    "partitions": "of a topic that is made; by itself as many as the first source of the query has",
    "replicas": "of a topic that is made; by itself the broker's default",
    "retention": "how long a topic that is made keeps records, as `30 days` or in milliseconds; `-1`: for"
    " ever. Rows of a table are deleted when they have not been written for so long. Default: the cluster's;"
    " of CREATE STREAM … AS that of a source that keeps its own for longer, and `-1` if a source has"
    " `timestamp`; of a table `-1`",
    "errors": "what becomes of records that are not what the columns say: `dead-letter` (by itself), `skip`"
    " or `fail`",
    "dead_letter_topic": "where they go; by itself `<topic>-dead-letters`",
    "delimiter": "between the columns of `csv`; by itself a comma",
    "message": "which message of a Protobuf schema, where it has several",
    "storage": "`topic` (by itself), `delta`, or `parquet`, which is only read",
    "path": "where the files of `delta` and `parquet` are; by itself a table in Delta is kept under `--data`",
    "existing": "`append`: CREATE … AS may write to a topic that has records already. Without it such a topic"
    " is rejected",
    "state": "with CREATE OR REPLACE, where the state of the running query does not fit: `rebuild` reads the "
    "sources again from the start; `keep` goes on with the state, if its keys are the same",
}
"""Of WITH, in CREATE STREAM and CREATE TABLE."""

FIRST_WORDS = (
    "SELECT", "WITH", "FROM", "VALUES", "CREATE", "INSERT", "DROP", "SHOW", "LIST", "DESCRIBE", "DESC",
    "EXPLAIN", "PAUSE", "RESUME", "TERMINATE", "DEFINE", "UNDEFINE", "SET", "UNSET",
)  # fmt: skip
"""With which a statement can begin."""

_OURS = (
    "ADVANCE", "ALL", "AS", "BY", "CHANGES", "DELETE", "EMIT", "EXISTS", "EXTENDED", "FINAL", "FUNCTION",
    "FUNCTIONS", "GRACE", "HOPPING", "IF", "INTO", "KEY", "LANGUAGE", "NOT", "OR", "PARTITION", "PERIOD",
    "PRIMARY", "PROPERTIES", "PYTHON", "QUERIES", "QUERY", "REPLACE", "RETURNS", "SESSION", "SIZE",
    "STREAM", "STREAMS", "TABLE", "TABLES", "TOPIC", "TOPICS", "TUMBLING", "VARIABLES", "WINDOW",
    "WINDOWEND", "WINDOWSTART", "WITHIN",
)  # fmt: skip
_OF_QUERIES = (
    "AND", "ANTI", "ASC", "BETWEEN", "CASE", "CAST", "CROSS", "DISTINCT", "ELSE", "END", "EXCEPT",
    "EXPLODE", "FALSE", "FILTER", "FULL", "GROUP", "HAVING", "IN", "INNER", "INTERSECT", "INTERVAL", "IS",
    "JOIN", "LATERAL", "LEFT", "LIKE", "LIMIT", "NULL", "ON", "ORDER", "OUTER", "OVER", "RIGHT", "SEMI",
    "THEN", "TRUE", "UNION", "USING", "VIEW", "WHEN", "WHERE",
)  # fmt: skip
_OF_TIME = (
    "DAY", "DAYS", "HOUR", "HOURS", "MILLISECOND", "MILLISECONDS", "MINUTE", "MINUTES", "SECOND", "SECONDS",
    "WEEK", "WEEKS",
)  # fmt: skip
_TYPES = (
    "ARRAY", "BIGINT", "BINARY", "BOOLEAN", "DATE", "DECIMAL", "DOUBLE", "FLOAT", "INT", "MAP", "SMALLINT",
    "STRING", "STRUCT", "TIMESTAMP", "TINYINT", "VARIANT",
)  # fmt: skip

KEYWORDS = tuple(sorted({*FIRST_WORDS, *_OURS, *_OF_QUERIES, *_OF_TIME, *_TYPES}))
"""For completion; only few of them cannot be names."""

AGGREGATES = frozenset((
    "ANY", "ANY_VALUE", "APPROX_COUNT_DISTINCT", "APPROX_PERCENTILE", "APPROX_TOP_K",
    "APPROX_TOP_K_ACCUMULATE", "APPROX_TOP_K_COMBINE", "ARRAY_AGG", "AVG", "BIT_AND", "BIT_OR", "BIT_XOR",
    "BITMAP_AND_AGG", "BITMAP_CONSTRUCT_AGG", "BITMAP_OR_AGG", "BOOL_AND", "BOOL_OR", "COLLECT_LIST",
    "COLLECT_SET", "COLLECT_UNION", "CORR", "COUNT", "COUNT_IF", "COUNT_MIN_SKETCH", "COVAR_POP",
    "COVAR_SAMP", "EVERY", "FIRST", "FIRST_VALUE", "GROUPING", "GROUPING_ID", "HISTOGRAM_NUMERIC",
    "HLL_SKETCH_AGG", "HLL_UNION_AGG", "KLL_MERGE_AGG_BIGINT", "KLL_MERGE_AGG_DOUBLE",
    "KLL_MERGE_AGG_FLOAT", "KLL_SKETCH_AGG_BIGINT", "KLL_SKETCH_AGG_DOUBLE", "KLL_SKETCH_AGG_FLOAT",
    "KURTOSIS", "LAST", "LAST_VALUE", "LISTAGG", "MAX", "MAX_BY", "MEAN", "MEASURE", "MEDIAN", "MIN",
    "MIN_BY", "MODE", "PERCENTILE", "PERCENTILE_APPROX", "PERCENTILE_CONT", "PERCENTILE_DISC", "REGR_AVGX",
    "REGR_AVGY", "REGR_COUNT", "REGR_INTERCEPT", "REGR_R2", "REGR_SLOPE", "REGR_SXX", "REGR_SXY",
    "REGR_SYY", "SKEWNESS", "SOME", "STD", "STDDEV", "STDDEV_POP", "STDDEV_SAMP", "STRING_AGG", "SUM",
    "THETA_INTERSECTION_AGG", "THETA_SKETCH_AGG", "THETA_UNION_AGG", "TRY_AVG", "TRY_SUM",
    "TUPLE_INTERSECTION_AGG_DOUBLE", "TUPLE_INTERSECTION_AGG_INTEGER", "TUPLE_SKETCH_AGG_DOUBLE",
    "TUPLE_SKETCH_AGG_INTEGER", "TUPLE_UNION_AGG_DOUBLE", "TUPLE_UNION_AGG_INTEGER", "VAR_POP", "VAR_SAMP",
    "VARIANCE",
))  # fmt: skip
"""Spark's aggregate functions (group `agg_funcs` of its registry), in capitals."""

WINDOW_BOUNDS: dict[str, Literal["start", "end"]] = {
    "WINDOWSTART": "start",
    "WINDOW_START": "start",
    "WINDOWEND": "end",
    "WINDOW_END": "end",
}
"""What names the bounds of a window in its SELECT."""
