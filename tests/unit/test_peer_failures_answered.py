"""Whatever goes wrong between two brokers, the client that waits for it gets an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.errors import ConfigError, NotEnoughReplicas, UnknownServerError, WireError
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import decode_response
from tests.unit.test_transactions_broker import init, running
from tests.unit.test_transactions_shells import produce


@pytest.mark.promise(
    "transactions",
    "A transactional produce request gets a response even if its topic is deleted meanwhile or the "
    "coordinator sends an invalid response",
)
@pytest.mark.parametrize(
    "failure", [WireError("an answer that is none"), ConfigError("no login for the others")]
)
def test_a_produce_is_answered_when_the_coordinator_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """A future that is cancelled is the dispatcher's sign that the client is gone: nothing would be sent, and
    no answer behind it on the connection either."""

    async def main() -> None:
        async def call(*_: Any, **__: Any) -> Any:
            raise failure

        async with running(tmp_path) as broker:
            producer = await init(broker)
            with monkeypatch.context() as patch:
                patch.setattr(broker.transactions, "leader_of", lambda _: 2)
                patch.setattr(Broker, "peers", property(lambda _: SimpleNamespace(call=call)))
                waiting = asyncio.ensure_future(produce(broker, producer, 0, 1))
                await asyncio.wait([waiting], timeout=30)
            assert waiting.done()
            assert not waiting.cancelled()
            if waiting.exception() is None:
                body = decode_response(ApiKey.PRODUCE, 12, waiting.result(), 0)
                code = body.responses[0].partition_responses[0].error_code
                assert code in (NotEnoughReplicas.code, UnknownServerError.code)

    asyncio.run(main())
