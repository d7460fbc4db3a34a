"""examples/lectures/word_count.py, as written, on the Spark that the tests share."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from penstock.testing import PenstockBroker
from tests.lectures.lecture import run_lecture


@pytest.mark.promise("lectures", "Word count runs with Spark")
@pytest.mark.timeout(300)
def test_words_are_counted(spark: SparkSession, penstock: PenstockBroker) -> None:
    assert run_lecture("word_count", penstock.bootstrap) == [
        "the 3",
        "a 2",
        "is 2",
        "log 2",
        "of 1",
        "table 1",
        "truth 1",
        "view 1",
    ]
