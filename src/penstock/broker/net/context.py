"""What a handler knows about a request besides its body."""

from __future__ import annotations

from penstock.broker.net.session import Session
from penstock.broker.security.authentication.principal import ANONYMOUS, Principal


class RequestContext:
    __slots__ = (
        "api_key", "client_id", "connection", "correlation_id", "is_from_follower", "listener", "peer",
        "principal", "session", "spent_s", "throttle_ms", "version",
    )  # fmt: skip

    # Set only where there are quotas: for how long the client is to wait, whether it says that it is a
    # follower, and the seconds that the request has taken of the loop.
    throttle_ms: int
    is_from_follower: bool
    spent_s: float

    def __init__(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        peer: str,
        connection: int = 0,
        principal: Principal = ANONYMOUS,
        listener: str = "",
        session: Session | None = None,
    ) -> None:
        """`connection` is its number, in the order in which connections were made; `listener` the name of
        the listener that accepted it."""
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.peer = peer
        self.connection = connection
        self.principal = principal
        self.listener = listener
        self.session = session

    def __str__(self) -> str:
        client = "" if self.client_id is None else f" ({self.client_id})"
        return f"api {self.api_key} v{self.version} correlation {self.correlation_id} of {self.peer}{client}"
