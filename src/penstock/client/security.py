"""Connection security: `security.protocol`, TLS and SASL settings with Kafka's Java names.

Certificates are PEM files or PEM text, as Kafka's clients accept them since 2.7 (KIP-651); librdkafka's names
for the files work, too. Java's keystores (JKS, PKCS12) are not supported: the error says how to convert them
to PEM.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.client.errors import BadClientSetting
from penstock.client.oauth import AWS_MSK_IAM, OAUTHBEARER, TOKEN_MECHANISMS, TokenSource, token_source
from penstock.credentials.revocation import (
    SETTING,
    BadRevocationList,
    load_revocation_lists,
    read_revocation_lists,
)

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER, AWS_MSK_IAM)

_TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")
_PEM = "-----BEGIN "


@dataclass(frozen=True, slots=True)
class Security:
    """`security.protocol` and the settings that belong to it. Secrets are not in its repr."""

    protocol: str = "PLAINTEXT"
    ca: str | None = None
    """PEM text of the certificates to trust; None trusts those of the system."""
    revocations: str | None = field(default=None, repr=False)
    """PEM text of revocation lists; a revoked server is not connected to."""
    certificate: str | None = None
    """PEM text of the client's own certificate chain."""
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    tls_versions: tuple[str, ...] = ()
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    is_token: bool = False
    """`username` is the id of a delegation token (KIP-48), `password` its HMAC in base64."""
    tokens: TokenSource | None = None
    """For OAUTHBEARER, and for AWS_MSK_IAM, which uses it."""

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    @classmethod
    def from_kafka(cls, settings: Mapping[str, str]) -> Security:
        """Reads the files immediately, so that the result can be sent to another machine."""
        protocol = settings.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise BadClientSetting(
                f"security.protocol={settings['security.protocol']}: must be one of {', '.join(PROTOCOLS)}"
            )
        certificate = key = ca = revocations = None
        versions: tuple[str, ...] = ()
        mechanism = username = password = ""
        is_token, tokens = False, None
        if protocol.endswith("SSL"):
            ca = _truststore(settings)
            certificate, key = _keystore(settings)
            versions = _versions(settings)
            revocations = _revocations(settings)
        if protocol.startswith("SASL"):
            mechanism = _mechanism(settings)
            options = jaas_options(settings["sasl.jaas.config"]) if settings.get("sasl.jaas.config") else {}
            if mechanism in TOKEN_MECHANISMS:
                tokens, mechanism = token_source(settings, mechanism, options), OAUTHBEARER
            else:
                username, password = _credentials(settings, mechanism, options)
                is_token = options.get("tokenauth", "").lower() == "true"
        identification = settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
        return cls(
            protocol,
            ca=ca,
            revocations=revocations,
            certificate=certificate,
            key=key,
            key_password=settings.get("ssl.key.password") or settings.get("ssl.keystore.password"),
            check_hostname=identification not in ("", "none"),
            tls_versions=versions,
            mechanism=mechanism,
            username=username,
            password=password,
            is_token=is_token,
            tokens=tokens,
        )

    def context(self) -> ssl.SSLContext:
        """The TLS context of these settings."""
        try:
            # With `cadata` only those certificates are trusted, without it the system's.
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cadata=self.ca)
            context.check_hostname = self.check_hostname
            if self.tls_versions:
                versions = sorted(_TLS_VERSIONS[name] for name in self.tls_versions)
                context.minimum_version, context.maximum_version = versions[0], versions[-1]
            if self.certificate is not None and self.key is not None:
                self._load_own(context, self.certificate, self.key)
            if self.revocations is not None:
                load_revocation_lists(context, self.revocations)
        except BadRevocationList as error:
            raise BadClientSetting(str(error)) from error
        except (ssl.SSLError, ValueError) as error:
            raise BadClientSetting(
                f"the PEM of an ssl.truststore or ssl.keystore setting cannot be used: {error}"
            ) from error
        return context

    def _load_own(self, context: ssl.SSLContext, certificate: str, key: str) -> None:
        # The library only reads files; this one is readable by its owner alone and deleted at once.
        descriptor, path = tempfile.mkstemp(suffix=".pem")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{key}\n{certificate}\n")
            # A callback, because without a password the library would prompt on the terminal.
            context.load_cert_chain(path, password=lambda: self.key_password or "")
        finally:
            os.unlink(path)


