"""DescribeAcls (key 29), versions 1-3.

1  prefixed resource names (KIP-290)   2  flexible   3  user resources (KIP-373)

Without an authorizer the error is SECURITY_DISABLED, as in Kafka; tools expect it.
Left out: nothing.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import InvalidRequest, SecurityDisabled
from penstock.metadata.acls import Acl, AclFilter
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasAuthorizer

NO_AUTHORIZER = "No Authorizer is configured."


def handle(broker: HasAuthorizer, context: RequestContext, request: Message) -> Message:
    if broker.authorizer is None:
        return _answer(SecurityDisabled.code, NO_AUTHORIZER, [])
    wanted = filter_of(request)
    if wanted.is_unknown:
        return _answer(InvalidRequest.code, "The filter has an unknown element.", [])
    return _answer(0, None, _resources(broker.authorizer.matching(wanted)))


def filter_of(item: Message) -> AclFilter:
    """The ACL filter in a request of DescribeAcls or DeleteAcls."""
    return AclFilter(
        item.resource_type_filter,
        item.resource_name_filter,
        item.pattern_type_filter,
        item.principal_filter,
        item.host_filter,
        item.operation,
        item.permission_type,
    )


def _resources(acls: list[Acl]) -> list[Message]:
    """`acls` must be sorted by resource."""
    return [
        Message(
            resource_type=resource_type,
            resource_name=name,
            pattern_type=pattern_type,
            acls=[
                Message(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in found
            ],
        )
        for (resource_type, name, pattern_type), found in groupby(
            acls, lambda acl: (acl.resource_type, acl.name, acl.pattern_type)
        )
    ]


def _answer(code: int, message: str | None, resources: list[Message]) -> Message:
    return Message(throttle_time_ms=0, error_code=code, error_message=message, resources=resources)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return _answer(code, None, [])


register(ApiKey.DESCRIBE_ACLS, range(1, 4), handle, error_response)
