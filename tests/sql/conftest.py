"""One broker, one registry and one SQL server for all tests of a process: a Spark takes long to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing import PenstockBroker
from tests.registry.conftest import Registries, RegistryProcess
from tests.spark import class_archive
from tests.sql.serving import SqlClient, SqlServer

# A leader that is gone is to be noticed soon, and a group of one need not wait for others.
# Records have times of long ago, and must not be deleted by a run that takes longer than five minutes.
BROKER_SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "log.retention.ms": -1,
}


def pytest_configure() -> None:
    class_archive.prepare_environment()


@pytest.fixture(scope="session")
def sql_broker() -> Iterator[PenstockBroker]:
    with PenstockBroker(BROKER_SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def sql_registry(
    sql_broker: PenstockBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RegistryProcess]:
    started = Registries(tmp_path_factory.mktemp("registry"))
    try:
        yield started.start(sql_broker.bootstrap)
    finally:
        started.close()


@pytest.fixture(scope="session")
def server(
    sql_broker: PenstockBroker, sql_registry: RegistryProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SqlServer]:
    # Half the state stores of `local[2]`; servers that tests start themselves have the default.
    conf = {"spark.default.parallelism": "1", **class_archive.SHARED_CONF}
    options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    started = SqlServer(sql_broker.bootstrap, sql_registry.url, tmp_path_factory.mktemp("sql"), *options)
    try:
        yield started.wait()
    finally:
        started.stop()


@pytest.fixture
def sql(server: SqlServer) -> Iterator[SqlClient]:
    with server.client() as client:
        yield client
