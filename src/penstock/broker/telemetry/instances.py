"""Which client instances there are, what each is asked to push, and whether it may push now. Pure.

The subscription id depends only on the instance, the subscribed metrics and the interval, so that all brokers
give the same one: a client may get its subscription from one broker and push to another.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

import crc32c

from penstock.config import Subscription, parse_subscription
from penstock.config.client_metrics import ALL_METRICS, DEFAULT_INTERVAL_MS
from penstock.errors import (
    ApiError,
    InvalidRequest,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)
from penstock.wire.batches.compression import NAMES
from penstock.wire.primitives import ZERO_UUID

MOST_INSTANCES = 16_384
_RESERVED = (ZERO_UUID, UUID(int=1))


@dataclass(frozen=True, slots=True)
class Client:
    """The sender of a request. `connection` is the number of its connection."""

    client_id: str
    software_name: str
    software_version: str
    address: str
    port: str
    principal: str
    connection: int


@dataclass(slots=True)
class Instance:
    """What a client instance is asked to push, and when it last sent a request."""

    id: UUID
    client: Client
    version: int
    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int
    last_get_ms: int | None = None
    last_push_ms: int | None = None
    is_terminating: bool = False
    may_get_early: bool = False
    """Whether the last push was rejected with an error after which a client gets its subscription again."""


def kafka_uuid(value: UUID) -> str:
    """The id as Kafka writes it."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


class Instances:
    def __init__(self, new_id: Callable[[], UUID]) -> None:
        self._new_id = new_id
        self._instances: OrderedDict[UUID, Instance] = OrderedDict()
        self._configs: Mapping[str, Mapping[str, str]] = {}
        self._subscriptions: list[Subscription] = []
        self._version = 0

    def __len__(self) -> int:
        return len(self._instances)

    def update(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Applies changed subscriptions. An instance gets its new subscription with its next request."""
        if configs is self._configs:
            return
        self._configs = configs
        self._subscriptions = []
        for name, settings in sorted(configs.items()):
            try:
                self._subscriptions.append(parse_subscription(name, settings))
            except ApiError:  # stored by a newer version: a broker that cannot read it does not apply it
                continue
        self._version += 1

    def get(self, instance_id: UUID, client: Client, now_ms: int) -> Instance:
        """The subscription of this instance, which gets an id if it has none. Raises
        ThrottlingQuotaExceeded if it asked less than an interval ago."""
        if instance_id == ZERO_UUID:
            instance_id = self._new_id()
        one = self._instance(instance_id, client)
        last = max((at for at in (one.last_get_ms, one.last_push_ms) if at is not None), default=None)
        if last is not None and now_ms - last < one.interval_ms and not one.may_get_early:
            raise _early(one)
        one.last_get_ms, one.may_get_early = now_ms, False
        return one

    def push(
        self,
        instance_id: UUID,
        client: Client,
        subscription_id: int,
        *,
        terminating: bool,
        codec: int,
        size: int,
        max_bytes: int,
        now_ms: int,
    ) -> Instance:
        """The instance whose push is accepted; otherwise raises what Kafka returns."""
        if instance_id in _RESERVED:
            raise InvalidRequest(
                f"Client instance id {kafka_uuid(instance_id)} is reserved; get a new one first."
            )
        one = self._instance(instance_id, client)
        was_terminating, one.is_terminating = one.is_terminating, terminating
        one.may_get_early = False
        if was_terminating:
            raise InvalidRequest(
                f"Client {kafka_uuid(instance_id)} has sent its last push, and pushes again."
            )
        first = one.last_get_ms is not None and (
            one.last_push_ms is None or one.last_get_ms > one.last_push_ms
        )
        if first or one.last_push_ms is None or now_ms - one.last_push_ms >= one.interval_ms:
            one.last_push_ms = now_ms
        elif not terminating:
            raise _early(one)
        if subscription_id != one.subscription_id:
            one.may_get_early = True
            raise UnknownSubscriptionId(f"Subscription id {subscription_id} is not {one.subscription_id}.")
        if not 0 <= codec < len(NAMES):
            one.may_get_early = True
            raise UnsupportedCompressionType(f"compression codec {codec} is not known")
        if size > max_bytes:
            raise TelemetryTooLarge(f"The push has {size} bytes; telemetry.max.bytes={max_bytes}.")
        return one

    def _instance(self, instance_id: UUID, client: Client) -> Instance:
        known = self._instances.get(instance_id)
        if known is not None and known.client.connection == client.connection:
            self._instances.move_to_end(instance_id)
            if known.version == self._version:
                return known
        self._instances[instance_id] = made = self._subscribed(instance_id, client)
        self._instances.move_to_end(instance_id)
        if len(self._instances) > MOST_INSTANCES:
            self._instances.popitem(last=False)
        return made

    def _subscribed(self, instance_id: UUID, client: Client) -> Instance:
        values = {
            "client_id": client.client_id,
            "client_instance_id": kafka_uuid(instance_id),
            "client_software_name": client.software_name,
            "client_software_version": client.software_version,
            "client_source_address": client.address,
            "client_source_port": client.port,
        }
        matching = [one for one in self._subscriptions if one.matches(values)]
        metrics = tuple(sorted({name for one in matching for name in one.metrics}))
        if ALL_METRICS in metrics:
            metrics = (ALL_METRICS,)
        interval_ms = min((one.interval_ms for one in matching), default=DEFAULT_INTERVAL_MS)
        digest: int = crc32c.crc32c(f"{metrics}{interval_ms}{instance_id}".encode())
        subscription_id = digest - (1 << 32) if digest >= 1 << 31 else digest
        return Instance(instance_id, client, self._version, metrics, interval_ms, subscription_id)


def _early(one: Instance) -> ThrottlingQuotaExceeded:
    return ThrottlingQuotaExceeded(
        f"The request of client {kafka_uuid(one.id)} arrived before {one.interval_ms} ms, its push interval."
    )
