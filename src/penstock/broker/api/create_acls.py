"""CreateAcls (key 30), versions 1-3.

1  prefixed resource names (KIP-290)   2  flexible   3  user resources (KIP-373)

Creating an ACL that already exists succeeds. When the response is sent the ACLs are in force on this broker;
the others apply them when they receive the change. Without an authorizer each one gets SECURITY_DISABLED.
Left out: nothing.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.api.describe_acls import NO_AUTHORIZER
from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import SecurityDisabled
from penstock.metadata.acls import Acl
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasAuthorizer, HasController

    class CreateAclsParts(HasAuthorizer, HasController, Protocol): ...


def handle(
    broker: CreateAclsParts, context: RequestContext, request: Message
) -> Message | Coroutine[Any, Any, Message]:
    if broker.authorizer is None:
        return _answer([_result(SecurityDisabled.code, NO_AUTHORIZER) for _ in request.creations])
    return _create(broker, request)


async def _create(broker: CreateAclsParts, request: Message) -> Message:
    results = await broker.controller.create_acls(
        [
            Acl(
                item.resource_type,
                item.resource_name,
                item.resource_pattern_type,
                item.principal,
                item.host,
                item.operation,
                item.permission_type,
            )
            for item in request.creations
        ]
    )
    return _answer([_result(0) if error is None else _result(error.code, error.message) for error in results])


def _result(code: int, message: str | None = None) -> Message:
    return Message(error_code=code, error_message=message)


def _answer(results: list[Message]) -> Message:
    return Message(throttle_time_ms=0, results=results)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return _answer([_result(code) for _ in request.creations])


register(ApiKey.CREATE_ACLS, range(1, 4), handle, error_response)
