"""A topic that goes while transactional produces wait for the coordinator: each of them is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.controller import TopicRef
from penstock.errors import UnknownTopicOrPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import decode_response
from tests.unit.test_transactions_broker import init, running
from tests.unit.test_transactions_shells import hold_replication, produce


@pytest.mark.promise(
    "transactions",
    "A transactional produce is answered also when its topic is deleted meanwhile, or the coordinator's "
    "answer makes no sense",
)
def test_produces_that_wait_in_line_are_answered_when_their_topic_is_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            fetch = hold_replication(broker)
            waiting = [
                asyncio.ensure_future(produce(broker, producer, *part)) for part in ((0, 1), (1, 1), (2, 1))
            ]
            await asyncio.sleep(0)
            await broker.controller.delete_topics([TopicRef("t")])
            await broker.caught_up()
            fetch()
            for answer in await asyncio.wait_for(asyncio.gather(*waiting), 30):
                body = decode_response(ApiKey.PRODUCE, 12, answer, 0)
                code = body.responses[0].partition_responses[0].error_code
                assert code == UnknownTopicOrPartition.code

    asyncio.run(main())
