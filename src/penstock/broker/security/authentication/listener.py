"""The security of a listener: TLS and SASL of its connections, and their principals."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from penstock.broker.net.session import Session
from penstock.broker.security.authentication.mechanisms import (
    FixedUsers,
    Mechanisms,
    PlainUsers,
    TokenLogins,
    Tokens,
)
from penstock.broker.security.authentication.principal import ANONYMOUS, USER, Principal
from penstock.broker.security.authentication.sasl import SaslListener
from penstock.broker.security.authentication.subjects import SubjectRules, subject_of
from penstock.broker.security.authentication.tls import TlsContexts
from penstock.broker.security.authentication.unknown_users import Credentials
from penstock.clock import Clock
from penstock.config import BrokerConfig
from penstock.config.jaas import jaas_options
from penstock.config.listeners import PREFIX
from penstock.config.security import JAAS
from penstock.credentials.tokens import JwksTokens
from penstock.credentials.users_file import UsersFile
from penstock.errors import ConfigError

Config = Callable[[], BrokerConfig]
"""Returns the current settings: some of them change while the broker runs."""


class ListenerSecurity:
    """`tls` and `sasl` are None if the listener does not use them; `timeout_s` is the limit for both
    together."""

    def __init__(
        self,
        name: str,
        config: Config,
        clock: Clock,
        credentials: Credentials,
        salt_key: bytes,
        token_logins: TokenLogins | None = None,
        on_failure: Callable[[Session, str], None] | None = None,
    ) -> None:
        """`on_failure(session, mechanism)` is called for failed logins; "TLS" for a failed handshake."""
        self.name = name
        self.on_failure = on_failure or (lambda session, mechanism: None)
        now = config()
        self.protocol: str = now.protocols[name]
        self.tls: TlsContexts | None = None
        self.sasl: SaslListener | None = None
        self.timeout_s: float | None = None
        if self.protocol != "PLAINTEXT":
            self.timeout_s = now.of_listener(name, "penstock.authentication.timeout.ms") / 1000
        if self.protocol.endswith("SSL"):
            is_ours = now.inter_broker_listener == name and bool(now.zookeeper_connect)
            self.tls = TlsContexts(name, config, client=is_ours)
        if self.protocol.startswith("SASL"):
            self.sasl = SaslListener(
                _mechanisms(name, config, credentials, salt_key, token_logins),
                max_frame=now.of_listener(name, "sasl.server.max.receive.size"),
                failure_delay_ms=now.of_listener(name, "connection.failed.authentication.delay.ms"),
                max_reauth_ms=now.of_listener(name, "connections.max.reauth.ms"),
                now_ms=clock.now_ms,
                monotonic=clock.monotonic,
                on_failure=self.on_failure,
            )
        self._rules = SubjectRules(now.of_listener(name, "ssl.principal.mapping.rules"))

    def principal(self, tls: ssl.SSLObject) -> Principal:
        """The principal of a connection after the TLS handshake; ValueError if the certificate maps to
        none."""
        certificate = tls.getpeercert(True)
        if certificate is None or self.sasl is not None:
            return ANONYMOUS
        subject = subject_of(certificate)
        name = self._rules.name(subject)
        if name is None:
            raise ValueError(f"no rule of ssl.principal.mapping.rules matches {subject}")
        return Principal(USER, name)


def jaas_name(listener: str, mechanism: str) -> str:
    """The setting with the users and the login of a mechanism on a listener."""
    return f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS}"


def jaas(config: BrokerConfig, listener: str, mechanism: str) -> dict[str, str]:
    """The options of a JAAS setting; empty if it is not set."""
    text = config.of_listener(listener, f"{mechanism.lower()}.{JAAS}")
    return {} if text is None else jaas_options(jaas_name(listener, mechanism), text)


def _mechanisms(
    name: str, config: Config, credentials: Credentials, salt_key: bytes, token_logins: TokenLogins | None
) -> Mechanisms:
    now = config()
    enabled: tuple[str, ...] = now.of_listener(name, "sasl.enabled.mechanisms")
    users: PlainUsers | None = None
    tokens: Tokens | None = None
    if "PLAIN" in enabled:
        file = now.of_listener(name, "penstock.sasl.plain.users.file")
        if file:
            users = UsersFile(file)
        elif jaas(now, name, "PLAIN"):
            users = FixedUsers(_cached(name, config))
        else:
            raise ConfigError(
                f"listener {name} has no users of PLAIN: set penstock.sasl.plain.users.file, or "
                f'{jaas_name(name, "PLAIN")}=…PlainLoginModule required user_NAME="PASSWORD";'
            )
    if "OAUTHBEARER" in enabled:
        url = now.of_listener(name, "sasl.oauthbearer.jwks.endpoint.url")
        if not url:
            raise ConfigError(f"listener {name}: OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url")
        tokens = JwksTokens(
            url,
            issuer=now.of_listener(name, "sasl.oauthbearer.expected.issuer"),
            audience=now.of_listener(name, "sasl.oauthbearer.expected.audience") or (),
            user_claim=now.of_listener(name, "sasl.oauthbearer.sub.claim.name"),
            skew_s=now.of_listener(name, "sasl.oauthbearer.clock.skew.seconds"),
            refresh_s=now.of_listener(name, "sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000,
        )
    return Mechanisms(
        enabled,
        users=users,
        credentials=credentials,
        salt_key=salt_key,
        tokens=tokens,
        token_logins=token_logins,
    )


def _cached(name: str, config: Config) -> Callable[[], dict[str, str]]:
    """The users of PLAIN as last set; an invalid value changes nothing."""
    text, options = None, jaas(config(), name, "PLAIN")

    def current() -> dict[str, str]:
        nonlocal text, options
        latest = config().of_listener(name, f"plain.{JAAS}")
        if latest != text:
            text = latest
            try:
                options = jaas(config(), name, "PLAIN")
            except ConfigError:
                pass
        return options

    return current
