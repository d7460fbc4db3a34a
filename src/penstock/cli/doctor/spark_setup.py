"""The checks of what Spark needs on this machine: Java, and PySpark in a version that is supported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import metadata

from penstock.admin.doctor.finding import Finding
from penstock.errors import install_extra

CHECKS = ("java", "pyspark")


def java(environ: Mapping[str, str]) -> Iterator[Finding]:
    from penstock.spark.errors import NoJava
    from penstock.spark.java import find_java_home

    try:
        find_java_home(environ)
    except NoJava as error:
        what, _, remedy = str(error).partition(". ")
        yield Finding("java", "Java", what, remedy)


def pyspark() -> Iterator[Finding]:
    wanted = _wanted("pyspark")
    install = install_extra("spark")
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        yield Finding("pyspark", "PySpark", "is not installed in this Python", install)
        return
    if not _is_in(version, wanted):
        shown = ",".join(f"{sign}{number}" for sign, number in wanted)
        yield Finding("pyspark", "PySpark", f"is {version}, and penstock supports pyspark{shown}", install)


def _wanted(package: str) -> list[tuple[str, str]]:
    """The bounds of penstock's own metadata."""
    for line in metadata.requires("penstock") or []:
        if re.match(rf"{package}\b", line):
            return re.findall(r"(>=|<)\s*([\d.]+)", line.partition(";")[0])
    return []


def _is_in(version: str, bounds: list[tuple[str, str]]) -> bool:
    def numbers(text: str) -> list[int]:
        found = [int(each) for each in re.findall(r"\d+", text)[:3]]
        return found + [0] * (3 - len(found))

    own = numbers(version)
    return all(own >= numbers(bound) if sign == ">=" else own < numbers(bound) for sign, bound in bounds)
