"""Row patterns (SQL's MATCH_RECOGNIZE): finds sequences of rows that match a pattern, as rows arrive.

    syntax       the text of PATTERN becomes an automaton
    navigation   FIRST, LAST, PREV, aggregates and columns of variables in expressions
    conditions   what is left of a DEFINE becomes Python functions, from a list of what is allowed
    values       the values of those functions, and what is computed with them
    registers    what FIRST, LAST and aggregates remember of a match under way
    matcher      the automaton over rows: pure, incremental
    clauses      the texts of the clauses become a plan: columns for Spark, a program for the matcher
    rows         rows of Arrow between Spark and the matcher; the state as bytes
    operator     the matcher in transformWithState, in order of event time

`penstock.spark.streams.match_recognize` and MATCH_RECOGNIZE of continuous SQL are built on it.
"""
