"""One cluster of three brokers for the tests of a module; each test has topics of its own.

A test may leave brokers dead, stopped or cut off: the next one gets the cluster whole again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.cluster.harness import Cluster, running


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    shared_cluster.mend()
    yield shared_cluster
    report = getattr(request.node, "outcome_of_call", None)
    if report is not None and report.failed:
        for node in shared_cluster.nodes.values():
            print(f"--- broker {node.id}\n{node.tail()}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.outcome_of_call = report  # type: ignore[attr-defined]
    return report
