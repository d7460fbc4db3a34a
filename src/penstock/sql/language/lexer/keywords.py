"""The keywords of the language, and a table of its statements.

The reference in `docs/sql.md` and the shell's completion are generated from it. In a syntax line, `[a]` is
optional, `a | b` is a choice, `…` means repetition.
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
        "Declares the columns of a topic's records, so that queries can read them. Creates a missing topic.",
    ),
    StatementSyntax(
        "CREATE STREAM AS",
        "CREATE [OR REPLACE] STREAM [IF NOT EXISTS] name [WITH (option = value, …)] AS query",
        "Runs a continuous query and appends its rows to a topic, each exactly once.",
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
        "Runs a continuous query and appends its rows to an existing stream or table, by column name.",
    ),
    StatementSyntax(
        "INSERT INTO … VALUES",
        "INSERT INTO name [(column, …)] VALUES (expression, …), …",
        "Writes these rows.",
    ),
    StatementSyntax(
        "SELECT",
        "[WITH name AS (query), …] SELECT expression [[AS] alias], …"
        " [FROM relation [[AS] alias]"
        " [[LEFT | RIGHT | FULL] JOIN relation [WITHIN time [GRACE PERIOD time]] ON condition] …]"
        " [WINDOW window] [WHERE condition] [GROUP BY expression, …] [HAVING condition]"
        " [PARTITION BY expression, …] [EMIT CHANGES | FINAL] [LIMIT count]",
        "Queries in Spark's SQL. EMIT CHANGES returns rows as they arrive; without it, the current rows.",
    ),
    StatementSyntax(
        "WINDOW",
        "WINDOW TUMBLING (SIZE time [, GRACE PERIOD time])"
        " | HOPPING (SIZE time, ADVANCE BY time [, GRACE PERIOD time])"
        " | SESSION (time [, GRACE PERIOD time])",
        "Also groups by time: tumbling windows, hopping windows that overlap, or sessions of activity."
        " WINDOWSTART and WINDOWEND are the bounds.",
    ),
    StatementSyntax(
        "WITHIN",
        "WITHIN time | WITHIN (before, after)",
        "How far apart in time two records of a stream-stream join may be;"
        " with two times, how far the right one may be before and after the left one.",
    ),
    StatementSyntax(
        "MATCH_RECOGNIZE",
        "FROM relation MATCH_RECOGNIZE ([PARTITION BY column, …] ORDER BY column, …"
        " [MEASURES expression AS name, …] [ONE ROW PER MATCH | ALL ROWS PER MATCH]"
        " [AFTER MATCH SKIP PAST LAST ROW | TO NEXT ROW | TO [FIRST | LAST] variable]"
        " PATTERN (pattern) [WITHIN time [GRACE PERIOD time]] [SUBSET name = (variable, …), …]"
        " DEFINE variable AS condition, …) [[AS] alias]",
        "Finds rows that follow each other as a pattern of variables says, such as `A B+ C`.",
    ),
    StatementSyntax(
        "CREATE FUNCTION",
        "CREATE [OR REPLACE] FUNCTION [IF NOT EXISTS] name (parameter type, …) RETURNS type"
        " LANGUAGE PYTHON AS $$ body $$",
        "Defines a Python function that every query can call.",
    ),
    StatementSyntax(
        "DROP",
        "DROP STREAM | TABLE | FUNCTION [IF EXISTS] name [DELETE TOPIC]",
        "Drops a stream, table or function. With DELETE TOPIC, also deletes its topic and schemas.",
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
        "Shows what the statement would do, or the plan of a running query.",
    ),
    StatementSyntax(
        "PAUSE", "PAUSE [QUERY] query_id | ALL", "Stops a query and keeps its state and position."
    ),
    StatementSyntax("RESUME", "RESUME [QUERY] query_id | ALL", "Continues a query where PAUSE stopped it."),
    StatementSyntax(
        "TERMINATE",
        "TERMINATE [QUERY] query_id | ALL",
        "Ends a query permanently. Its output is kept.",
    ),
    StatementSyntax(
        "DEFINE", "DEFINE name = 'value'", "Replaces ${name} with the value in the statements that follow."
    ),
    StatementSyntax("UNDEFINE", "UNDEFINE name", "Removes the variable."),
    StatementSyntax("SET", "SET 'property' = 'value'", "Sets a property of the statements that follow."),
    StatementSyntax("UNSET", "UNSET 'property'", "Resets a property to its default."),
)

OPTIONS = {
    "topic": "the topic to read or write. Default: the name of the stream or table",
    "format": "`json`, `avro`, `protobuf`, `json_schema`, `csv`, `string` or `bytes`: the encoding"
    " of values. Default: the format of the registered schema, or of the query's first source",
    "key_format": "the encoding of keys: `string` (default), `bytes`, `json`, `avro`, `protobuf` or"
    " `json_schema`",
    "timestamp": "the column with the event time: a TIMESTAMP, or a BIGINT of milliseconds since 1970."
    " Default: the record's timestamp",
    "timestamp_format": "the pattern of a text column `timestamp`, as for `to_timestamp`",
    "watermark": "how late rows may arrive, such as `10 minutes`, unless the query sets a grace period."
    " Default for windows and stream-stream joins: 24 hours",
    "partitions": "partitions of a new topic. Default: as many as the query's first source",
    "replicas": "replicas of a new topic. Default: the broker's",
    "retention": "how long a new topic keeps records, such as `30 days` or in milliseconds; `-1` means"
    " forever. Rows of a table are deleted when they have not been written for this long. Default: the"
    " cluster's. For CREATE STREAM … AS: that of a source that keeps records longer, and `-1` if a source"
    " has `timestamp`. For a table: `-1`",
    "errors": "what to do with records that do not match the columns: `dead-letter` (default), `skip`"
    " or `fail`",
    "dead_letter_topic": "the topic for dead letters. Default: `<topic>-dead-letters`",
    "delimiter": "the separator of `csv` columns. Default: a comma",
    "message": "the message of a Protobuf schema that has several",
    "storage": "`topic` (default), `delta`, or `parquet` (read-only)",
    "path": "the directory of `delta` and `parquet` files. Default for Delta: a directory under `--data`",
    "existing": "`append`: CREATE … AS may write to a topic that already has records, and a stream whose"
    " query starts over may write its records again. Without it, such a topic is rejected",
    "state": "with CREATE OR REPLACE, when the state of the running query, or the rows of its table, do not"
    " fit: `rebuild` reads the sources again from the start; `keep` continues with the state and the rows, if"
    " the keys of the state are the same",
}
"""Of WITH, in CREATE STREAM and CREATE TABLE."""

FIRST_WORDS = (
    "SELECT", "WITH", "FROM", "VALUES", "CREATE", "INSERT", "DROP", "SHOW", "LIST", "DESCRIBE", "DESC",
    "EXPLAIN", "PAUSE", "RESUME", "TERMINATE", "DEFINE", "UNDEFINE", "SET", "UNSET",
)  # fmt: skip
"""With which a statement can begin."""

_OURS = (
    "ADVANCE", "AFTER", "ALL", "AS", "BY", "CHANGES", "CLASSIFIER", "DELETE", "EMIT", "EXISTS",
    "EXTENDED", "FINAL", "FIRST", "FUNCTION", "FUNCTIONS", "GRACE", "HOPPING", "IF", "INTO", "KEY",
    "LANGUAGE", "LAST", "MATCH", "MATCH_NUMBER", "MATCH_RECOGNIZE", "MEASURES", "NEXT", "NOT", "ONE",
    "OR", "PARTITION", "PAST", "PATTERN", "PER", "PERIOD", "PREV", "PRIMARY", "PROPERTIES", "PYTHON",
    "QUERIES", "QUERY", "REPLACE", "RETURNS", "ROW", "ROWS", "SESSION", "SIZE", "SKIP", "STREAM",
    "STREAMS", "SUBSET", "TABLE", "TABLES", "TO", "TOPIC", "TOPICS", "TUMBLING", "VARIABLES", "WINDOW",
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
