"""The settings of security: protocols of listeners, TLS, SASL, and how brokers log in to each other.

Those in LISTENER_SETTINGS can be set for one listener: `listener.name.<name>.<setting>`; the users and logins
of a mechanism are in `listener.name.<name>.<mechanism>.sasl.jaas.config`, all in lower case.
"""

from __future__ import annotations

from typing import Any

from penstock.config.listeners import PREFIX, PROTOCOLS, ProtocolMap
from penstock.config.topic import INT, LIST, LONG, STRING
from penstock.config.types import AtLeastOneOf, ConfigDef, ConfigType, NonEmpty, OneOf, Range, Validator

PASSWORD = ConfigType.PASSWORD
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
JAAS = "sasl.jaas.config"
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


def _row(
    name: str, type: ConfigType, default: Any, validator: Validator | None, doc: str, dynamic: bool = True
) -> ConfigDef:
    return ConfigDef(name, type, default, doc, validator, dynamic=dynamic, sensitive=type is PASSWORD)


class UserAndPassword:
    def allows(self, value: Any) -> bool:
        user, colon, password = value.partition(":")
        return bool(user and colon and password)

    def __str__(self) -> str:
        return "user:password"


_BROKER = (
    _row("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, Range(1),
         "How often expired delegation tokens are deleted. They are rejected as soon as they expire.",
         dynamic=False),
    _row("delegation.token.expiry.time.ms", LONG, 86_400_000, Range(1),
         "How long a delegation token is good for until it is renewed.", dynamic=False),
    _row("delegation.token.max.lifetime.ms", LONG, 604_800_000, Range(1),
         "The longest lifetime of a delegation token, past which it cannot be renewed.", dynamic=False),
    _row("delegation.token.secret.key", PASSWORD, None, NonEmpty(),
         "The secret that delegation tokens are made with, the same on all brokers. Without it there are no"
         " delegation tokens; changing it invalidates all of them.", dynamic=False),
    _row("inter.broker.listener.name", STRING, None, NonEmpty(),
         "The listener that other brokers use; by default INTERNAL where there is one, else the listener"
         " named as security.inter.broker.protocol.", dynamic=False),
    _row("listener.security.protocol.map", STRING,
         "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
         ProtocolMap(), "The security protocol of each listener, by its name.", dynamic=False),
    _row("sasl.mechanism.inter.broker.protocol", STRING, "SCRAM-SHA-512",
         OneOf("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
         "The mechanism with which brokers log in to each other. Kafka's default is GSSAPI.", dynamic=False),
    _row("penstock.zookeeper.auth", PASSWORD, None, UserAndPassword(),
         "User and password of the brokers at ZooKeeper (scheme digest), as user:password. With it, only"
         " they can read or change their nodes.", dynamic=False),
    _row("security.inter.broker.protocol", STRING, "PLAINTEXT", OneOf(*PROTOCOLS),
         "The protocol between brokers, where inter.broker.listener.name is not set.", dynamic=False),
)  # fmt: skip

_LISTENER = (
    _row("connection.failed.authentication.delay.ms", INT, 100, Range(0, 60_000),
         "How long the answer to a failed login is held back.", dynamic=False),
    _row("connections.max.reauth.ms", LONG, 0, Range(0),
         "How long a login lasts; the client must log in again on the same connection before that (KIP-368)."
         " 0 for no limit.", dynamic=False),
    _row("penstock.authentication.timeout.ms", INT, 30_000, Range(1),
         "A connection whose TLS handshake and login take longer is closed.", dynamic=False),
    _row("penstock.sasl.plain.users.file", STRING, None, None,
         "A file with the users of PLAIN, one `name: password` a line; a password may be given as"
         " `pbkdf2_sha256:iterations:salt:hash`, the last two in base64. A changed file is read again.",
         dynamic=False),
    _row("sasl.enabled.mechanisms", LIST, ("SCRAM-SHA-512",), AtLeastOneOf(*MECHANISMS),
         "The mechanisms that clients may log in with. Kafka's default is GSSAPI, which is not served.",
         dynamic=False),
    _row("sasl.jaas.config", PASSWORD, None, None,
         "The users of PLAIN (`user_alice=\"password\"`) and the login of this broker with others"
         " (`username`, `password`); only as `listener.name.<name>.<mechanism>.sasl.jaas.config`."),
    _row("sasl.oauthbearer.clock.skew.seconds", INT, 30, Range(0),
         "How far the clocks of this broker and of the token issuer may differ.", dynamic=False),
    _row("sasl.oauthbearer.expected.audience", LIST, None, None,
         "A token must be for one of these audiences; empty for any.", dynamic=False),
    _row("sasl.oauthbearer.expected.issuer", STRING, None, None,
         "A token must be of this issuer.", dynamic=False),
    _row("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, Range(1000),
         "How often the keys are read again; also read when a token names a new one.", dynamic=False),
    _row("sasl.oauthbearer.jwks.endpoint.url", STRING, None, None,
         "The keys (JWKS) that tokens are signed with: an https:// or file:// URL.", dynamic=False),
    _row("sasl.oauthbearer.sub.claim.name", STRING, "sub", NonEmpty(),
         "The claim of a token that names its user.", dynamic=False),
    _row("sasl.server.max.receive.size", INT, 524_288, Range(1),
         "The largest request of a client that has not logged in yet.", dynamic=False),
    _row("ssl.cipher.suites", LIST, (), None,
         "The cipher suites of TLS 1.2, by OpenSSL's or the IANA's names; empty for OpenSSL's secure ones."),
    _row("ssl.client.auth", STRING, "none", OneOf("none", "requested", "required"),
         "Whether clients must show a certificate (mutual TLS)."),
    _row("ssl.crl.location", STRING, None, None,
         "A PEM file with revocation lists (CRL) of the authorities whose certificates are accepted. A"
         " handshake with a revoked one fails. A changed file is read again. Kafka has no such setting."),
    _row("ssl.enabled.protocols", LIST, TLS_VERSIONS, AtLeastOneOf(*TLS_VERSIONS),
         "The versions of TLS that are spoken."),
    _row("ssl.endpoint.identification.algorithm", STRING, "https", OneOf("https", ""),
         "Whether this broker checks the host names of the brokers that it connects to; empty for no check."),
    _row("ssl.key.password", PASSWORD, None, None, "The password of an encrypted private key."),
    _row("ssl.keystore.certificate.chain", PASSWORD, None, None,
         "The certificate of this broker and those that it was issued by, as PEM text."),
    _row("ssl.keystore.key", PASSWORD, None, None, "The private key of the certificate, as PEM text."),
    _row("ssl.keystore.location", STRING, None, None,
         "A PEM file with the private key and the certificate chain. A changed file is read again."),
    _row("ssl.keystore.password", PASSWORD, None, None, "Not used: a PEM file has no password of its own."),
    _row("ssl.keystore.type", STRING, "JKS", None,
         "The format of ssl.keystore.location. Penstock reads PEM, whatever is set here."),
    _row("ssl.principal.mapping.rules", STRING, "DEFAULT", None,
         "How the subject of a client's certificate becomes the name of its principal:"
         " RULE:pattern/replacement/[LU] or DEFAULT, the first that matches.", dynamic=False),
    _row("ssl.truststore.certificates", PASSWORD, None, None,
         "The certificates of authorities whose clients and brokers are trusted, as PEM text."),
    _row("ssl.truststore.location", STRING, None, None,
         "A PEM file with those certificates. A changed file is read again."),
    _row("ssl.truststore.password", PASSWORD, None, None, "Not used: a PEM file has no password of its own."),
    _row("ssl.truststore.type", STRING, "JKS", None,
         "The format of ssl.truststore.location. Penstock reads PEM, whatever is set here."),
)  # fmt: skip

SECURITY_CONFIGS: tuple[ConfigDef, ...] = (*_BROKER, *_LISTENER)

LISTENER_SETTINGS: dict[str, ConfigDef] = {row.name: row for row in _LISTENER}
"""Those that one listener may have for itself."""


def listener_setting(name: str) -> tuple[str, str] | None:
    """(LISTENER, setting) of `listener.name.<listener>.<setting>`; None where there is no such setting."""
    listener, _, setting = name.removeprefix(PREFIX).partition(".")
    mechanism, _, rest = setting.partition(".")
    if rest == JAAS and mechanism.upper() in MECHANISMS:
        return listener.upper(), setting
    return (listener.upper(), setting) if setting in LISTENER_SETTINGS else None
