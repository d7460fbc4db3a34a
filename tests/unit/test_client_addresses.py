"""The address of a client, as ACLs, quotas and the audit topic name it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.broker.net.context import RequestContext
from penstock.clock import ManualClock
from penstock.config import BrokerConfig
from penstock.wire.api_keys import ApiKey
from tests.unit.test_broker_connections import Client, metadata


class Seen:
    def __init__(self) -> None:
        self.hosts: list[str] = []

    def intercept(self, context: RequestContext) -> None:
        self.hosts.append(context.peer.rpartition(":")[0])


@pytest.mark.promise(
    "access",
    "A client that comes over IPv4 to a listener on [::] has its IPv4 address for ACLs, quotas and audit",
)
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_ipv4_client_of_an_ipv6_listener_has_its_ipv4_address(tmp_path: Path, host: str) -> None:
    seen = Seen()

    async def scenario() -> None:
        settings = {
            "listeners": "PLAINTEXT://[::]:0",
            "advertised.listeners": "PLAINTEXT://localhost:0",
            "log.dirs": str(tmp_path),
        }
        broker = Broker(BrokerConfig.parse(settings), ManualClock(), interceptor=seen)
        await broker.start()
        try:
            client = Client(*await asyncio.open_connection(host, broker.port))
            await client.request(ApiKey.METADATA, 9, metadata())
            client.writer.close()
        finally:
            await broker.stop()

    asyncio.run(scenario())
    assert seen.hosts == [host]
