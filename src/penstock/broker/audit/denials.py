"""Reports denied operations to the audit, if that is on. Checks and handlers call it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import (
    ApiError,
    ClusterAuthorizationFailed,
    DelegationTokenAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from penstock.metadata.acls import ResourceType

if TYPE_CHECKING:
    from penstock.broker.net.context import RequestContext
    from penstock.broker.parts import HasAudit

FAILED: dict[int, type[ApiError]] = {
    ResourceType.TOPIC: TopicAuthorizationFailed,
    ResourceType.GROUP: GroupAuthorizationFailed,
    ResourceType.CLUSTER: ClusterAuthorizationFailed,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
    ResourceType.DELEGATION_TOKEN: DelegationTokenAuthorizationFailed,
    ResourceType.USER: DelegationTokenAuthorizationFailed,
}
"""The error for each type of resource that is denied."""


def denied(broker: HasAudit, context: RequestContext, operation: int, resource_type: int, name: str) -> None:
    """An operation of this request was denied."""
    if broker.audit is not None:
        broker.audit.denied(context, operation, resource_type, name)
