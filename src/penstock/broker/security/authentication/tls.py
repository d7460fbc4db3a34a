"""TLS contexts from the settings of a listener: PEM files or text, reloaded when a file changes.

Uses the ssl module of the standard library. Only TLS 1.2 and 1.3; no session resumption, so that every
connection presents its certificate; no renegotiation.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from penstock.config import BrokerConfig
from penstock.credentials.revocation import (
    BadRevocationList,
    load_revocation_lists,
    read_revocation_lists,
)
from penstock.errors import ConfigError

log = logging.getLogger(__name__)

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_PEM = b"-----BEGIN "
_CONVERT = "make PEM of it: `openssl pkcs12 -in STORE -nodes -out FILE`"


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The TLS settings of a listener. Its repr does not show secrets."""

    listener: str
    keystore: str | None
    certificate: str | None
    key: str | None = field(repr=False)
    key_password: str | None = field(repr=False)
    truststore: str | None
    authorities: str | None
    revocations: str | None
    client_auth: str
    versions: tuple[str, ...]
    ciphers: tuple[str, ...]
    check_hostname: bool

    @classmethod
    def of(cls, config: BrokerConfig, listener: str) -> TlsSettings:
        def value(name: str) -> str | None:
            found: str | None = config.of_listener(listener, name)
            return found or None

        return cls(
            listener,
            keystore=value("ssl.keystore.location"),
            certificate=value("ssl.keystore.certificate.chain"),
            key=value("ssl.keystore.key"),
            key_password=value("ssl.key.password"),
            truststore=value("ssl.truststore.location"),
            authorities=value("ssl.truststore.certificates"),
            revocations=value("ssl.crl.location"),
            client_auth=config.of_listener(listener, "ssl.client.auth"),
            versions=config.of_listener(listener, "ssl.enabled.protocols"),
            ciphers=config.of_listener(listener, "ssl.cipher.suites"),
            check_hostname=bool(value("ssl.endpoint.identification.algorithm")),
        )

    def stamp(self) -> tuple[object, ...]:
        """Changes when a file does."""
        stamps: list[object] = [self]
        for path in (self.keystore, self.truststore, self.revocations):
            if path is not None:
                try:
                    stat = os.stat(path)
                    stamps.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
                except OSError as error:
                    stamps.append(error.errno)
        return tuple(stamps)

    # contexts

    def server_context(self) -> ssl.SSLContext:
        """The context for client connections; a ConfigError names the invalid setting."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._set_up(context)
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.num_tickets = 0
        context.verify_mode = _CLIENT_AUTH[self.client_auth]
        if not self._load_own(context):
            raise ConfigError(
                f"listener {self.listener} speaks TLS and has no certificate: set ssl.keystore.location, or "
                "ssl.keystore.certificate.chain and ssl.keystore.key"
            )
        if self.client_auth != "none":
            self._load_authorities(context)
        return context

    def client_context(self) -> ssl.SSLContext:
        """The context for connections to other brokers, with this broker's certificate if it has one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._set_up(context)
        context.check_hostname = self.check_hostname
        context.verify_mode = ssl.CERT_REQUIRED
        self._load_own(context)
        self._load_authorities(context)
        return context

    def _set_up(self, context: ssl.SSLContext) -> None:
        versions = sorted(_VERSIONS[name] for name in self.versions)
        context.minimum_version, context.maximum_version = versions[0], versions[-1]
        # The suites of TLS 1.3 cannot be chosen; all of them are sound.
        names = [_openssl_name(name) for name in self.ciphers if not name.startswith("TLS_AES_")]
        names = [name for name in names if name != "TLS_CHACHA20_POLY1305_SHA256"]
        if names:
            try:
                context.set_ciphers(":".join(names))
            except ssl.SSLError as error:
                raise ConfigError(f"ssl.cipher.suites: none of {', '.join(names)} is supported") from error

    def _load_own(self, context: ssl.SSLContext) -> bool:
        password = self.key_password or ""
        if self.keystore is not None:
            _read_pem("ssl.keystore.location", self.keystore)
            source = contextlib.nullcontext(self.keystore)
        elif self.certificate is not None and self.key is not None:
            source = _secret_file(f"{self.key}\n{self.certificate}\n")  # type: ignore[assignment]
        elif self.certificate is not None or self.key is not None:
            missing = "ssl.keystore.key" if self.key is None else "ssl.keystore.certificate.chain"
            raise ConfigError(f"{missing} is not set: a certificate and its key go together")
        else:
            return False
        with source as path:
            try:
                # A function, because without a password the library would prompt on the terminal.
                context.load_cert_chain(path, password=lambda: password)
            except (ssl.SSLError, OSError) as error:
                name = "ssl.keystore.location" if self.keystore else "ssl.keystore.key"
                raise ConfigError(
                    f"the certificate and key of listener {self.listener} ({name}) cannot be used: "
                    f"{getattr(error, 'reason', None) or error.strerror or 'wrong ssl.key.password?'}"
                ) from None
        return True

    def _load_authorities(self, context: ssl.SSLContext) -> None:
        self._load_trusted(context)
        if self.revocations is not None:
            try:
                load_revocation_lists(context, read_revocation_lists(self.revocations))
            except BadRevocationList as error:
                raise ConfigError(str(error)) from None

    def _load_trusted(self, context: ssl.SSLContext) -> None:
        text = self.authorities
        if self.truststore is not None:
            text = _read_pem("ssl.truststore.location", self.truststore).decode("ascii", "replace")
        if text is None:
            context.load_default_certs(
                ssl.Purpose.CLIENT_AUTH
                if context.protocol is ssl.PROTOCOL_TLS_SERVER
                else ssl.Purpose.SERVER_AUTH
            )
            return
        try:
            context.load_verify_locations(cadata=text)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"the ssl.truststore of listener {self.listener} cannot be used: {error}"
            ) from None


