"""PushTelemetry (key 72), version 0 (KIP-714).

Takes the metrics of a client (OpenTelemetry's MetricsData) for the topic `__penstock_client_metrics`.
A push before the interval has ended gets THROTTLING_QUOTA_EXCEEDED, one for a former subscription
UNKNOWN_SUBSCRIPTION_ID, one over `telemetry.max.bytes` TELEMETRY_TOO_LARGE.
Left out: histograms, which Kafka's clients do not send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasTelemetry


async def handle(broker: HasTelemetry, context: RequestContext, request: Message) -> Message:
    await broker.telemetry.push(
        context,
        request.client_instance_id,
        request.subscription_id,
        terminating=request.terminating,
        codec=request.compression_type,
        data=bytes(request.metrics or b""),
    )
    return Message(throttle_time_ms=0, error_code=0)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(throttle_time_ms=0, error_code=code)


register(ApiKey.PUSH_TELEMETRY, range(1), handle, error_response)
