"""One connection to one broker: frames, versions, answers in the order of the requests.

A request is sent and its answer taken in two steps, so that a reader can ask for the next records while it
works on the last. Every failure of the socket is a `ConnectionFailed` that names the address; after one the
connection is of no more use. For one thread.
"""

from __future__ import annotations

import socket
import struct

from penstock.client.errors import ConnectionFailed
from penstock.client.settings import ClientSettings, format_address
from penstock.errors import UnsupportedVersion, WireError, error_for_code
from penstock.wire.api_keys import ApiKey, request_header_version, response_header_version
from penstock.wire.codec import Message, decode_response, encode_request, valid_versions

_FRAME = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
_LARGEST_ANSWER = 2**31 - 1
_CHUNK = 1 << 20


class Connection:
    """A connection that is ready for requests: connected, and its broker's versions known."""

    def __init__(self, host: str, port: int, settings: ClientSettings) -> None:
        self.address = format_address(host, port)
        self.usable = True
        self._settings = settings
        self._client_id = settings.client_id.encode()
        self._correlation_id = 0
        self._waiting: dict[int, bytearray | None] = {}  # sent and not taken; what has come already
        self._dropped: set[int] = set()
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            self._socket = socket.create_connection((host, port), settings.connect_timeout_ms / 1000)
        except OSError as error:
            raise ConnectionFailed(f"cannot reach the broker at {self.address} ({_reason(error)})") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ask_versions()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.usable = False
        self._socket.close()

    def _ask_versions(self) -> None:
        # Version 0 is what every broker knows, whatever else it serves.
        answer = self._exchange(ApiKey.API_VERSIONS, 0, Message())
        if answer.error_code:
            raise error_for_code(answer.error_code)(f"the broker at {self.address} refused ApiVersions")
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def version(self, api: ApiKey, at_most: int = 32767) -> int:
        """The newest version that the broker and this client know; UnsupportedVersion if there is none."""
        lowest, highest = self._versions.get(api, (0, -1))
        known = valid_versions(api)
        version = min(highest, known[-1], at_most)
        if version < max(lowest, known[0]):
            name = api.name.title().replace("_", "")
            served = f"serves {lowest} to {highest}" if highest >= 0 else "does not serve it"
            raise UnsupportedVersion(
                f"{name}: this client knows versions {known[0]} to {min(known[-1], at_most)}, "
                f"the broker at {self.address} {served}"
            )
        return version

    def request(self, api: ApiKey, message: Message, *, at_most: int = 32767) -> Message:
        """The answer to `message`."""
        return self._exchange(api, self.version(api, at_most), message)

    def _exchange(self, api: ApiKey, version: int, message: Message) -> Message:
        ticket = self.send(api, version, encode_request(api, version, message))
        answer = self.receive(ticket, self._settings.request_timeout_ms)
        try:
            return decode_response(api, version, answer, 4 + response_header_version(api, version))
        except WireError as error:
            raise self._failed(f"did not answer as a Kafka broker does: {error}") from error

    def send(self, api: ApiKey, version: int, body: bytes) -> int:
        """Send one request. The number that is returned gets its answer, or drops it."""
        self._correlation_id = ticket = (self._correlation_id + 1) & 0x7FFFFFFF
        header = _HEADER.pack(api, version, ticket, len(self._client_id)) + self._client_id
        if request_header_version(api, version) >= 2:
            header += b"\0"  # no tagged fields
        try:
            self._socket.settimeout(self._settings.request_timeout_ms / 1000)
            self._socket.sendall(_FRAME.pack(len(header) + len(body)) + header + body)
        except OSError as error:
            raise self._lost(error) from error
        self._waiting[ticket] = None
        return ticket

    def receive(self, ticket: int, timeout_ms: int) -> bytearray:
        """The answer to the request of that number, its header included; others' are kept for them."""
        try:
            self._socket.settimeout(timeout_ms / 1000)
            while (answer := self._waiting[ticket]) is None:
                self._take()
        except TimeoutError as error:
            raise self._failed(f"did not answer within {timeout_ms} ms") from error
        except OSError as error:
            raise self._lost(error) from error
        del self._waiting[ticket]
        return answer

    def drop(self, ticket: int) -> None:
        """Nobody wants that answer any more."""
        if self._waiting.get(ticket) is not None:
            del self._waiting[ticket]
        elif ticket in self._waiting:
            self._dropped.add(ticket)

    def _take(self) -> None:
        """The next answer on the connection, to whichever request."""
        (length,) = _FRAME.unpack(self._read(4))
        if not 4 <= length <= _LARGEST_ANSWER:
            raise self._failed(f"did not answer as a Kafka broker does: a frame of {length} bytes")
        answer = self._read(length)
        (ticket,) = _FRAME.unpack_from(answer)
        if ticket not in self._waiting:
            raise self._failed("answered what it was not asked")
        if ticket in self._dropped:
            self._dropped.remove(ticket)
            del self._waiting[ticket]
        else:
            self._waiting[ticket] = answer

    def _read(self, count: int) -> bytearray:
        data = bytearray(min(count, _CHUNK))
        have = 0
        while True:
            with memoryview(data) as view:
                while have < len(data):
                    size = self._socket.recv_into(view[have:])
                    if not size:
                        raise ConnectionResetError("closed by the broker")
                    have += size
            if have == count:
                return data
            # The length is believed only after a first part has come.
            grown = bytearray(count)
            grown[:have] = data
            data = grown

    def _lost(self, error: OSError) -> ConnectionFailed:
        return self._failed(
            f"closed the connection or broke it ({_reason(error)}): "
            "is it a Kafka broker, and does its listener speak "
            f"security.protocol={self._settings.security.protocol}?"
        )

    def _failed(self, what: str) -> ConnectionFailed:
        self.close()
        return ConnectionFailed(f"the broker at {self.address} {what}")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
