"""Certificate revocation lists (CRL): PEM files, checked by the ssl module in each handshake.

Only the certificate of the peer is checked, not those of the authorities above it. A certificate whose issuer
has no list in the file, or only an expired one, is rejected.
"""

from __future__ import annotations

import re
import ssl
import tempfile

SETTING = "ssl.crl.location"
_KINDS = re.compile(r"-----BEGIN ([^-]+)-----")


class BadRevocationList(ValueError):
    """The file cannot be used; the message names it and the setting."""


def read_revocation_lists(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read()
    except OSError as error:
        raise BadRevocationList(f"{SETTING}={path}: {error.strerror}") from error
    kinds = set(_KINDS.findall(text))
    # The library would also trust certificates that are in the file.
    if kinds != {"X509 CRL"}:
        found = f"has {', '.join(sorted(kinds))}" if kinds else "is not a PEM file"
        raise BadRevocationList(f"{SETTING}={path} {found}: it must have X509 CRL blocks and nothing else")
    return text


def load_revocation_lists(context: ssl.SSLContext, text: str) -> None:
    """Make the context reject certificates that the lists name."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # the library reads lists only from files
        file.write(text)
        file.flush()
        try:
            context.load_verify_locations(cafile=file.name)
        except ssl.SSLError as error:
            raise BadRevocationList(
                f"{SETTING}: the revocation lists cannot be read: {error.reason}"
            ) from error
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
