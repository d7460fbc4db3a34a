"""The session of a connection: its address, listener and authenticated principal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.broker.security.authentication.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from penstock.broker.security.authentication.sasl import Login

Gate = Callable[[Any, "Session", bytearray, int, int], Any]
"""gate(dispatch, session, buf, pos, end): lets a request through to `dispatch`, or raises CloseConnection."""


class Session:
    """`connection` is the number of the connection, in the order of accepting. `mute_ms` is how long it is to
    be muted because of a quota."""

    __slots__ = (
        "connection", "gate", "listener", "login", "max_frame", "mute_ms", "on_login", "peer", "principal",
        "software",
    )  # fmt: skip

    def __init__(
        self, peer: str = "?", connection: int = 0, principal: Principal = ANONYMOUS, listener: str = ""
    ) -> None:
        self.peer = peer
        self.connection = connection
        self.principal = principal
        self.listener = listener
        self.mute_ms = 0
        self.software = ("unknown", "unknown")  # name and version of the client, from ApiVersions
        self.login: Login | None = None  # only on a SASL listener
        self.on_login: Callable[[], None] | None = None  # called after the first login
        self.gate: Gate | None = None  # requests must pass it before dispatch
        self.max_frame = 0  # the largest request, if lower than the broker's limit
