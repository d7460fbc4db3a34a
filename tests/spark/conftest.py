"""A broker and a registry for the tests of a module; what a test leaves in the shared Spark is removed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from penstock.testing import PenstockBroker
from tests.registry.conftest import Registries, RegistryProcess
from tests.spark import class_archive


def pytest_configure() -> None:
    class_archive.prepare_environment()


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker({"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker


@pytest.fixture(scope="module")
def registry(broker: PenstockBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    started = Registries(tmp_path_factory.mktemp("registry"))
    yield started.start(broker.bootstrap)
    started.close()


@pytest.fixture
def client(registry: RegistryProcess) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


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
