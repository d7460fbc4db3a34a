"""Of an error of Spark one line is shown: the innermost cause."""

from __future__ import annotations

import pytest

from penstock.pipelines.failures import cause, shorten, state_does_not_fit

STREAM = """[STREAM_FAILED] Query [id = 8, runId = 9] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform \
latestOffset: Traceback (most recent call last):
  File "/x/pyspark/sql/streaming/python_streaming_source_runner.py", line 231, in main
    latest_offset_func(reader, outfile)
  File "/x/penstock/spark/source.py", line 80, in latestOffset
    raise NoSuchTopic(...)
penstock.spark.errors.NoSuchTopic: topic 'orders' does not exist: create it, or change `subscribe`
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: shop.orders [id = 8, runId = 9]
Current Committed Offsets: {}
"""

JOB = """[STREAM_FAILED] Query [id = 8, runId = 9] terminated with exception: \
Job aborted due to stage failure: \
Task 0 in stage 5.0 failed 1 times, most recent failure: Lost task 0.0 in stage 5.0 (TID 5): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:572)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace: SQLSTATE: XXKST
=== Streaming Query ===
x"""


@pytest.mark.promise(
    "pipelines", "A failed flow restarts from its checkpoint and shows the cause, while others continue"
)
def test_a_python_source_that_fails_is_told_by_its_own_words():
    assert shorten(STREAM) == "NoSuchTopic: topic 'orders' does not exist: create it, or change `subscribe`"


def test_a_function_that_fails_in_a_task_is_told_by_its_exception():
    assert shorten(JOB) == "ZeroDivisionError: division by zero"


def test_analysis_errors_lose_their_plan_and_search_path():
    text = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nope` cannot be resolved. "
        "Did you mean one of the following? [`value`]. "
        "SQLSTATE: 42703; line 3 pos 9;\n'Project ['nope]\n+- SubqueryAlias t\n"
    )
    assert shorten(text) == (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nope` cannot be resolved. "
        "Did you mean one of the following? [`value`]."
    )
    text = "[TABLE_OR_VIEW_NOT_FOUND] The table or view `x` cannot be found.\nSearch path: [`a`].\nIf"
    assert shorten(text) == "[TABLE_OR_VIEW_NOT_FOUND] The table or view `x` cannot be found."


def test_javas_innermost_cause_is_shown_unless_spark_has_a_name_for_the_error():
    text = (
        "An error occurred while calling o1.save.\n: java.lang.RuntimeException: it failed\n\tat a.b(C:1)\n"
        "Caused by: java.io.IOException: No space left on device\n\tat x.y(Z.java:2)\n\t... 22 more"
    )
    assert shorten(text) == "No space left on device"
    text = (
        "An error occurred while calling o1.load.\n: org.apache.spark.SparkClassNotFoundException: "
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: nope.\n\tat a.b(C.scala:1)\n"
        "Caused by: java.lang.ClassNotFoundException: nope.DefaultSource\n\tat x.y(Z.java:2)\n\t... 22 more"
    )
    assert shorten(text) == "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: nope."


def test_a_users_exception_keeps_its_type():
    assert cause(ZeroDivisionError("division by zero")) == "ZeroDivisionError: division by zero"
    assert cause(KeyError("x")) == "KeyError: 'x'"
    assert cause(ValueError()) == "ValueError"


def test_no_message_is_endless():
    assert len(shorten("word " * 1000)) < 610


def test_errors_that_only_a_rebuild_can_cure_are_known():
    assert state_does_not_fit("[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match")
    assert state_does_not_fit("[STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA] x")
    assert not state_does_not_fit("NoSuchTopic: topic 'orders' does not exist")
