"""Nothing that a test leaves in the Spark that all of them share is there for the next one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark import class_archive


def pytest_configure() -> None:
    class_archive.prepare_environment()


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
