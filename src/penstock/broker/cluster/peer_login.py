"""How this broker authenticates to other brokers: TLS with its own certificate, and SASL, as configured.

The settings of the inter-broker listener decide: its security protocol,
`sasl.mechanism.inter.broker.protocol`, and the `username` and `password` of
`listener.name.<name>.<mechanism>.sasl.jaas.config`. A login that expires is renewed on the same connection
before that (KIP-368).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol

from penstock.broker.security.authentication.listener import ListenerSecurity, jaas, jaas_name
from penstock.config import BrokerConfig
from penstock.errors import ConfigError, PenstockError
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message, decode_response, encode_request
from penstock.wire.frame import response_start
from penstock.wire.login import (
    ClientLogin,
    ClientLoginFailed,
    LoginRejected,
    MechanismNotSupported,
    Step,
    by_password,
)

_VERSIONS = {ApiKey.SASL_HANDSHAKE: 1, ApiKey.SASL_AUTHENTICATE: 2}
_ANSWER_SECONDS = 10.0
_RENEW_AFTER = 0.8  # of the session lifetime


class PeerRefused(PenstockError):
    """The other broker has rejected the login of this one."""


class Sender(Protocol):
    def send(self, api: ApiKey, version: int, body: bytes, timeout: float) -> asyncio.Future[bytearray]: ...
    def close(self, reason: str = ...) -> None: ...


class PeerLogin:
    """TLS and SASL of a connection to another broker, by the settings of the inter-broker listener."""

    def __init__(self, config: Callable[[], BrokerConfig], listener: ListenerSecurity) -> None:
        self._config = config
        self._listener = listener
        self._mechanism: str = config().sasl_mechanism_inter_broker_protocol
        self._renewals: set[asyncio.Task[None]] = set()
        if listener.sasl is not None:
            own_login(
                config(), listener.name, self._mechanism
            )  # raises ConfigError here rather than at the first connection
            if self._mechanism not in listener.sasl.mechanisms.enabled:
                raise ConfigError(
                    f"sasl.mechanism.inter.broker.protocol={self._mechanism} is not among "
                    f"sasl.enabled.mechanisms of listener {listener.name}"
                )

    @property
    def tls(self) -> ssl.SSLContext | None:
        return None if self._listener.tls is None else self._listener.tls.client

    async def log_in(self, connection: Sender) -> None:
        """Logs in over the connection; raises PeerRefused if the other broker rejects the login."""
        if self._listener.sasl is None:
            return
        lifetime_ms = await self._exchange(connection)
        if lifetime_ms > 0:
            loop = asyncio.get_running_loop()
            loop.call_later(lifetime_ms * _RENEW_AFTER / 1000, self._renew, connection)

    def _renew(self, connection: Sender) -> None:
        task = asyncio.get_running_loop().create_task(self._renewed(connection))
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)

    async def _renewed(self, connection: Sender) -> None:
        try:
            await self.log_in(connection)
        except PenstockError as error:
            connection.close(f"the login could not be renewed: {error}")

    async def _exchange(self, connection: Sender) -> int:
        """Does the SASL exchange. Returns the session lifetime in milliseconds, 0 for no limit."""
        user, password = own_login(self._config(), self._listener.name, self._mechanism)
        login = ClientLogin(by_password(self._mechanism, user, password))
        loop = asyncio.get_running_loop()
        step: Step | None = login.first()
        try:
            while step is not None:
                answer = await _call(connection, *step)
                if self._mechanism == "PLAIN":
                    step = login.next(answer)
                else:
                    step = await loop.run_in_executor(None, login.next, answer)
        except MechanismNotSupported as error:
            raise PeerRefused(
                f"it does not support {error.mechanism}; supported: {error.supported}"
            ) from None
        except LoginRejected as error:
            raise PeerRefused(f"it rejected the login of {user}: {error.reason}") from None
        except ClientLoginFailed as error:
            raise PeerRefused(str(error)) from None
        return login.lifetime_ms


async def _call(connection: Sender, api: ApiKey, request: Message) -> Message:
    version = _VERSIONS[api]
    frame = await connection.send(api, version, encode_request(api, version, request), _ANSWER_SECONDS)
    return decode_response(api, version, bytes(frame), response_start(api, version, frame))


def own_login(config: BrokerConfig, listener: str, mechanism: str) -> tuple[str, str]:
    """User and password of this broker; ConfigError if they are not set."""
    options = jaas(config, listener, mechanism)
    if not options.get("username") or "password" not in options:
        raise ConfigError(
            f"this broker has no login for the others: set {jaas_name(listener, mechanism)}"
            '=…LoginModule required username="…" password="…";'
        )
    return options["username"], options["password"]
