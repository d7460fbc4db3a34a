"""Which fault applies to which request: a pure state machine of rules and counters.

`FaultPlan.decide(api_key)` is called once for every request that arrives, and returns its fault: none
(`None`), or the first rule, in the order of creation, that matches the API and is not used up. No I/O here:
the broker's side of it is in `server.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

API_VERSIONS = 18


class FaultKind(StrEnum):
    FAIL = "fail"
    """The response is an error; the request is not handled."""
    DELAY = "delay"
    """The request is handled after a delay."""
    DROP = "drop"
    """The connection is closed without a response; the request is not handled."""
    DROP_AFTER = "drop_after"
    """The request is handled, but the connection is closed before the response."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One rule. `api_key=None` matches every API but ApiVersions, which every client needs first."""

    kind: FaultKind
    api_key: int | None
    times: int | None = None
    skip: int = 0
    error_code: int = 0
    delay_ms: int = 0

    def __post_init__(self) -> None:
        if self.times is not None and self.times < 1:
            raise ValueError(f"times={self.times}: a fault happens at least once (None: until cleared)")
        if self.skip < 0:
            raise ValueError(f"skip={self.skip}: cannot let fewer than 0 requests pass")
        if self.kind is FaultKind.FAIL and self.error_code == 0:
            raise ValueError("error NONE is not a fault")
        if self.kind is FaultKind.DELAY and self.delay_ms < 0:
            raise ValueError(f"ms={self.delay_ms}: cannot delay into the past")

    def matches(self, api_key: int) -> bool:
        if self.api_key is None:
            return api_key != API_VERSIONS
        return api_key == self.api_key


@dataclass(slots=True)
class _Rule:
    fault: Fault
    matched: int = 0

    @property
    def used_up(self) -> bool:
        fault = self.fault
        return fault.times is not None and self.matched >= fault.skip + fault.times


@dataclass(slots=True)
class FaultPlan:
    """The active rules, and the numbers of requests per API that arrived and that were hit."""

    seen: Counter[int] = field(default_factory=Counter)
    hit: Counter[int] = field(default_factory=Counter)
    _rules: list[_Rule] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
        self._rules.append(_Rule(fault))

    def clear(self) -> None:
        """Removes the rules; the counters stay."""
        self._rules.clear()

    @property
    def pending(self) -> list[Fault]:
        """The rules that are not used up."""
        return [rule.fault for rule in self._rules]

    def decide(self, api_key: int) -> Fault | None:
        self.seen[api_key] += 1
        for rule in self._rules:
            if not rule.fault.matches(api_key):
                continue
            rule.matched += 1
            if rule.matched <= rule.fault.skip:
                continue
            if rule.used_up:
                self._rules.remove(rule)
            self.hit[api_key] += 1
            return rule.fault
        return None
