"""Fault injection for tests of a real broker: errors, delays, closed connections."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from penstock.broker.net.context import RequestContext


@dataclass(frozen=True, slots=True)
class Action:
    """What happens to one request. The first of `drop`, `error_code` and `delay_ms` that is set counts."""

    error_code: int = 0
    """Respond with this error; the request is not handled."""
    delay_ms: int = 0
    """Handle the request after this delay."""
    drop: bool = False
    """Close the connection; the request is not handled."""
    drop_after: bool = False
    """Handle the request, but close the connection instead of sending the response."""


class Interceptor(Protocol):
    def intercept(self, context: RequestContext) -> Action | None | Awaitable[Action | None]:
        """Called for each request before it is handled; None handles it normally."""
        ...
