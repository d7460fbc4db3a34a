"""FindCoordinator (key 10), versions 0-6.

1  key types: 0 group, 1 transactional id   3  flexible   4  many keys (KIP-699)
5  (KIP-890)   6  key type 2, share (KIP-932)

The first request for a coordinator creates its internal topic. The response waits for that, so that clients
do not get COORDINATOR_NOT_AVAILABLE first.
Left out: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import ApiError, CoordinatorNotAvailable, InvalidRequest
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.coordinators.shard_host import ShardHost
    from penstock.broker.parts import CanFindEndpoints, HasGroups, HasShare, HasTransactions

    class FindCoordinatorParts(CanFindEndpoints, HasGroups, HasShare, HasTransactions, Protocol): ...


_MANY_KEYS_SINCE = 4
_COORDINATORS: dict[int, Callable[[FindCoordinatorParts], ShardHost[Any]]] = {
    0: lambda broker: broker.groups,
    1: lambda broker: broker.transactions,
    2: lambda broker: broker.share.states,
}
_SHARE, _SHARE_SINCE = 2, 6
_SHARE_KEY = re.compile(r".+:[A-Za-z0-9_-]{22}:[0-9]{1,10}", re.DOTALL)


async def handle(broker: FindCoordinatorParts, context: RequestContext, request: Message) -> Message:
    if context.version < _MANY_KEYS_SINCE:
        found = await _find(broker, context, request.key_type, request.key)
        return Message(throttle_time_ms=0, coordinators=[], **found.__dict__)
    found_all = [await _find(broker, context, request.key_type, key) for key in request.coordinator_keys]
    return Message(throttle_time_ms=0, coordinators=found_all)


async def _find(broker: FindCoordinatorParts, context: RequestContext, key_type: int, key: str) -> Message:
    try:
        host = _host(broker, context.version, key_type)
        if key_type == _SHARE and not _SHARE_KEY.fullmatch(key):
            raise InvalidRequest("the key of a share partition is group:topic id:partition")
        await host.ensure_topic()
        found = broker.endpoints((host.leader_of(key),), context.listener)
        if not found:
            raise CoordinatorNotAvailable(
                "the coordinator's broker is not available, or has no listener of this name"
            )
    except ApiError as error:
        return _failed(key, error.code, error.message)
    ((node, address, port, _),) = found
    return Message(key=key, node_id=node, host=address, port=port, error_code=0, error_message=None)


def _host(broker: FindCoordinatorParts, version: int, key_type: int) -> ShardHost[Any]:
    if key_type not in _COORDINATORS or (key_type == _SHARE and version < _SHARE_SINCE):
        raise InvalidRequest(f"coordinator type {key_type}")
    return _COORDINATORS[key_type](broker)


def _failed(key: str, code: int, message: str | None = None) -> Message:
    return Message(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    if context.version < _MANY_KEYS_SINCE:
        return Message(throttle_time_ms=0, coordinators=[], **_failed(request.key, code).__dict__)
    return Message(throttle_time_ms=0, coordinators=[_failed(key, code) for key in request.coordinator_keys])


register(ApiKey.FIND_COORDINATOR, range(7), handle, error_response)
