"""A shared broker for tests that do not need one of their own, and names that no other test has."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

import pytest

from penstock.testing import PenstockBroker, WireClient
from tests.clients.adapters import CLIENTS, Client

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def broker() -> Iterator[PenstockBroker]:
    """One broker for each test process, on the event loop of production."""
    settings = {"log.retention.check.interval.ms": 3_600_000, "auto.create.topics.enable": "true"}
    with PenstockBroker(settings, event_loop="uvloop") as shared:
        yield shared


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes topic names that carry the test's name and are its own on a shared broker."""
    base = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:120].strip("-")
    return lambda: f"{base}-{next(_numbers)}"


@pytest.fixture
def topic(broker: PenstockBroker, topic_name: Callable[[], str]) -> str:
    """A topic with one partition and default settings on the shared broker."""
    name = topic_name()
    broker.create_topic(name)
    return name


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest) -> Client:
    return CLIENTS[request.param]


@pytest.fixture
def wire(broker: PenstockBroker) -> Iterator[WireClient]:
    """A connection to the shared broker for requests in exact versions."""
    with WireClient(broker.port) as connection:
        yield connection
