"""A SPARK_HOME for tests whose Python workers import the installed pyspark.

Spark puts its own `pyspark.zip` first on the path of every Python process that it starts. Python keeps no
compiled modules for a zip file, so that each of these processes compiles pyspark again, which takes a second.
This home has links to all of Spark but that file: the workers find the installed pyspark, which is compiled,
and is the same.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "build"


def home() -> Path:
    """Where it is, or would be."""
    return BUILD / f"spark-home-{version('pyspark')}-{hashlib.sha256(sys.prefix.encode()).hexdigest()[:6]}"


def installed() -> Path:
    """The directory of pyspark, which is Spark's home, too."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def make() -> None:
    """Makes it, unless it is there."""
    if home().exists():
        return
    BUILD.mkdir(exist_ok=True)
    spark = installed()
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="spark-home-") as scratch:
        beside = Path(scratch) / "home"
        (beside / "python" / "lib").mkdir(parents=True)
        parts = [spark / "bin", spark / "sbin", spark / "jars", *(spark / "python").iterdir()]
        parts += (spark / "python" / "lib").iterdir()
        for part in parts:
            if part.name not in ("lib", "pyspark.zip"):
                (beside / part.relative_to(spark)).symlink_to(part)
        try:
            beside.rename(home())
        except OSError:
            if not home().exists():  # another process was first
                raise