def _truststore(settings: Mapping[str, str]) -> str | None:
    text = settings.get("ssl.truststore.certificates")
    if text:
        return text
    for name in ("ssl.truststore.location", "ssl.ca.location"):
        if path := settings.get(name):
            return _pem_file(name, path, settings.get("ssl.truststore.type"))
    return None


def _revocations(settings: Mapping[str, str]) -> str | None:
    path = settings.get(SETTING)
    if not path:
        return None
    try:
        return read_revocation_lists(path)
    except BadRevocationList as error:
        raise BadClientSetting(str(error)) from error


def _keystore(settings: Mapping[str, str]) -> tuple[str | None, str | None]:
    """(certificate chain, private key) of the client, or (None, None)."""
    if path := settings.get("ssl.keystore.location"):
        text = _pem_file("ssl.keystore.location", path, settings.get("ssl.keystore.type"))
        return text, text
    certificate, key = settings.get("ssl.keystore.certificate.chain"), settings.get("ssl.keystore.key")
    if path := settings.get("ssl.certificate.location"):
        certificate = _pem_file("ssl.certificate.location", path, None)
    if path := settings.get("ssl.key.location"):
        key = _pem_file("ssl.key.location", path, None)
    if (certificate is None) != (key is None):
        missing = "ssl.keystore.key" if key is None else "ssl.keystore.certificate.chain"
        raise BadClientSetting(f"{missing} is missing: a client's certificate and its key go together")
    return certificate, key


def _pem_file(name: str, path: str, kind: str | None) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read()
    except OSError as error:
        raise BadClientSetting(f"{name}={path}: {error.strerror}") from error
    if _PEM not in text:
        store = f"a {kind} store" if kind and kind.upper() != "PEM" else "no PEM file"
        raise BadClientSetting(
            f"{name}={path} is {store}; give PEM: "
            "`keytool -importkeystore … -deststoretype PKCS12`, then `openssl pkcs12 -in … -nodes -out …`"
        )
    return text


def _versions(settings: Mapping[str, str]) -> tuple[str, ...]:
    names = tuple(
        name.strip() for name in settings.get("ssl.enabled.protocols", "").split(",") if name.strip()
    )
    for name in names:
        if name not in _TLS_VERSIONS:
            raise BadClientSetting(f"ssl.enabled.protocols: {name} is not one of {', '.join(_TLS_VERSIONS)}")
    return names


def _mechanism(settings: Mapping[str, str]) -> str:
    mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "GSSAPI"
    mechanism = mechanism.strip().upper()
    if mechanism not in MECHANISMS:
        raise BadClientSetting(f"sasl.mechanism={mechanism}: must be one of {', '.join(MECHANISMS)}")
    return mechanism


def _credentials(settings: Mapping[str, str], mechanism: str, options: Mapping[str, str]) -> tuple[str, str]:
    username = settings.get("sasl.username") or options.get("username")
    password = settings.get("sasl.password") or options.get("password")
    if not username or password is None:
        raise BadClientSetting(
            f"sasl.mechanism={mechanism} needs a name and a password: give sasl.jaas.config, "
            "or sasl.username and sasl.password"
        )
    return username, password


def jaas_options(text: str) -> dict[str, str]:
    """The options of a `sasl.jaas.config`: `…LoginModule required username="alice" password="secret";`"""
    words = text.strip().split(None, 2)
    if len(words) < 2 or not words[0].endswith("LoginModule") or not text.rstrip().endswith(";"):
        raise BadClientSetting(
            "sasl.jaas.config must read: "
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="…" password="…";'
        )
    found: dict[str, str] = {}
    for name, double, single, bare in _JAAS_OPTION.findall(words[2] if len(words) > 2 else ""):
        found[name] = re.sub(r"\\(.)", r"\1", double or single) or bare
    return found
