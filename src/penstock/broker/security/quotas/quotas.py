"""Client quotas: which quota applies to a client, and the throttle time. Pure.

The most specific quota applies, in Kafka's order: user and client id, user and default client id, user,
default user and client id, default user and default client id, default user, client id, default client id.
Clients with the same quota at the same level share one rate on each broker: the quota of a user is shared by
all its clients.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from math import ceil

from penstock.broker.security.quotas.rates import SampledRate, TokenBucket
from penstock.broker.security.quotas.recent import Recent
from penstock.metadata.image import QuotaEntity, Quotas

PRODUCE, FETCH, REQUEST, MUTATION = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
)  # fmt: skip
CONNECTIONS = "connection_creation_rate"

Who = tuple[str, str]
"""User and client id."""
Shared = tuple[str | None, str | None]
"""The clients that share a rate: a user and client id, all clients of a user, or a client id of all users."""

# The limit of rates in memory; those of the least recently seen clients are removed.
_MAX_RATES = 10_000


class ClientQuotas:
    """`is_active` is False if there are no quotas: then requests need not be measured."""

    def __init__(
        self, monotonic_ms: Callable[[], float], *, samples: int = 11, window_s: int = 1,
        mutation_samples: int = 11, mutation_window_s: int = 1,
    ) -> None:  # fmt: skip
        self._now = monotonic_ms
        self._samples, self._window_ms = samples, window_s * 1000
        self._burst_s = float(mutation_samples * mutation_window_s)
        self._quotas: Quotas = {}
        self._bounds: OrderedDict[tuple[str, Who], tuple[float, Shared] | None] = OrderedDict()
        self._rates: Recent[tuple[str, Shared], SampledRate] = Recent(_MAX_RATES, _waits_until)
        self._buckets: Recent[Shared, TokenBucket] = Recent(_MAX_RATES, _waits_until)
        # Until when the clients that share a quota get no records.
        self._fetch_waits: Recent[Shared, float] = _no_waits()
        self.is_active = False

    def update(self, quotas: Quotas) -> None:
        """These are in force from now on; what was measured so far counts on."""
        if quotas is not self._quotas:
            self._quotas = quotas
            self._bounds = OrderedDict()
            self._fetch_waits = _no_waits()
            self.is_active = any(entity[0][0] != "ip" for entity in quotas)

    def bound(self, kind: str, who: Who) -> tuple[float, Shared] | None:
        """The quota that applies, and the clients that share it; None if there is none."""
        bounds = self._bounds
        key = (kind, who)
        if key not in bounds:
            if len(bounds) >= _MAX_RATES:
                bounds.popitem(last=False)
            bounds[key] = self._find(kind, who)
        return bounds[key]

    def record(self, kind: str, who: Who, value: float) -> int:
        """Record what a client has sent, received or used. Returns the throttle time in milliseconds."""
        found = self.bound(kind, who)
        if found is None:
            return 0
        bound, shared = found
        rate = self._rates.get((kind, shared))
        now = self._now()
        if rate is None:
            rate = SampledRate(self._samples, self._window_ms)
            self._rates.put((kind, shared), rate, now)
        rate.record(value, now)
        throttle = rate.throttle_ms(bound, now)
        if throttle:
            rate.waits_until = now + throttle
            if kind == FETCH:
                self._fetch_waits.put(shared, now + throttle, now)
        return min(throttle, self._window_ms) if kind == REQUEST else throttle

    def fetch_wait(self, who: Who) -> int:
        """For how many more milliseconds a client gets no records. It counts for all who share the quota: a
        new connection does not end it."""
        found = self.bound(FETCH, who)
        until = None if found is None else self._fetch_waits.get(found[1])
        return 0 if until is None else max(0, ceil(until - self._now()))

    def most_fetched(self, who: Who) -> int | None:
        """The most bytes that a fetch may return without exceeding the quota, if it were the only one in all
        windows."""
        found = self.bound(FETCH, who)
        if found is None:
            return None
        return max(1, int(found[0] * (self._samples - 1) * self._window_ms / 1000))

    def mutate(self, who: Who, count: int, *, strict: bool) -> tuple[bool, int]:
        """Whether a change of this many partitions may be made, and for how long the client is to wait. Where
        it is strict, no change is made while the quota is exceeded."""
        found = self.bound(MUTATION, who)
        if found is None:
            return True, 0
        bound, shared = found
        now = self._now()
        bucket = self._buckets.get(shared)
        if bucket is None:
            bucket = TokenBucket(self._burst_s, bound, now)
            self._buckets.put(shared, bucket, now)
        if strict and bucket.tokens(bound, now) < 0:
            return False, bucket.throttle_ms(bound, now)
        bucket.take(count, bound, now)
        wait = bucket.throttle_ms(bound, now)
        bucket.waits_until = now + wait
        return True, 0 if strict else wait

    def _find(self, kind: str, who: Who) -> tuple[float, Shared] | None:
        for entity, shared in _levels(*who):
            value = self._quotas.get(entity, {}).get(kind)
            if value is not None:
                return value, shared
        return None


def _waits_until(measured: SampledRate | TokenBucket) -> float:
    return measured.waits_until


def _no_waits() -> Recent[Shared, float]:
    return Recent(_MAX_RATES, lambda until: until)


def _levels(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, Shared]]:
    both, of_user, of_client = (user, client_id), (user, None), (None, client_id)
    yield (("client-id", client_id), ("user", user)), both
    yield (("client-id", None), ("user", user)), both
    yield (("user", user),), of_user
    yield (("client-id", client_id), ("user", None)), both
    yield (("client-id", None), ("user", None)), both
    yield (("user", None),), of_user
    yield (("client-id", client_id),), of_client
    yield (("client-id", None),), of_client


class ConnectionQuotas:
    """Limits of connections: how many an address may have, and the rates of new ones by address and in
    total."""

    def __init__(self, monotonic_ms: Callable[[], float], *, samples: int = 11, window_s: int = 1) -> None:
        self._now = monotonic_ms
        self._samples, self._window_ms = samples, window_s * 1000
        self._open: dict[str, int] = {}
        self._rates: Recent[str, SampledRate] = Recent(_MAX_RATES, _waits_until)
        self._all = SampledRate(samples, self._window_ms)
        self._by_address: Mapping[str | None, float] = {}
        self.most, self.overrides, self.most_new = 2**31 - 1, dict[str, int](), 2**31 - 1

    def update(self, quotas: Quotas) -> None:
        """Applies new quotas; rates measured so far are kept."""
        found = {}
        for entity, values in quotas.items():
            if entity[0][0] == "ip" and CONNECTIONS in values:
                found[entity[0][1]] = values[CONNECTIONS]
        self._by_address = found

    def opened(self, address: str, *, is_protected: bool = False) -> tuple[bool, int]:
        """Whether the connection may stay, and for how many milliseconds it is left unread first; one that
        may not stay is closed after that time. Where it `is_protected`, it does not wait for others."""
        count = self._open[address] = self._open.get(address, 0) + 1
        if count > self.overrides.get(address, self.most):
            return False, 0
        now = self._now()
        bound = self._by_address.get(address, self._by_address.get(None))
        if bound is not None:
            rate = self._rates.get(address)
            if rate is None:
                rate = SampledRate(self._samples, self._window_ms)
                self._rates.put(address, rate, now)
            rate.record(1, now)
            throttle = min(rate.throttle_ms(bound, now), self._window_ms)
            if throttle:
                rate.record(-1, now)  # it was not made
                rate.waits_until = now + throttle
                return False, throttle
        if self.most_new == 2**31 - 1:
            return True, 0
        self._all.record(1, now)
        return True, 0 if is_protected else self._all.throttle_ms(self.most_new, now)

    def closed(self, address: str) -> None:
        left = self._open.get(address, 0) - 1
        if left > 0:
            self._open[address] = left
        else:
            self._open.pop(address, None)

    def count(self, address: str) -> int:
        return self._open.get(address, 0)
