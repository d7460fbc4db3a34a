"""The kinds of checks in the table of rules (`rules.py`): what the authorizer is asked before a request is
handled, and what happens to the request or its response if the operation is denied.

A check gets the decoded request. `before` returns the request without its denied parts, or raises the error
of the whole request. `after` completes the response. Denied resources are never looked up, so a response does
not show whether they exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.audit.denials import FAILED, denied
from penstock.broker.security.authorization.operations import NOT_ASKED
from penstock.errors import TopicAuthorizationFailed
from penstock.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from penstock.wire.codec import Message
from penstock.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from penstock.broker.api_table import Api
    from penstock.broker.net.context import RequestContext
    from penstock.broker.parts import HasAudit, HasImage, HasShare
    from penstock.broker.security.authorization.authorizer import Authorizer

    class AccessChecksParts(HasAudit, HasImage, HasShare, Protocol): ...


Refuse = Callable[[Message, int], Message]
"""Of an item of a request and an error code: the item of the answer."""


class RequestAccess:
    """One request and its sender. `parts` are the results for denied items, with the field they belong to."""

    __slots__ = ("_authorizer", "_host", "_principal", "api", "broker", "context", "is_answered", "parts")

    def __init__(
        self, authorizer: Authorizer, broker: AccessChecksParts, context: RequestContext, api: Api
    ) -> None:
        self._authorizer = authorizer
        self._principal = str(context.principal)
        self._host = context.peer.rpartition(":")[0]
        self.broker = broker
        self.context = context
        self.api = api
        self.parts: list[tuple[str, list[Message]]] = []
        self.is_answered = False  # all of the request was denied

    def allows(self, operation: int, resource_type: int, name: str) -> bool:
        return self._authorizer.allows(self._principal, self._host, operation, resource_type, name)

    def allows_on_cluster(self, operation: int) -> bool:
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def refuse(self, operation: int, resource_type: int, name: str) -> None:
        """Report a denied operation to the audit topic."""
        denied(self.broker, self.context, operation, resource_type, name)

    def allows_on_any_topic(self, operation: int) -> bool:
        return self._authorizer.allows_on_any(self._principal, self._host, operation, ResourceType.TOPIC)

    def operations(self, resource_type: int, name: str) -> int:
        return self._authorizer.operations(self._principal, self._host, resource_type, name)

    def topic_name(self, topic_id: Any) -> str | None:
        topic = self.broker.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name


@dataclass(frozen=True)
class Check:
    """`resource` and `operation` as shown in the documentation; `denied` describes the response if denied."""

    resource: ResourceType | None = None
    operation: Operation | None = None
    denied: str = ""

    def before(self, access: RequestAccess, request: Message) -> Message:
        return request

    def after(self, access: RequestAccess, answer: Message) -> None:
        pass

    @property
    def has_after(self) -> bool:
        return type(self).after is not Check.after


@dataclass(frozen=True)
class Free(Check):
    """No authorization is needed; `denied` says why."""


@dataclass(frozen=True)
class InHandler(Check):
    """Checked by the handler, because it parses the request in place or only it knows the resource."""


def replaced(message: Message, **fields: Any) -> Message:
    return Message(**{**message.__dict__, **fields})


@dataclass(frozen=True)
class Whole(Check):
    """The request is about one resource, named by `name`, or about the cluster; None names none. `versions`
    and `unless` (an operation on the cluster that is enough) narrow it."""

    name: str | None = None
    versions: range = field(default=range(100))
    unless: Operation | None = None
    denied: str = "the whole request fails"

    def before(self, access: RequestAccess, request: Message) -> Message:
        if access.context.version not in self.versions:
            return request
        name = CLUSTER_NAME if self.name is None else getattr(request, self.name)
        assert self.resource is not None and self.operation is not None
        if name is None or access.allows(self.operation, self.resource, name):
            return request
        if self.unless is not None and access.allows_on_cluster(self.unless):
            return request
        access.refuse(self.operation, self.resource, name)
        raise FAILED[self.resource]()


@dataclass(frozen=True)
class Each(Check):
    """The request has a list of `items`, each being the name of its resource, having it, or a topic id. What
    is denied is answered in `results` and not handled; `refuse` makes the answer where an error of the whole
    request has another shape."""

    items: str = "topics"
    name: str = "name"
    results: str = "topics"
    unless: Operation | None = None
    refuse: Refuse | None = None
    goes_on: bool = False  # also without items, because the request does more than that
    denied: str = "an error for each that is denied; the others are answered"

    def before(self, access: RequestAccess, request: Message) -> Message:
        items = getattr(request, self.items)
        if not items or (self.unless is not None and access.allows_on_cluster(self.unless)):
            return request
        allowed: list[Any] = []
        denied: list[Any] = []
        assert self.resource is not None and self.operation is not None
        for item in items:
            name = self._name(access, item)
            # An unknown id: ids are not secret, so the handler may report it.
            if name is None or access.allows(self.operation, self.resource, name):
                allowed.append(item)
            else:
                denied.append(item)
                access.refuse(self.operation, self.resource, name)
        if not denied:
            return request
        code = FAILED[self.resource].code
        if self.refuse is not None:
            access.parts.append((self.results, [self.refuse(item, code) for item in denied]))
        else:
            refused = access.api.error_response(
                access.context, replaced(request, **{self.items: denied}), code
            )
            access.parts.append((self.results, getattr(refused, self.results)))
            access.is_answered = not allowed and not self.goes_on
        return replaced(request, **{self.items: allowed})

    def _name(self, access: RequestAccess, item: Any) -> str | None:
        """None for a topic id that is not known."""
        name: Any = item if isinstance(item, str) else getattr(item, self.name, None)
        if not name and self.resource == ResourceType.TOPIC:
            topic_id = getattr(item, "topic_id", ZERO_UUID)
            return access.topic_name(topic_id) if topic_id != ZERO_UUID else name
        return name  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Hidden(Check):
    """Denied items of the list `results` are left out of the response."""

    results: str = "topics"
    name: str = "name"
    unless: Operation | None = None
    denied: str = "left out of the answer"

    def after(self, access: RequestAccess, answer: Message) -> None:
        items = getattr(answer, self.results)
        if items and not (self.unless is not None and access.allows_on_cluster(self.unless)):
            setattr(answer, self.results, [item for item in items if self._allows(access, item)])

    def _allows(self, access: RequestAccess, item: Message) -> bool:
        assert self.resource is not None and self.operation is not None
        name = getattr(item, self.name)
        # None: no topic has this id, so there is nothing to hide.
        return name is None or access.allows(self.operation, self.resource, name)


@dataclass(frozen=True)
class Subscribed(Check):
    """The topics to which a member subscribes."""

    resource: ResourceType = ResourceType.TOPIC
    operation: Operation = Operation.DESCRIBE
    denied: str = "the whole request fails if one of the subscribed topics is denied"

    def before(self, access: RequestAccess, request: Message) -> Message:
        for name in request.subscribed_topic_names or ():
            if not access.allows(self.operation, self.resource, name):
                access.refuse(self.operation, self.resource, name)
                raise TopicAuthorizationFailed()
        return request


@dataclass(frozen=True)
class MembersTopics(Check):
    """The topics of the members of a described group."""

    resource: ResourceType = ResourceType.TOPIC
    operation: Operation = Operation.DESCRIBE
    denied: str = "an error for the group if one of its members' topics is denied"

    def after(self, access: RequestAccess, answer: Message) -> None:
        for group in answer.groups:
            topics = _topics_of(group)
            hidden = (name for name in topics if not access.allows(self.operation, self.resource, name))
            if (name := next(hidden, None)) is not None:
                access.refuse(self.operation, self.resource, name)
                group.error_code = TopicAuthorizationFailed.code
                group.error_message = (
                    "The group has described topic(s) that the client is not authorized to describe."
                )
                group.members = []


def _topics_of(group: Message) -> Iterable[str]:
    for member in group.members:
        yield from member.subscribed_topic_names
        for assignment in (member.assignment, getattr(member, "target_assignment", None)):
            if assignment is not None:
                yield from (one.topic_name for one in assignment.topic_partitions)


@dataclass(frozen=True)
class Operations(Check):
    """Adds the authorized operations to the response, if the client requests them."""

    results: str = ""
    name: str = ""
    bits: str = "authorized_operations"
    denied: str = "authorized operations in the answer"

    def after(self, access: RequestAccess, answer: Message) -> None:
        assert self.resource is not None
        if not self.results:
            if getattr(answer, self.bits) != NOT_ASKED:
                # Returning the operations on the cluster requires DESCRIBE on it.
                allowed = access.allows_on_cluster(Operation.DESCRIBE)
                setattr(answer, self.bits, access.operations(self.resource, CLUSTER_NAME) if allowed else 0)
            return
        for item in getattr(answer, self.results):
            if item.error_code == 0 and getattr(item, self.bits, NOT_ASKED) != NOT_ASKED:
                setattr(item, self.bits, access.operations(self.resource, getattr(item, self.name)))


def passed(access: RequestAccess, checks: Sequence[Check], request: Message) -> Message:
    for check in checks:
        request = check.before(access, request)
    return request


def completed(access: RequestAccess, checks: Sequence[Check], answer: Message) -> Message:
    for check in checks:
        check.after(access, answer)
    if getattr(answer, "error_code", 0):
        return answer  # an error of the whole request: its parts get no results
    for results, items in access.parts:
        setattr(answer, results, [*getattr(answer, results), *items])
    return answer