class TlsContexts:
    """The current contexts of a listener. `refresh` creates new ones if settings or files have changed;
    existing connections keep theirs."""

    def __init__(self, listener: str, config: Callable[[], BrokerConfig], *, client: bool = False) -> None:
        self._listener = listener
        self._config = config
        settings = TlsSettings.of(config(), listener)
        self._stamp = settings.stamp()
        self.client_auth = settings.client_auth
        self.server = settings.server_context()
        self.client = settings.client_context() if client else None

    def refresh(self) -> bool:
        """Reads files, so run it in a thread. Errors are logged, and the contexts are not changed."""
        settings = TlsSettings.of(self._config(), self._listener)
        stamp = settings.stamp()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            server = settings.server_context()
            client = None if self.client is None else settings.client_context()
        except ConfigError as error:
            log.error(
                "listener %s: could not reload TLS certificates, keeping the current ones: %s",
                self._listener,
                error,
            )
            return False
        self.server, self.client, self.client_auth = server, client, settings.client_auth
        log.info("listener %s: reloaded TLS certificates and settings", self._listener)
        return True


def _read_pem(name: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ConfigError(f"{name}={path}: {error.strerror}") from error
    if _PEM not in data:
        raise ConfigError(f"{name}={path} is not a PEM file; {_CONVERT}")
    return data


@contextlib.contextmanager
def _secret_file(text: str) -> Iterator[str]:
    """A temporary file, because the library accepts only files; only its owner can read it, and it is deleted
    immediately after use."""
    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)


def _openssl_name(name: str) -> str:
    """OpenSSL's name of a cipher suite of the IANA: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    if not name.startswith("TLS_") or "_WITH_" not in name:
        return name
    name = name.removeprefix("TLS_").replace("_WITH_", "_").replace("AES_", "AES").replace("_", "-")
    return name.removesuffix("-SHA256") if "CHACHA20" in name else name
