"""DescribeDelegationToken (key 41), versions 1-3 (KIP-48).

2  flexible   3  who requested the token (KIP-373)

Returns the tokens that the client owns, requested or may renew, with their HMACs. Tokens of others need
DESCRIBE on the token, or DESCRIBE_TOKENS on its owner. Expired tokens are listed until they are removed.
Left out: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.delegation.tokens import split
from penstock.broker.net.context import RequestContext
from penstock.errors import ApiError
from penstock.metadata.tokens import DelegationToken
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasTokens


def handle(broker: HasTokens, context: RequestContext, request: Message) -> Message:
    owners = request.owners
    names = None if owners is None else [f"{one.principal_type}:{one.principal_name}" for one in owners]
    try:
        tokens = broker.tokens.visible(context, names)
    except ApiError as error:
        return error_response(context, request, error.code)
    described = [_described(token, broker.tokens.hmac_of(token.id)) for token in tokens]
    return Message(error_code=0, tokens=described, throttle_time_ms=0)


def _described(token: DelegationToken, hmac: bytes) -> Message:
    (kind, name), (requester_kind, requester) = split(token.owner), split(token.requester)
    return Message(
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester_kind,
        token_requester_principal_name=requester,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=hmac,
        renewers=[
            Message(principal_type=one, principal_name=other) for one, other in map(split, token.renewers)
        ],
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(error_code=code, tokens=[], throttle_time_ms=0)


register(ApiKey.DESCRIBE_DELEGATION_TOKEN, range(1, 4), handle, error_response)
