"""Connects the broker to the fault plan: requests to decisions, names to codes and keys."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from penstock.broker.net.context import RequestContext
from penstock.broker.net.interceptor import Action
from penstock.errors import error_for_code, error_for_name
from penstock.testing.faults import Fault, FaultKind, FaultPlan
from penstock.wire.api_keys import ApiKey, api_name

_KEY_BY_NAME = {api_name(key).lower(): int(key) for key in ApiKey}


def api_key(name: str) -> int:
    """The key of an API by its name, in any spelling: ListOffsets, LIST_OFFSETS."""
    try:
        return _KEY_BY_NAME[name.replace("_", "").lower()]
    except KeyError:
        raise ValueError(f"api={name!r}: Kafka has no such API") from None


def fault_from_json(rule: Mapping[str, Any]) -> Fault:
    error = rule.get("error")
    return Fault(
        kind=FaultKind(rule["kind"]),
        api_key=None if rule["api"] == "*" else api_key(rule["api"]),
        times=rule["times"],
        skip=rule["skip"],
        error_code=0 if error is None else _error_code(error),
        delay_ms=rule.get("delay_ms", 0),
    )


def _error_code(error: str | int) -> int:
    try:
        return error_for_code(error).code if isinstance(error, int) else error_for_name(error).code
    except KeyError:
        raise ValueError(f"error={error!r}: Kafka has no such error") from None


class Interceptor:
    """The broker's hook: called for every request before it is handled."""

    def __init__(self, plan: FaultPlan) -> None:
        self.plan = plan
        self._waiters: list[asyncio.Future[None]] = []

    def intercept(self, context: RequestContext) -> Action | None:
        fault = self.plan.decide(context.api_key)
        if self._waiters:
            self._wake()
        if fault is None:
            return None
        match fault.kind:
            case FaultKind.FAIL:
                return Action(error_code=fault.error_code)
            case FaultKind.DELAY:
                return Action(delay_ms=fault.delay_ms)
            case FaultKind.DROP:
                return Action(drop=True)
            case FaultKind.DROP_AFTER:
                return Action(drop_after=True)

    def requests(self) -> dict[str, int]:
        return _by_name(self.plan.seen)

    def hits(self) -> dict[str, int]:
        return _by_name(self.plan.hit)

    async def wait_for(self, api: str, count: int) -> None:
        key = api_key(api)
        while self.plan.seen[key] < count:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _by_name(counts: Counter[int]) -> dict[str, int]:
    return {api_name(key): count for key, count in counts.items()}
