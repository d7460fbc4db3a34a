"""The hook through which a test bends the answers of a real broker: errors, delays, lost connections."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from penstock.broker.net.context import RequestContext


@dataclass(frozen=True, slots=True)
class Action:
    """What happens to one request. Of `drop`, `error_code` and `delay_ms` the first that is set counts."""

    error_code: int = 0
    """Answer this error; the request is not handled."""
    delay_ms: int = 0
    """Handle the request after this time."""
    drop: bool = False
    """Close the connection; the request is not handled."""
    drop_after: bool = False
    """Handle the request, and close the connection instead of answering it."""


class Interceptor(Protocol):
    def intercept(self, context: RequestContext) -> Action | None | Awaitable[Action | None]:
        """Called for each request before it is handled; None lets it pass."""
        ...
