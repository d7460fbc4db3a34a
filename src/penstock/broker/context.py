"""What a handler knows about a request besides its body."""

from __future__ import annotations


class RequestContext:
    __slots__ = ("api_key", "client_id", "correlation_id", "peer", "version")

    def __init__(
        self, api_key: int, version: int, correlation_id: int, client_id: str | None, peer: str
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.peer = peer

    def __str__(self) -> str:
        client = "" if self.client_id is None else f" ({self.client_id})"
        return f"api {self.api_key} v{self.version} correlation {self.correlation_id} of {self.peer}{client}"
