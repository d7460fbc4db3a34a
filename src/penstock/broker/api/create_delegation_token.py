"""CreateDelegationToken (key 38), versions 1-3 (KIP-48).

2  flexible   3  a token for another owner (KIP-373): logins with it run as that user

The response has the HMAC, which is the password of the token. A broker accepts the token when it has received
the change. Errors: DELEGATION_TOKEN_AUTH_DISABLED without delegation.token.secret.key;
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on a connection without a login, or with a login by token.
Left out: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.delegation.tokens import split
from penstock.broker.net.context import RequestContext
from penstock.errors import ApiError
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import CanCatchUp, HasTokens

    class CreateDelegationTokenParts(CanCatchUp, HasTokens, Protocol): ...


async def handle(broker: CreateDelegationTokenParts, context: RequestContext, request: Message) -> Message:
    owner = _owner(context, request)
    renewers = [(one.principal_type, one.principal_name) for one in request.renewers]
    try:
        token = await broker.tokens.create(context, owner, renewers, request.max_lifetime_ms)
    except ApiError as error:
        return error_response(context, request, error.code)
    await broker.caught_up()
    times = (token.issued_ms, token.expires_ms, token.max_ms)
    return _answer(context, 0, owner, times, token.id, broker.tokens.hmac_of(token.id))


def _owner(context: RequestContext, request: Message) -> str:
    name = getattr(request, "owner_principal_name", None)
    return f"{request.owner_principal_type}:{name}" if name else str(context.principal)


def _answer(
    context: RequestContext, code: int, owner: str, times: tuple[int, int, int], token_id: str, hmac: bytes
) -> Message:
    (kind, name), (requester_kind, requester) = split(owner), split(str(context.principal))
    issued, expires, most = times
    return Message(
        error_code=code,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester_kind,
        token_requester_principal_name=requester,
        issue_timestamp_ms=issued,
        expiry_timestamp_ms=expires,
        max_timestamp_ms=most,
        token_id=token_id,
        hmac=hmac,
        throttle_time_ms=0,
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return _answer(context, code, _owner(context, request), (-1, -1, -1), "", b"")


register(ApiKey.CREATE_DELEGATION_TOKEN, range(1, 4), handle, error_response)
