"""AlterUserScramCredentials (key 51), version 0 (KIP-554).

The client sends the salted password, so nothing is hashed here. The credentials are in force on a broker when
it has received the change. A user with an error is not changed; the others are.
Left out: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.controller.credentials import CredentialChange
from penstock.errors import ApiError
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import CanCatchUp, HasController

    class AlterUserScramCredentialsParts(CanCatchUp, HasController, Protocol): ...


async def handle(
    broker: AlterUserScramCredentialsParts, context: RequestContext, request: Message
) -> Message:
    changes = [CredentialChange(one.name, one.mechanism) for one in request.deletions]
    changes += [
        CredentialChange(one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password))
        for one in request.upsertions
    ]
    results = await broker.controller.alter_scram_credentials(changes)
    await broker.caught_up()
    return Message(throttle_time_ms=0, results=[_result(user, error) for user, error in results.items()])


def _result(user: str, error: ApiError | None) -> Message:
    if error is None:
        return Message(user=user, error_code=0, error_message=None)
    return Message(user=user, error_code=error.code, error_message=error.message)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    users = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    return Message(
        throttle_time_ms=0,
        results=[Message(user=user, error_code=code, error_message=None) for user in users],
    )


register(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, range(1), handle, error_response)
