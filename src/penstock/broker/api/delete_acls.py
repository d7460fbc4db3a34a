"""DeleteAcls (key 31), versions 1-3.

1  prefixed resource names (KIP-290)   2  flexible   3  user resources (KIP-373)

The response lists the deleted ACLs of each filter; an ACL that matches several filters is deleted once.
Without an authorizer each filter gets SECURITY_DISABLED. Left out: nothing.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.api.describe_acls import NO_AUTHORIZER, filter_of
from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import ApiError, SecurityDisabled
from penstock.metadata.acls import Acl
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasAuthorizer, HasController

    class DeleteAclsParts(HasAuthorizer, HasController, Protocol): ...


def handle(
    broker: DeleteAclsParts, context: RequestContext, request: Message
) -> Message | Coroutine[Any, Any, Message]:
    if broker.authorizer is None:
        return _answer([_failed(SecurityDisabled.code, NO_AUTHORIZER) for _ in request.filters])
    return _delete(broker, request)


async def _delete(broker: DeleteAclsParts, request: Message) -> Message:
    results = []
    for found in await broker.controller.delete_acls([filter_of(item) for item in request.filters]):
        if isinstance(found, ApiError):
            results.append(_failed(found.code, found.message))
        else:
            acls = [_deleted(acl) for acl in sorted(found.values())]
            results.append(Message(error_code=0, error_message=None, matching_acls=acls))
    return _answer(results)


def _deleted(acl: Acl) -> Message:
    return Message(
        error_code=0,
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _failed(code: int, message: str | None = None) -> Message:
    return Message(error_code=code, error_message=message, matching_acls=[])


def _answer(results: list[Message]) -> Message:
    return Message(throttle_time_ms=0, filter_results=results)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return _answer([_failed(code) for _ in request.filters])


register(ApiKey.DELETE_ACLS, range(1, 4), handle, error_response)
