"""Measures the event loop time of a request, without its waits: each step between two waits is timed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from penstock.broker.net.context import RequestContext

T = TypeVar("T")


class Metered(Coroutine[Any, Any, T]):
    """A coroutine whose steps, from one wait to the next, are added to what its request has taken."""

    __slots__ = ("_context", "_coroutine", "_monotonic")

    def __init__(
        self, context: RequestContext, coroutine: Coroutine[Any, Any, T], monotonic: Callable[[], float]
    ) -> None:
        self._context = context
        self._coroutine = coroutine
        self._monotonic = monotonic

    def send(self, value: Any) -> Any:
        started = self._monotonic()
        try:
            return self._coroutine.send(value)
        finally:
            self._context.spent_s += self._monotonic() - started

    def throw(self, *error: Any) -> Any:
        started = self._monotonic()
        try:
            return self._coroutine.throw(*error)
        finally:
            self._context.spent_s += self._monotonic() - started

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()


def metered(
    context: RequestContext, work: Callable[..., T], monotonic: Callable[[], float]
) -> Callable[..., T]:
    """The same function, whose time is added to what its request has taken."""

    def timed(*args: Any) -> T:
        started = monotonic()
        try:
            return work(*args)
        finally:
            context.spent_s += monotonic() - started

    return timed
