"""A connection that sends Kafka requests one at a time, in any version.

For the helpers of `PenstockBroker`, and for tests of the protocol itself, which need exact versions and bytes
that real clients choose themselves.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType

from penstock.client.frames import receive_frame, send_frame
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message, decode_response, encode_request
from penstock.wire.frame import Requests, response_start

_FRAME = struct.Struct(">i")


class WireClient:
    """One TCP connection to one broker."""

    def __init__(
        self,
        port: int,
        host: str = "127.0.0.1",
        *,
        client_id: str = "penstock-testing",
        timeout: float = 10.0,
    ) -> None:
        self._requests = Requests(client_id)
        self.socket = socket.create_connection((host, port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def request(self, api: ApiKey, version: int, message: Message) -> Message:
        """Sends a request and waits for its response."""
        correlation_id = self.send(api, version, encode_request(api, version, message))
        return self.receive(api, version, correlation_id)

    def send(self, api: ApiKey, version: int, body: bytes) -> int:
        """Sends the header and a body; returns the correlation id."""
        correlation_id, frame = self._requests.frame(api, version, body)
        self.socket.sendall(frame)
        return correlation_id

    def receive(self, api: ApiKey, version: int, correlation_id: int | None = None) -> Message:
        """The next response, which must have `correlation_id`."""
        return decode_response(api, version, self.receive_body(api, version, correlation_id), 0)

    def receive_body(self, api: ApiKey, version: int, correlation_id: int | None = None) -> bytes:
        """The next response's bytes after its header."""
        frame = self.receive_frame()
        (answered,) = _FRAME.unpack_from(frame)
        if correlation_id is not None and answered != correlation_id:
            raise ConnectionError(f"answer to {answered} instead of {correlation_id}: out of order")
        start = response_start(api, version, frame)
        if start > 5:
            raise ConnectionError("tagged fields in the response header, which Kafka never sends")
        return frame[start:]

    def send_frame(self, payload: bytes) -> None:
        send_frame(self.socket, payload)

    def receive_frame(self) -> bytes:
        return bytes(receive_frame(self.socket))
