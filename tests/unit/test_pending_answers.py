"""A request whose work is ended: its client, if it is still there, is not left waiting."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.net.dispatch import Answer, CloseConnection, Pending


@pytest.mark.promise(
    "transactions",
    "If the processing of a request is cancelled, the client's connection is closed, so that no client "
    "waits forever",
)
@pytest.mark.parametrize("client_is_gone", [False, True])
def test_work_that_is_ended_closes_the_connection_of_a_client_that_waits(client_is_gone: bool) -> None:
    async def main() -> None:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        answers: list[Answer | CloseConnection] = []
        pending = Pending(future, lambda done: done.result(), exclusive=True, cancellable=True, held=0)
        pending.when_done(answers.append)
        if client_is_gone:
            pending.abandon()
        else:
            future.cancel()
        await asyncio.sleep(0)
        assert [type(answer) for answer in answers] == ([] if client_is_gone else [CloseConnection])

    asyncio.run(main())
