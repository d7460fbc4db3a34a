"""The topics that one user may describe, for a coordinator that hands out topics by a pattern."""

from __future__ import annotations

from penstock.broker.security.authorization.authorizer import Authorizer
from penstock.metadata.acls import Operation, ResourceType

_DESCRIBE, _TOPIC = int(Operation.DESCRIBE), int(ResourceType.TOPIC)


class Describable:
    """A TopicFilter of groups."""

    __slots__ = ("_authorizer", "who")

    def __init__(self, authorizer: Authorizer, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self.who = (principal, host)

    @property
    def rules(self) -> object:
        return self._authorizer.acls

    def allowed(self, topics: frozenset[str]) -> frozenset[str]:
        principal, host = self.who
        allows = self._authorizer.allows
        return frozenset(name for name in topics if allows(principal, host, _DESCRIBE, _TOPIC, name))
