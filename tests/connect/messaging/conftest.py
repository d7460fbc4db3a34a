"""One server of each kind for the tests of a pytest process. A test that stops one starts it again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.connect.messaging.servers import (
    MosquittoServer,
    OpenMosquittoServer,
    RabbitServer,
    RedisServer,
    Server,
    binary,
)


def _running(kind: type[Server]) -> Iterator[Server]:
    if binary(kind.program) is None:
        pytest.skip(f"{kind.program} is not installed (Debian and Ubuntu: apt install {kind.package})")
    server = kind()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    yield from _running(RedisServer)


@pytest.fixture(scope="session")
def mosquitto() -> Iterator[Server]:
    yield from _running(MosquittoServer)


@pytest.fixture
def open_mosquitto() -> Iterator[Server]:
    yield from _running(OpenMosquittoServer)


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[Server]:
    yield from _running(RabbitServer)
