"""GetTelemetrySubscriptions (key 71), version 0 (KIP-714).

Returns which metrics this client should push, how often, and in which form. A client without an instance id
gets one. Without a matching subscription the list of metrics is empty, and the client asks again after the
interval. Sums are cumulative, not deltas as in Kafka, so that a reader needs only the latest push.
Left out: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.compression import GZIP, LZ4, SNAPPY, ZSTD
from penstock.wire.codec import Message
from penstock.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from penstock.broker.parts import HasConfig, HasTelemetry

    class GetTelemetrySubscriptionsParts(HasConfig, HasTelemetry, Protocol): ...


def handle(broker: GetTelemetrySubscriptionsParts, context: RequestContext, request: Message) -> Message:
    found = broker.telemetry.subscription(context, request.client_instance_id)
    return Message(
        throttle_time_ms=0,
        error_code=0,
        client_instance_id=found.id,
        subscription_id=found.subscription_id,
        accepted_compression_types=[ZSTD, LZ4, GZIP, SNAPPY],
        push_interval_ms=found.interval_ms,
        telemetry_max_bytes=broker.config.telemetry_max_bytes,
        delta_temporality=False,
        requested_metrics=list(found.metrics),
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(
        throttle_time_ms=0,
        error_code=code,
        client_instance_id=ZERO_UUID,
        subscription_id=0,
        accepted_compression_types=[],
        push_interval_ms=0,
        telemetry_max_bytes=0,
        delta_temporality=False,
        requested_metrics=[],
    )


register(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, range(1), handle, error_response)
