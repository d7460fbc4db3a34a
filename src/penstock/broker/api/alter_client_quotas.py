"""AlterClientQuotas (key 49), versions 0-1 (KIP-546).

1  flexible

The changes of one entity are applied together or not at all. When the response is sent the quotas are in
force on this broker; the others apply them when they receive the change.
Left out: host names as `ip` entities (only addresses are accepted).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.controller.access import QuotaChange
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasController


async def handle(broker: HasController, context: RequestContext, request: Message) -> Message:
    changes = [
        QuotaChange(
            [(part.entity_type, part.entity_name) for part in entry.entity],
            [(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in request.entries
    ]
    results = await broker.controller.alter_client_quotas(changes, request.validate_only)
    entries = [
        _entry(entry, 0) if error is None else _entry(entry, error.code, error.message)
        for entry, error in zip(request.entries, results, strict=True)
    ]
    return Message(throttle_time_ms=0, entries=entries)


def _entry(entry: Message, code: int, message: str | None = None) -> Message:
    return Message(error_code=code, error_message=message, entity=entry.entity)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(throttle_time_ms=0, entries=[_entry(entry, code) for entry in request.entries])


register(ApiKey.ALTER_CLIENT_QUOTAS, range(2), handle, error_response)
