"""The pytest plugin: the fixture `penstock` is a separate broker for each test, removed afterwards.

pytest loads this file in every run of every project that has Penstock installed, so it imports nothing of
Penstock until a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.broker import PenstockBroker

_LOG_TAIL_LINES = 60


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "penstock(settings={...}): Kafka-named broker settings for the broker of the fixture `penstock`",
    )


@pytest.fixture(name="penstock")
def penstock_fixture(request: pytest.FixtureRequest) -> Iterator[PenstockBroker]:
    """A Penstock broker in a process of its own, on a free port, with an empty data directory."""
    from penstock.testing.broker import PenstockBroker

    settings: dict[str, object] = {}
    # The closest mark comes first: a test's own settings override those of its class and module.
    for mark in request.node.iter_markers("penstock"):
        if mark.args or set(mark.kwargs) - {"settings"}:
            raise pytest.UsageError("use it as @pytest.mark.penstock(settings={'name': 'value'})")
        settings = {**mark.kwargs.get("settings", {}), **settings}
    with PenstockBroker(settings=settings) as broker:
        yield broker


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the broker's log to the report of a failed test that used it."""
    report = yield
    if report.when == "call" and report.failed:
        broker = getattr(item, "funcargs", {}).get("penstock")
        log_tail = getattr(broker, "log_tail", None)
        if log_tail is not None and (text := log_tail(_LOG_TAIL_LINES)):
            report.sections.append(("penstock broker log", text))
    return report
