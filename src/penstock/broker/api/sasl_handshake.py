"""SaslHandshake (key 17), versions 0-1 (KIP-43).

0  the messages of SASL follow without headers   1  they follow in SaslAuthenticate (KIP-152)

Chooses the SASL mechanism. If the listener does not have it, or if it differs from that of the first login on
this connection, the response lists the listener's mechanisms and the connection is closed.
Left out: nothing.
"""

from __future__ import annotations

import asyncio

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.broker.net.dispatch import LastAnswer
from penstock.errors import IllegalSaslState
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message


async def handle(broker: object, context: RequestContext, request: Message) -> Message | LastAnswer:
    login = None if context.session is None else context.session.login
    if login is None:
        raise IllegalSaslState()  # a listener without SASL
    answer = login.handshake(context.version, request.mechanism)
    if isinstance(answer, LastAnswer):
        await asyncio.sleep(login.failure_delay_s)
    return answer


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(error_code=code, mechanisms=[])


register(ApiKey.SASL_HANDSHAKE, range(2), handle, error_response)
