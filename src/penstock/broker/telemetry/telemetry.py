"""Client metrics that clients push, as records of the topic `__penstock_client_metrics`.

The topic is compacted by client instance, so it has the latest push of each; sums are cumulative. Pushes wait
in memory, one for each instance; if there are too many, the oldest is dropped. A push is decoded in a thread.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID, uuid4

from penstock.broker.produce.topic_writer import TopicWriter
from penstock.broker.telemetry.instances import Client, Instance, Instances, kafka_uuid
from penstock.broker.telemetry.otlp import Metrics, read_metrics
from penstock.metadata.image import CLIENT_METRICS_TOPIC
from penstock.wire.batches.compression import decompress
from penstock.wire.batches.records import Record

if TYPE_CHECKING:
    from penstock.broker.net.context import RequestContext
    from penstock.broker.parts import CanUseThreads, HasClock, HasConfig
    from penstock.broker.produce.topic_writer import TopicWriterParts

    class TelemetryParts(TopicWriterParts, CanUseThreads, HasClock, HasConfig, Protocol): ...


log = logging.getLogger("penstock.telemetry")

_TOPIC_CONFIGS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(24 * 3_600_000),
    "segment.ms": str(3_600_000),
}
_MOST_WAITING = 1_000
_MOST_JSON = 512 << 10  # well below max.message.bytes


class Telemetry:
    def __init__(self, broker: TelemetryParts) -> None:
        self._broker = broker
        self.instances = Instances(uuid4)
        self.received = 0
        self.received_bytes = 0
        self.dropped = 0
        """Pushes that were dropped because too many waited for the topic."""
        self._waiting: dict[UUID, Record] = {}
        self._taken: list[tuple[UUID, Record]] = []
        self._writer = TopicWriter(broker, CLIENT_METRICS_TOPIC, _TOPIC_CONFIGS, self, log)

    def subscription(self, context: RequestContext, instance_id: UUID) -> Instance:
        self.instances.update(self._broker.image.client_metrics)
        return self.instances.get(instance_id, _client(context), self._now())

    async def push(
        self,
        context: RequestContext,
        instance_id: UUID,
        subscription_id: int,
        *,
        terminating: bool,
        codec: int,
        data: bytes,
    ) -> None:
        self.instances.update(self._broker.image.client_metrics)
        limit = self._broker.config.telemetry_max_bytes
        instance = self.instances.push(
            instance_id, _client(context), subscription_id, terminating=terminating, codec=codec,
            size=len(data), max_bytes=limit, now_ms=self._now(),
        )  # fmt: skip
        self.received += 1
        self.received_bytes += len(data)
        if data:
            now_ms = self._broker.clock.now_ms()
            value = await self._broker.in_thread(
                _value, data, codec, limit, instance, self._broker.id, now_ms, terminating
            )
            self._add(instance.id, Record(0, now_ms, kafka_uuid(instance.id).encode(), value))

    def _now(self) -> int:
        """Monotonic: intervals are measured, which a clock that is set must not change."""
        return int(self._broker.clock.monotonic() * 1000)

    def _add(self, instance_id: UUID, record: Record) -> None:
        self._waiting.pop(instance_id, None)
        if len(self._waiting) >= _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
            self.dropped += 1
        self._waiting[instance_id] = record
        self._writer.write_soon()

    def tick(self) -> None:
        """Runs each second: retries what could not be written."""
        self._writer.write_soon()

    async def close(self) -> None:
        await self._writer.close()

    # -- what the writer takes

    @property
    def has_entries(self) -> bool:
        return bool(self._waiting)

    def records(self, most: int) -> list[Record]:
        self._taken = list(self._waiting.items())[:most]
        return [record for _, record in self._taken]

    def written(self, count: int) -> None:
        for instance_id, record in self._taken[:count]:
            if self._waiting.get(instance_id) is record:  # not replaced by a newer push meanwhile
                del self._waiting[instance_id]


def _client(context: RequestContext) -> Client:
    address, _, port = context.peer.rpartition(":")
    name, version = ("unknown", "unknown") if context.session is None else context.session.software
    return Client(
        context.client_id or "", name, version, address, port, str(context.principal), context.connection
    )


def _value(
    data: bytes, codec: int, limit: int, instance: Instance, broker_id: int, now_ms: int, terminating: bool
) -> bytes:
    found = read_metrics(decompress(codec, data, limit))
    client = instance.client
    value: dict[str, Any] = {
        "time_ms": now_ms,
        "client_instance_id": kafka_uuid(instance.id),
        "client_id": client.client_id,
        "software": client.software_name,
        "version": client.software_version,
        "address": client.address,
        "port": client.port,
        "principal": client.principal,
        "broker": broker_id,
        "interval_ms": instance.interval_ms,
        "terminating": terminating,
        "resource": found.resource,
        "skipped": found.skipped,
        "metrics": [],
    }
    return _within(value, found)


def _within(value: dict[str, Any], found: Metrics) -> bytes:
    """The value as JSON, with as many metrics as a record may have; the others count as skipped."""
    size = len(_json(value))
    for point in found.points:
        one: dict[str, Any] = {"name": point.name, "type": point.kind, "value": point.value}
        if point.labels:
            one["labels"] = point.labels
        if point.unit:
            one["unit"] = point.unit
        size += len(_json(one)) + 1
        if size > _MOST_JSON:
            value["skipped"] += 1
        else:
            value["metrics"].append(one)
    return _json(value)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode()
