"""Why Spark's own runner failed is found in what it printed."""

from __future__ import annotations

from penstock.pipelines.run.once import reason

UNRESOLVED = """\
2026-11-16 14:20:59: Starting run...
2026-11-16 14:21:00: Failed to resolve flow: 'spark_catalog.default.m'.
Error: [UNRESOLVED_COLUMN] A column with name `nope` cannot be resolved. SQLSTATE: 42703; line 1 pos 37;
'Project ['nope]
+- SubqueryAlias spark_catalog.default.numbers

2026-11-16 14:21:00: Failed to resolve flow: 'spark_catalog.default.later'.
Error: its upstream failed
Traceback (most recent call last):
  File "cli.py", line 450, in <module>
    main()
pyspark.errors.exceptions.connect.AnalysisException:
Failed to resolve flows in the pipeline.
"""

SPEC = """\
Traceback (most recent call last):
  File "cli.py", line 450, in <module>
    main()
pyspark.errors.exceptions.base.PySparkException: [PIPELINE_SPEC_UNEXPECTED_FIELD] Unexpected field `x`.
"""


def test_the_first_flow_that_failed_is_named_with_its_error():
    said = reason(UNRESOLVED.splitlines())
    assert said == "flow 'm': [UNRESOLVED_COLUMN] A column with name `nope` cannot be resolved."


def test_otherwise_the_end_of_the_traceback_is_told():
    assert reason(SPEC.splitlines()) == "[PIPELINE_SPEC_UNEXPECTED_FIELD] Unexpected field `x`."


def test_output_without_an_error_gives_its_last_line():
    assert reason(["one", "Killed"]) == "Killed"
    assert reason([]) == ""
