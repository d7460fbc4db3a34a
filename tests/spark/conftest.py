"""One Spark for all tests of a pytest process: start-up takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark import class_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_configure() -> None:
    class_archive.prepare_environment()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A SparkSession on local[2] that all tests share: none of them stops it or leaves a query running."""
    import penstock.spark

    scratch = tmp_path_factory.mktemp("spark")
    session = penstock.spark.session(
        "penstock-tests",
        master="local[2]",
        conf={
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.local.dir": str(scratch),
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={scratch}",
        },
    )
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()


@pytest.fixture(autouse=True)
def _nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Stops what a failed test left running, so that it does not take the next one's cores, and drops
    views: one that is left would stand in the way of another test's table of that name."""
    yield
    if "spark" in request.fixturenames:
        session = request.getfixturevalue("spark")
        for query in session.streams.active:
            query.stop()
        for table in session.catalog.listTables():
            if table.isTemporary:
                session.catalog.dropTempView(table.name)


# Files of few tests that take minutes: begun last, one of them would run alone while the other core idles.
_LONG = ("test_sink_kills", "test_pipeline_process", "test_demo", "test_standalone", "test_apache_kafka")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in _LONG)
