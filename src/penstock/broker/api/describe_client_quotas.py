"""DescribeClientQuotas (key 48), versions 0-1 (KIP-546).

1  flexible

A filter names entity types (user, client-id, ip), each with a name, the default, or any name. Strict: the
entity must have no other type. Left out: nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.controller.access import CLIENT_ID, IP, USER
from penstock.errors import InvalidRequest, UnsupportedVersion
from penstock.metadata.image import QuotaEntity
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasController

_EXACT, _DEFAULT, _ANY = range(3)


def handle(broker: HasController, context: RequestContext, request: Message) -> Message:
    matches = _filter(request)
    entries = [
        Message(
            entity=[Message(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[Message(key=key, value=value) for key, value in sorted(values.items())],
        )
        for entity, values in broker.controller.image.quotas.items()
        if matches(entity)
    ]
    return Message(throttle_time_ms=0, error_code=0, error_message=None, entries=entries)


def _filter(request: Message) -> Callable[[QuotaEntity], bool]:
    exact: dict[str, str | None] = {}
    of_type: set[str] = set()
    for item in request.components:
        kind = item.entity_type
        if not kind:
            raise InvalidRequest("Invalid empty entity type.")
        if kind in exact or kind in of_type:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise UnsupportedVersion(f"Unsupported entity type {kind}")
        if item.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise InvalidRequest(f"Unknown match type {item.match_type}")
        if (item.match is None) is (item.match_type == _EXACT):
            raise InvalidRequest(f"Match type {item.match_type} with the match {item.match!r}")
        if item.match_type == _ANY:
            of_type.add(kind)
        else:
            exact[kind] = item.match
    named = exact.keys() | of_type
    if IP in named and len(named) > 1:
        raise InvalidRequest("The ip filter component cannot be used with user or client-id.")

    def matches(entity: QuotaEntity) -> bool:
        names = dict(entity)
        if request.strict and names.keys() != named:
            return False
        return named <= names.keys() and all(names[kind] == name for kind, name in exact.items())

    return matches


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(throttle_time_ms=0, error_code=code, error_message=None, entries=None)


register(ApiKey.DESCRIBE_CLIENT_QUOTAS, range(2), handle, error_response)
