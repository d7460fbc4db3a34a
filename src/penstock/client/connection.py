"""One connection to one broker: TLS, SASL, frames, versions, requests and responses.

Sending a request and taking its response are two steps, so that a reader can request the next records while
it processes the last ones. Every failure of the socket is a `ConnectionFailed` that names the address; after
it the connection cannot be used any more. For one thread.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time

from penstock.client import sasl
from penstock.client.errors import AuthenticationFailed, ConnectionFailed, TlsFailed
from penstock.client.frames import BadFrame, receive_frame
from penstock.client.settings import ClientSettings, format_address
from penstock.errors import UnsupportedVersion, WireError, error_for_code
from penstock.wire.api_keys import ApiKey, api_name
from penstock.wire.codec import Message, decode_response, encode_request, valid_versions
from penstock.wire.frame import Requests, response_start
from penstock.wire.login import ClientLogin, ClientLoginFailed, LoginRejected, MechanismNotSupported, Step

_INT32 = struct.Struct(">i")
_SESSION_PART = 0.85  # part of the session lifetime that a broker gives an authenticated connection


class Connection:
    """A connection that is ready for requests: authenticated, and with known API versions."""

    def __init__(self, host: str, port: int, settings: ClientSettings) -> None:
        self.address = format_address(host, port)
        self._open = True
        self._expires = float("inf")
        self._settings = settings
        self._requests = Requests(settings.client_id)
        self._waiting: dict[int, bytearray | None] = {}  # sent and not taken; what has come already
        self._dropped: set[int] = set()
        self._versions: dict[int, tuple[int, int]] = {}
        self._ready = False
        self._timeout_ms = min(settings.connect_timeout_ms, settings.request_timeout_ms)
        try:
            self._socket = socket.create_connection((host, port), settings.connect_timeout_ms / 1000)
        except OSError as error:
            raise ConnectionFailed(f"cannot reach the broker at {self.address} ({_reason(error)})") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.security.tls:
                self._begin_tls(host)
            self._ask_versions()
            if settings.security.sasl:
                self._authenticate()
        except BaseException:
            self.close()
            raise
        self._ready = True
        self._timeout_ms = settings.request_timeout_ms

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def usable(self) -> bool:
        """Whether new requests can be sent: the connection is open, and its login has not expired."""
        return self._open and time.monotonic() < self._expires

    def fileno(self) -> int:
        """The socket's, for `select`: readable when a response begins to arrive."""
        return self._socket.fileno()

    def close(self) -> None:
        self._open = False
        self._socket.close()

    def _begin_tls(self, host: str) -> None:
        context = self._settings.security.context()
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except ssl.SSLError as error:
            raise self._tls_failed(error) from error
        except OSError as error:
            raise self._lost(error) from error

    def _authenticate(self) -> None:
        security = self._settings.security
        login = ClientLogin(sasl.mechanism(security))
        try:
            step: Step | None = login.first()
            while step is not None:
                step = login.next(self.request(*step))
        except MechanismNotSupported as error:
            raise AuthenticationFailed(
                f"the broker at {self.address} does not support sasl.mechanism={error.mechanism}; "
                f"supported: {error.supported}"
            ) from None
        except LoginRejected as error:
            who = f"{security.mechanism} as {security.username}" if security.username else security.mechanism
            raise AuthenticationFailed(
                f"the broker at {self.address} refused {who}: {error.reason}"
            ) from None
        except ClientLoginFailed as error:
            raise AuthenticationFailed(str(error)) from None
        if login.lifetime_ms > 0:
            # KIP-368: the broker closes the connection after that time, so another one is opened earlier.
            self._expires = time.monotonic() + login.lifetime_ms * _SESSION_PART / 1000

    def _ask_versions(self) -> None:
        # Every broker knows version 0.
        answer = self._exchange(ApiKey.API_VERSIONS, 0, Message())
        if answer.error_code:
            raise error_for_code(answer.error_code)(f"the broker at {self.address} refused ApiVersions")
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def version(self, api: ApiKey, at_most: int = 32767) -> int:
        """The newest version that the broker and this client support. Raises UnsupportedVersion if there is
        none.
        """
        lowest, highest = self._versions.get(api, (0, -1))
        known = valid_versions(api)
        version = min(highest, known[-1], at_most)
        if version < max(lowest, known[0]):
            name = api_name(api)
            served = f"serves {lowest} to {highest}" if highest >= 0 else "does not serve it"
            raise UnsupportedVersion(
                f"{name}: this client knows versions {known[0]} to {min(known[-1], at_most)}, "
                f"the broker at {self.address} {served}"
            )
        return version

    def request(self, api: ApiKey, message: Message, *, at_most: int = 32767) -> Message:
        """Send `message` and return the response."""
        return self._exchange(api, self.version(api, at_most), message)

    def _exchange(self, api: ApiKey, version: int, message: Message) -> Message:
        ticket = self.send(api, version, encode_request(api, version, message))
        answer = self.receive(ticket, self._timeout_ms)
        try:
            return decode_response(api, version, answer, response_start(api, version, answer))
        except WireError as error:
            raise self._failed(f"did not answer as a Kafka broker does: {error}") from error

    def send(self, api: ApiKey, version: int, body: bytes) -> int:
        """Send one request. Returns a number with which to `receive` or `drop` the response."""
        ticket, frame = self._requests.frame(api, version, body)
        try:
            self._socket.settimeout(self._timeout_ms / 1000)
            self._socket.sendall(frame)
        except OSError as error:
            raise self._lost(error) from error
        self._waiting[ticket] = None
        return ticket

    def receive(self, ticket: int, timeout_ms: int) -> bytearray:
        """The response to the request with that number, including its header. Responses to other requests are
        kept.
        """
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
        """Discard the response to that request."""
        if self._waiting.get(ticket) is not None:
            del self._waiting[ticket]
        elif ticket in self._waiting:
            self._dropped.add(ticket)

    def _take(self) -> None:
        """Read the next response on the connection, whichever request it belongs to."""
        try:
            answer = receive_frame(self._socket)
        except BadFrame as error:
            raise self._failed(f"did not answer as a Kafka broker does: {error}") from error
        (ticket,) = _INT32.unpack_from(answer)
        if ticket not in self._waiting:
            raise self._failed(f"sent a response with unknown correlation id {ticket}")
        if ticket in self._dropped:
            self._dropped.remove(ticket)
            del self._waiting[ticket]
        else:
            self._waiting[ticket] = answer

    def _lost(self, error: OSError) -> ConnectionFailed | TlsFailed:
        if isinstance(error, ssl.SSLError) and not self._ready:
            return self._tls_failed(error)  # TLS 1.3 refuses a client's certificate only after the handshake
        return self._failed(
            f"closed the connection or broke it ({_reason(error)}): "
            "is it a Kafka broker, and does its listener speak "
            f"security.protocol={self._settings.security.protocol}?"
        )

    def _tls_failed(self, error: ssl.SSLError) -> TlsFailed:
        self.close()
        if isinstance(error, ssl.SSLCertVerificationError):
            what = f"its certificate is not trusted ({error.verify_message}): see ssl.truststore.location"
        else:
            what = (
                f"{error.reason or error}: does its listener speak {self._settings.security.protocol}, "
                "and does it want a certificate of the client (ssl.keystore.location)?"
            )
        return TlsFailed(f"no TLS with the broker at {self.address}: {what}")

    def _failed(self, what: str) -> ConnectionFailed:
        self.close()
        return ConnectionFailed(f"the broker at {self.address} {what}")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
