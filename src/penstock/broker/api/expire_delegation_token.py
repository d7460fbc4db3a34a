"""ExpireDelegationToken (key 40), versions 1-2 (KIP-48).

2  flexible

The owner of a token, its requester and its renewers may set its expiry; a negative period deletes it at once.
Connections that logged in with it stay open until their login expires (KIP-368).
Left out: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import ApiError
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import CanCatchUp, HasTokens

    class ExpireDelegationTokenParts(CanCatchUp, HasTokens, Protocol): ...


async def handle(broker: ExpireDelegationTokenParts, context: RequestContext, request: Message) -> Message:
    try:
        end = await broker.tokens.expire(context, bytes(request.hmac), request.expiry_time_period_ms)
    except ApiError as error:
        return error_response(context, request, error.code)
    await broker.caught_up()
    return Message(error_code=0, expiry_timestamp_ms=end, throttle_time_ms=0)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(error_code=code, expiry_timestamp_ms=-1, throttle_time_ms=0)


register(ApiKey.EXPIRE_DELEGATION_TOKEN, range(1, 3), handle, error_response)
