"""What a handler knows about a request, apart from its body."""

from __future__ import annotations

from penstock.broker.net.session import Session
from penstock.broker.security.authentication.principal import ANONYMOUS, Principal


class RequestContext:
    __slots__ = (
        "api_key", "client_id", "connection", "correlation_id", "is_from_follower", "listener", "peer",
        "principal", "session", "spent_s", "throttle_ms", "version",
    )  # fmt: skip

    # Set only if there are quotas: the throttle time, whether the client says that it is a follower, and how
    # many seconds the request has taken on the event loop.
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
        """`connection` is the number of the connection, in the order of accepting; `listener` is the name of
        its listener."""
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
