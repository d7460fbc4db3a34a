"""`request_percentage`: what of a request counts, on a clock that moves only where the work moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.api import fetch as fetch_api
from penstock.broker.broker import Broker
from penstock.broker.coordinators.shard_host import ShardHost
from penstock.broker.net import dispatch
from penstock.metadata.acls import Acl, Operation, PatternType, Permission, ResourceType
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.unit.acl_requests import TOPIC
from tests.unit.test_acl_table import As, guarded_broker

FIND = Message(key_type=0, coordinator_keys=["g"])
COST_MS = 50
# One percent of the ten windows that a rate is measured over is 100 ms.
ALLOWED = 2


def slowed(monkeypatch: pytest.MonkeyPatch, broker: Broker, owner: Any, name: str) -> None:
    """Each call of the function takes some time."""
    original: Callable[..., Any] = getattr(owner, name)

    def slow(*args: Any, **more: Any) -> Any:
        broker.clock.advance(COST_MS)  # type: ignore[attr-defined]
        return original(*args, **more)

    monkeypatch.setattr(owner, name, slow)


def scenario(directory: Path, work: Callable[[Broker, As], Awaitable[None]]) -> None:
    async def main() -> None:
        async with guarded_broker(directory) as (broker, client):
            # The first request of an API waits for its codec, and the topic is made with the first key.
            await client.request("admin", ApiKey.FIND_COORDINATOR, 4, FIND)
            entity = [Message(entity_type="user", entity_name=None)]
            ops = [Message(key="request_percentage", value=1.0, remove=False)]
            quota = Message(entries=[Message(entity=entity, ops=ops)], validate_only=False)
            answer = await client.request("admin", ApiKey.ALTER_CLIENT_QUOTAS, 1, quota)
            assert answer.entries[0].error_code == 0
            await broker.caught_up()
            assert broker.quotas.is_active
            await work(broker, client)

    asyncio.run(main())


def allow(broker: Broker, *grants: tuple[ResourceType, str, Operation]) -> None:
    assert broker.authorizer is not None
    acls = [
        Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, Permission.ALLOW)
        for kind, name, operation in grants
    ]
    broker.authorizer.update({str(number): acl for number, acl in enumerate(acls)})


async def until_throttled(client: As, api: ApiKey, version: int, request: Message, most: int) -> int:
    """The number of requests up to the first with a throttle time; 0 where none of so many has one."""
    for number in range(1, most + 1):
        if (await client.request("alice", api, version, request)).throttle_time_ms:
            return number
    return 0


@pytest.mark.promise(
    "access",
    "The event-loop time that a request uses counts for its client, also after the request has waited; "
    "the time of followers does not, and a client that claims to be a follower without permission counts "
    "as a normal client",
)
@pytest.mark.parametrize("version", [3, 4])
def test_what_a_coroutine_takes_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    async def work(broker: Broker, client: As) -> None:
        allow(broker, (ResourceType.GROUP, "g", Operation.DESCRIBE))
        slowed(monkeypatch, broker, ShardHost, "leader_of")
        request = FIND if version >= 4 else Message(key_type=0, key="g")
        assert await until_throttled(client, ApiKey.FIND_COORDINATOR, version, request, 5) == ALLOWED + 1

    scenario(tmp_path, work)


def test_what_it_takes_to_encode_the_answer_of_a_coroutine_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(broker: Broker, client: As) -> None:
        allow(broker, (ResourceType.GROUP, "g", Operation.DESCRIBE))
        slowed(monkeypatch, broker, dispatch, "encode_response")
        assert await until_throttled(client, ApiKey.FIND_COORDINATOR, 4, FIND, 5) == ALLOWED + 1

    scenario(tmp_path, work)


def test_the_wait_itself_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(broker: Broker, client: As) -> None:
        allow(broker, (ResourceType.GROUP, "g", Operation.DESCRIBE))
        waited = []

        async def ensured(host: Any) -> None:
            waited.append(host)
            asyncio.get_running_loop().call_soon(broker.clock.advance, COST_MS)  # type: ignore[attr-defined]
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        monkeypatch.setattr(ShardHost, "ensure_topic", ensured)
        assert await until_throttled(client, ApiKey.FIND_COORDINATOR, 4, FIND, 10) == 0
        assert len(waited) == 10

    scenario(tmp_path, work)


def fetch(replica_id: int, max_wait_ms: int = 0) -> Message:
    partition = Message(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return Message(
        replica_id=replica_id, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, session_id=0,
        session_epoch=-1, topics=[Message(topic=TOPIC, partitions=[partition])], forgotten_topics_data=[],
    )  # fmt: skip


def test_what_a_fetch_takes_after_it_has_waited_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(broker: Broker, client: As) -> None:
        allow(broker, (ResourceType.TOPIC, TOPIC, Operation.READ))
        original = fetch_api.read

        def read(params: Any, *more: Any) -> Any:
            if params.is_patient:
                broker.clock.advance(COST_MS)  # type: ignore[attr-defined]
            return original(params, *more)

        monkeypatch.setattr(fetch_api, "read", read)
        assert await until_throttled(client, ApiKey.FETCH, 11, fetch(-1, max_wait_ms=1), 5) == ALLOWED + 1

    scenario(tmp_path, work)


def test_a_fetch_that_says_to_be_a_followers_counts_unless_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(broker: Broker, client: As) -> None:
        slowed(monkeypatch, broker, fetch_api, "lookup")
        allow(broker, (ResourceType.CLUSTER, "kafka-cluster", Operation.CLUSTER_ACTION))
        assert await until_throttled(client, ApiKey.FETCH, 11, fetch(2), 5) == 0
        allow(broker)
        assert await until_throttled(client, ApiKey.FETCH, 11, fetch(2), 5) == ALLOWED + 1

    scenario(tmp_path, work)


def test_what_only_brokers_may_ask_counts_where_it_is_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(broker: Broker, client: As) -> None:
        marker = Message(
            producer_id=1, producer_epoch=0, transaction_result=True, topics=[], coordinator_epoch=0
        )
        slowed(monkeypatch, broker, dispatch, "decode_request")
        waits = []
        record = broker.quotas.record
        monkeypatch.setattr(broker.quotas, "record", lambda *args: waits.append(record(*args)) or waits[-1])
        for _ in range(ALLOWED + 1):
            request = Message(markers=[marker])
            await client.request("alice", ApiKey.WRITE_TXN_MARKERS, 1, request)
        assert [wait > 0 for wait in waits] == [False] * ALLOWED + [
            True
        ]  # it has no throttle time in its answer

    scenario(tmp_path, work)
