"""Penstock without what `penstock[spark]` brings: an error that says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
{statement}
"""


@pytest.mark.promise("spark source", "Without the extra `spark`, the error says what to install")
@pytest.mark.parametrize(
    ("absent", "statement"),
    [
        ("pyspark", "import penstock.spark; penstock.spark.session('x')"),
        ("pyspark", "from penstock.spark import session"),
        ("pyspark", "from penstock.spark import streams"),
        ("deltalake", "from penstock.spark import delta"),
    ],
)
def test_without_the_extra_the_error_says_what_to_install(absent: str, statement: str) -> None:
    code = WITHOUT.format(absent=(absent,), statement=statement)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert told.returncode == 1
    last = told.stderr.splitlines()[-1]
    assert f"needs {absent}: install the Penstock wheel with the extra `spark` (docs/install.md)" in last


def test_java_is_found_without_spark() -> None:
    code = WITHOUT.format(absent=("pyspark",), statement="from penstock.spark.java import find_java_home")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
