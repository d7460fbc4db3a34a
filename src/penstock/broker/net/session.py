"""What is known of a connection for as long as it lasts: where it comes from, and who is at the other end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.broker.security.authentication.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from penstock.broker.security.authentication.sasl import Login

Gate = Callable[[Any, "Session", bytearray, int, int], Any]
"""gate(dispatch, session, buf, pos, end): lets a request through to `dispatch`, or raises CloseConnection."""


class Session:
    """`connection` is its number, in the order in which connections were made; `mute_ms` for how long it
    is to be left unread because of a quota."""

    __slots__ = (
        "connection", "gate", "listener", "login", "max_frame", "mute_ms", "on_login", "peer", "principal",
    )  # fmt: skip

    def __init__(
        self, peer: str = "?", connection: int = 0, principal: Principal = ANONYMOUS, listener: str = ""
    ) -> None:
        self.peer = peer
        self.connection = connection
        self.principal = principal
        self.listener = listener
        self.mute_ms = 0
        self.login: Login | None = None  # on a listener with SASL
        self.on_login: Callable[[], None] | None = None  # called when the first login is done
        self.gate: Gate | None = None  # what requests must pass on their way
        self.max_frame = 0  # the largest request, where it is less than the broker's
