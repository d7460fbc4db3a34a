"""The table of APIs that this broker serves; the ApiVersions response is built from it.

Each file in `broker/api` makes one `register` call, and every registered API is advertised.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.wire.api_keys import ApiKey

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.net.context import RequestContext
    from penstock.wire.message import Message

    # With this type mypy checks that a broker has all the parts that a handler needs.
    MessageHandler = Callable[[Broker, RequestContext, Message], Any]
    InPlaceHandler = Callable[[Broker, RequestContext, bytearray, int, int], Any]


@dataclass(frozen=True, slots=True)
class Api:
    key: ApiKey
    versions: range
    handle: Callable[..., Any]
    """handle(broker, context, request), or handle(broker, context, buf, pos, end) if there is a `parse`.

    Returns the response (a message, the encoded body, or its chunks), a future of it, or a coroutine.
    """
    error_response: Callable[..., Any]
    """error_response(context, request, code): a response with this error in each of its error code fields."""
    parse: Callable[[Any, int, int, int], Any] | None = None
    """parse(buf, pos, end, version), for the APIs whose hand-written parser reads the request in place."""
    concurrent: bool = False
    """Whether later requests of the connection are handled while this one waits."""
    handle_message: Callable[..., Any] | None = None
    """handle(broker, context, request), for an API that also has a `parse`: called if an authorizer is on."""


APIS: dict[int, Api] = {}


def register(
    key: ApiKey,
    versions: range,
    handle: MessageHandler | InPlaceHandler,
    error_response: Callable[..., Any],
    *,
    parse: Callable[[Any, int, int, int], Any] | None = None,
    concurrent: bool = False,
    handle_message: MessageHandler | None = None,
) -> Api:
    api = Api(key, versions, handle, error_response, parse, concurrent, handle_message)
    if APIS.setdefault(int(key), api) is not api:
        raise ValueError(f"{key.name} is registered twice")
    return api


def load_apis() -> dict[int, Api]:
    """Every API of `broker/api`, by key."""
    package = importlib.import_module("penstock.broker.api")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"penstock.broker.api.{module.name}")
    return APIS
