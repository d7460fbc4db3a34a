"""An authority and certificates for tests of TLS, made in memory."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    def __init__(self, name: str = "test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        certificate = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.pem = _pem(certificate.sign(self._key, hashes.SHA256()))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, expired_days: int = 0
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC) - timedelta(days=expired_days)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )

    def issue(
        self,
        *hosts: str,
        password: str | None = None,
        subject: x509.Name | None = None,
        expired: bool = False,
    ) -> tuple[str, str]:
        """(certificate, key) in PEM for these host names or addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [
            x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
            for host in hosts
        ]
        builder = self._builder(subject or _name(hosts[0]), key, 9 if expired else 0).add_extension(
            x509.SubjectAlternativeName(names), critical=False
        )
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        return _pem(builder.sign(self._key, hashes.SHA256())), private.decode()

    def server(self, directory: Path, *hosts: str, clients: Authority | None = None) -> ssl.SSLContext:
        """A server's context; with `clients`, it wants certificates of that authority from them."""
        certificate, key = self.issue(*hosts)
        file = directory / "server.pem"
        file.write_text(key + certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=clients.pem)
        return context


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
