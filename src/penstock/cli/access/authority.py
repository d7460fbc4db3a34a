"""A certificate authority for tests and for one machine: PEM files in a directory, made once and reused."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.cli.failure import CommandFailed, needs_extra
from penstock.cli.options.secret_files import write_secret

with needs_extra("creating certificates", "secure"):
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_CERTIFICATE, CA_KEY, REVOCATIONS = "ca.pem", "ca.key", "crl.pem"
_EARLIER = timedelta(hours=1)  # for machines whose clock is behind


class Authority:
    """`open` loads the one in the directory, or creates it. Only their owner can read the keys."""

    def __init__(
        self, directory: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
    ) -> None:
        self.directory = directory
        self.certificate_file = directory / CA_CERTIFICATE
        self._key = key
        self._certificate = certificate

    @classmethod
    def open(cls, directory: Path, name: str, days: int) -> Authority:
        directory.mkdir(parents=True, exist_ok=True)
        certificate_file, key_file = directory / CA_CERTIFICATE, directory / CA_KEY
        if certificate_file.exists() and key_file.exists():
            return cls(directory, _read_key(key_file), _read_certificate(certificate_file))
        if certificate_file.exists() or key_file.exists():
            there, lost = (CA_CERTIFICATE, CA_KEY) if certificate_file.exists() else (CA_KEY, CA_CERTIFICATE)
            raise CommandFailed(
                f"{directory} contains {there} but not {lost}. Restore {lost}, or choose another directory."
            )
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        builder = _builder(subject, subject, key, key, days)
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        write_secret(key_file, _key_pem(key))
        certificate_file.write_text(_pem(certificate), encoding="ascii")
        return cls(directory, key, certificate)

    def issue(self, path: Path, name: str, hosts: Sequence[str] = (), days: int = 365) -> Path:
        """Key and certificate in one PEM file: of a server if `hosts` are given, otherwise of a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self._certificate.subject, key, self._key, days)
        # Brokers use their server certificate for connections to each other.
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:
            usages.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        write_secret(path, _key_pem(key) + _pem(certificate))
        return path

    def revoke(self, paths: Sequence[Path], days: int) -> tuple[Path, int]:
        """Adds certificates of this authority to its revocation list, which brokers check again after `days`
        at the latest. Returns the file, and how many it lists.
        """
        file = self.directory / REVOCATIONS
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder(
            issuer_name=self._certificate.subject, last_update=now - _EARLIER,
            next_update=now + timedelta(days=days),
        )  # fmt: skip
        listed = {entry.serial_number: entry for entry in self._revoked(file)}
        for path in paths:
            certificate = _read_certificate(path)
            try:
                certificate.verify_directly_issued_by(self._certificate)
            except (InvalidSignature, ValueError, TypeError) as error:
                raise CommandFailed(f"{path} is not a certificate of {self.certificate_file}.") from error
            serial = certificate.serial_number
            if serial not in listed:
                entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
                listed[serial] = entry.build()
        for one in listed.values():
            builder = builder.add_revoked_certificate(one)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        number = x509.CRLNumber(int(now.timestamp() * 1000))
        revocations = (
            builder.add_extension(signer, critical=False)
            .add_extension(number, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        # A broker must not read half a list.
        fresh = file.with_suffix(".new")
        fresh.write_bytes(revocations.public_bytes(serialization.Encoding.PEM))
        fresh.replace(file)
        return file, len(listed)

    def _revoked(self, file: Path) -> list[x509.RevokedCertificate]:
        if not file.exists():
            return []
        try:
            found = x509.load_pem_x509_crl(file.read_bytes())
        except ValueError as error:
            raise CommandFailed(f"{file} has no revocation list that can be read: {error}.") from error
        if not found.is_signature_valid(self._key.public_key()):
            raise CommandFailed(f"{file} is not a revocation list of {self.certificate_file}.")
        return list(found)

    def is_good(self, path: Path, hosts: Sequence[str]) -> bool:
        """Whether the file is a certificate of this authority for all these hosts, valid for at least a
        day.
        """
        try:
            certificate = _read_certificate(path)
        except CommandFailed:
            return False
        try:
            named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            certificate.verify_directly_issued_by(self._certificate)
        except (x509.ExtensionNotFound, InvalidSignature, ValueError, TypeError):
            return False
        return all(_host(host) in named for host in hosts) and certificate.not_valid_after_utc > datetime.now(
            UTC
        ) + timedelta(days=1)


def is_authority(directory: Path) -> bool:
    return (directory / CA_CERTIFICATE).exists() and (directory / CA_KEY).exists()


def valid_name(name: str) -> bool:
    """Whether it can be the name of a file and of a certificate."""
    return bool(re.fullmatch(r"[\w@-][\w.@-]{0,63}", name))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    days: int,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        pass
    try:
        return x509.DNSName(text)
    except ValueError as error:
        raise CommandFailed(f"'{text}' is neither a host name in ASCII nor an IP address.") from error


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}.") from error
    except ValueError as error:
        raise CommandFailed(f"{path} has no certificate that can be read: {error}.") from error


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}.") from error
    except (ValueError, TypeError) as error:
        raise CommandFailed(f"{path} has no key that can be read.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CommandFailed(f"{path} is not a key of `penstock certs`: it is not an elliptic-curve key.")
    return key
