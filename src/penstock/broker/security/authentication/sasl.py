"""SASL logins: the mechanisms of a listener, the state of a login, and the requests that are allowed before
it.

    handshake (KIP-43)  ->  authenticate, once or more (KIP-152)  ->  done, until it expires (KIP-368)

Until a client is authenticated, only ApiVersions, SaslHandshake and SaslAuthenticate are served. The response
to a failed login is delayed, and is the same for an unknown user and a wrong password; then the connection is
closed.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.net.dispatch import CloseConnection, LastAnswer, Pending
from penstock.broker.net.session import Session
from penstock.broker.security.authentication.principal import USER, Principal
from penstock.credentials import LoginFailed
from penstock.errors import (
    ApiError,
    IllegalSaslState,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.security.authentication.mechanisms import Mechanisms

_ALLOWED = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_KEY = struct.Struct(">h")
_LENGTH = struct.Struct(">i")


class Mechanism(Protocol):
    """The server side of one login. `user` is set when `is_done`, after `respond` has returned."""

    user: str
    is_done: bool
    expires_ms: int | None
    """The expiry of the credential itself, by the wall clock, if it has one."""
    by_token: bool
    """Whether it is a delegation token."""

    async def respond(self, message: bytes) -> bytes:
        """The response to a message of the client; raises LoginFailed if the login is rejected."""
        ...


class SaslListener:
    """SASL on one listener."""

    def __init__(
        self,
        mechanisms: Mechanisms,
        *,
        max_frame: int,
        failure_delay_ms: int,
        max_reauth_ms: int,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        on_failure: Callable[[Session, str], None] = lambda session, mechanism: None,
    ) -> None:
        self.mechanisms = mechanisms
        self.max_frame = max_frame
        self.failure_delay_s = failure_delay_ms / 1000
        self.max_reauth_ms = max_reauth_ms
        self.now_ms = now_ms
        self.monotonic = monotonic
        self.on_failure = on_failure

    def admit(self, session: Session) -> None:
        """Called for a new connection: it has to log in first."""
        session.login = Login(self, session)
        session.gate = session.login.before
        session.max_frame = self.max_frame


class Login:
    """The login of one connection."""

    __slots__ = ("_expires", "_listener", "_mechanism", "_mechanism_name", "_raw", "_session", "is_done")

    def __init__(self, listener: SaslListener, session: Session) -> None:
        self._listener = listener
        self._session = session
        self._mechanism: Mechanism | None = None
        self._mechanism_name = ""
        self._raw = False  # after SaslHandshake version 0: SASL messages without Kafka headers
        self._expires: float | None = None
        self.is_done = False

    @property
    def failure_delay_s(self) -> float:
        return self._listener.failure_delay_s

    # -- gates

    def before(self, dispatch: Any, session: Session, buf: bytearray, pos: int, end: int) -> Any:
        """The gate before the login is complete."""
        if self._raw and self._mechanism is not None:
            return self._raw_step(bytes(memoryview(buf)[pos:end]))
        if end - pos < 2 or _KEY.unpack_from(buf, pos)[0] not in _ALLOWED:
            raise CloseConnection("request before authentication; this listener requires SASL")
        return dispatch(session, buf, pos, end)

    def until_expired(self, dispatch: Any, session: Session, buf: bytearray, pos: int, end: int) -> Any:
        """The gate while a login is valid; the client may re-authenticate at any time."""
        assert self._expires is not None
        if self._listener.monotonic() > self._expires:
            if end - pos < 2 or _KEY.unpack_from(buf, pos)[0] not in _ALLOWED:
                raise CloseConnection(f"the login of {session.principal} has expired")
        return dispatch(session, buf, pos, end)

    # -- the two requests

    def handshake(self, version: int, name: str) -> Message | LastAnswer:
        mechanisms = self._listener.mechanisms.enabled
        if self._mechanism is not None:
            return self._refused_handshake(IllegalSaslState(), "a second SaslHandshake")
        if name not in mechanisms or (self.is_done and name != self._mechanism_name):
            return self._refused_handshake(UnsupportedSaslMechanism(), "an unsupported mechanism")
        self._mechanism = self._listener.mechanisms.begin(name)
        self._mechanism_name = name
        self._raw = version == 0 and not self.is_done
        return Message(error_code=0, mechanisms=list(mechanisms))

    def _refused_handshake(self, error: ApiError, reason: str) -> LastAnswer:
        mechanisms = list(self._listener.mechanisms.enabled)
        return LastAnswer(Message(error_code=error.code, mechanisms=mechanisms), f"SASL: {reason}")

    async def authenticate(self, message: bytes) -> Message | LastAnswer:
        if self._mechanism is None:
            return _refused(IllegalSaslState("SaslAuthenticate without SaslHandshake"), "no SaslHandshake")
        try:
            answer, lifetime_ms = await self._step(message)
        except LoginFailed as reason:
            self._listener.on_failure(self._session, self._mechanism_name)
            await asyncio.sleep(self._listener.failure_delay_s)
            error = SaslAuthenticationFailed(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + self._mechanism_name
            )
            return _refused(error, f"{self._mechanism_name} login failed: {reason}")
        return Message(error_code=0, error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms)

    def _raw_step(self, message: bytes) -> Pending:
        """A SASL message without headers, as from clients before Kafka 1.0: a failed login closes the
        connection."""

        def convert(done: asyncio.Future[Any]) -> bytes | CloseConnection:
            failure = done.exception()
            if failure is not None:
                return CloseConnection(f"{self._mechanism_name} login failed: {failure}")
            answer: bytes = done.result()[0]
            return _LENGTH.pack(len(answer)) + answer

        async def step() -> tuple[bytes, int]:
            try:
                return await self._step(message)
            except LoginFailed:
                self._listener.on_failure(self._session, self._mechanism_name)
                await asyncio.sleep(self._listener.failure_delay_s)
                raise

        task = asyncio.get_running_loop().create_task(step())
        return Pending(task, convert, exclusive=True, cancellable=True)

    async def _step(self, message: bytes) -> tuple[bytes, int]:
        """The response of the mechanism, and the session lifetime in milliseconds, 0 for no limit."""
        mechanism = self._mechanism
        assert mechanism is not None
        answer = await mechanism.respond(message)
        if not mechanism.is_done:
            return answer, 0
        self._mechanism = None
        principal = Principal(USER, mechanism.user, by_token=mechanism.by_token)
        if self.is_done and principal != self._session.principal:
            raise LoginFailed(f"{self._session.principal} cannot become {principal}")
        return answer, self._done(principal, mechanism.expires_ms)

    def _done(self, principal: Principal, expires_ms: int | None) -> int:
        listener, session = self._listener, self._session
        lifetimes = [listener.max_reauth_ms] if listener.max_reauth_ms else []
        if expires_ms is not None:
            lifetimes.append(max(expires_ms - listener.now_ms(), 1))
        self.is_done = True
        if session.on_login is not None:
            session.on_login()
            session.on_login = None
        session.principal = principal
        session.max_frame = 0
        if not lifetimes:
            session.gate = None
            return 0
        lifetime_ms = min(lifetimes)
        self._expires = listener.monotonic() + lifetime_ms / 1000
        session.gate = self.until_expired
        return lifetime_ms


def _refused(error: ApiError, reason: str) -> LastAnswer:
    message = Message(
        error_code=error.code, error_message=error.message, auth_bytes=b"", session_lifetime_ms=0
    )
    return LastAnswer(message, reason)
