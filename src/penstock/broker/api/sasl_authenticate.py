"""SaslAuthenticate (key 36), versions 0-2 (KIP-152).

1  session_lifetime_ms (KIP-368)   2  flexible

One message of a login; on an authenticated connection, of a re-authentication (KIP-368). The response to a
failed login is delayed; then the connection is closed.
Left out: nothing.
"""

from __future__ import annotations

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
    return await login.authenticate(bytes(request.auth_bytes))


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(error_code=code, error_message=None, auth_bytes=b"", session_lifetime_ms=0)


register(ApiKey.SASL_AUTHENTICATE, range(3), handle, error_response)
