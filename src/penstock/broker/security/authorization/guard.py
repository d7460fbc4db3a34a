"""Wraps the handler of each API with its checks from the table of rules, if an authorizer is on.

Handlers are wrapped at startup, so that without an authorizer requests have no overhead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from penstock.broker.security.authorization.checks import Check, RequestAccess, completed, passed
from penstock.broker.security.authorization.rules import RULES
from penstock.errors import ApiError
from penstock.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.api_table import Api
    from penstock.broker.net.context import RequestContext
    from penstock.broker.security.authorization.authorizer import Authorizer
    from penstock.broker.security.authorization.checks import AccessChecksParts

# The limits of connections with cached decisions, and of topics of each; at the limit the cache is cleared.
_MAX_CONNECTIONS, _MAX_TOPICS = 10_000, 10_000

Result = Message | asyncio.Future[Any] | Coroutine[Any, Any, Any]


def guarded(api: Api, authorizer: Authorizer) -> Callable[..., Any] | None:
    """The handler of decoded requests with the checks of this API; None if the handler checks itself or
    nothing must be checked. KeyError for an API that is not in the table, so that no API is served without
    checks."""
    checks = [check for check in RULES[api.key] if _does(check)]
    if not checks:
        return None
    handler = api.handle if api.handle_message is None else api.handle_message
    has_after = any(check.has_after for check in checks)

    def handle(broker: AccessChecksParts, context: RequestContext, request: Message) -> Any:
        access = RequestAccess(authorizer, broker, context, api)
        try:
            allowed = passed(access, checks, request)
        except ApiError as error:
            return api.error_response(context, request, error.code)
        if access.is_answered:
            empty = api.error_response(context, _without_items(allowed), 0)
            return completed(access, checks, empty)
        result = handler(broker, context, allowed)
        if not has_after and not access.parts:
            return result
        if isinstance(result, Message):
            return completed(access, checks, result)
        return _completed_later(access, checks, result)

    return handle


def _does(check: Check) -> bool:
    return type(check).before is not Check.before or check.has_after


def _without_items(request: Message) -> Message:
    """Denied items were removed; here all lists are empty."""
    return Message(**{k: [] if isinstance(v, list) else v for k, v in request.__dict__.items()})


async def _completed_later(access: RequestAccess, checks: list[Check], result: Any) -> Any:
    return completed(access, checks, await result)


class TopicAccess:
    """For handlers that do their own checks: what the client of one connection may do. Decisions are cached
    until the ACLs change."""

    __slots__ = ("_acls", "_authorizer", "_host", "_known", "_name", "peer", "principal")

    READ, WRITE, CREATE = int(Operation.READ), int(Operation.WRITE), int(Operation.CREATE)
    """Plain numbers, because hashing a member of an enumeration takes longer than everything else here."""

    def __init__(self, authorizer: Authorizer, context: RequestContext) -> None:
        self._authorizer = authorizer
        self._acls = authorizer.acls
        self._known: dict[int, dict[str, bool]] = {self.READ: {}, self.WRITE: {}, self.CREATE: {}}
        self.principal, self.peer = context.principal, context.peer
        self._name = str(context.principal)
        self._host = context.peer.rpartition(":")[0]

    @classmethod
    def of(cls, authorizer: Authorizer, context: RequestContext) -> TopicAccess:
        """The cached decisions of the connection, unless another principal has logged in on it."""
        accesses: dict[int, TopicAccess] = authorizer.accesses
        known = accesses.get(context.connection)
        if known is not None and known.principal is context.principal and known.peer is context.peer:
            return known
        if len(accesses) >= _MAX_CONNECTIONS:
            accesses.clear()
        made = accesses[context.connection] = cls(authorizer, context)
        return made

    def may(self, operation: int, topic: str) -> bool:
        """`operation` is READ, WRITE or CREATE."""
        authorizer = self._authorizer
        if self._acls is not authorizer.acls:
            for remembered in self._known.values():
                remembered.clear()
            self._acls = authorizer.acls
        topics = self._known[operation]
        known = topics.get(topic)
        if known is None:
            known = authorizer.allows(self._name, self._host, operation, ResourceType.TOPIC, topic)
            if len(topics) >= _MAX_TOPICS:
                topics.clear()
            topics[topic] = known
        return known

    def may_write_as(self, transactional_id: str) -> bool:
        return self._authorizer.allows(
            self._name, self._host, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
        )

    def may_on_cluster(self, operation: Operation) -> bool:
        return self._authorizer.allows(self._name, self._host, operation, ResourceType.CLUSTER, CLUSTER_NAME)
