"""TLS contexts of clients from PEM files, for connectors whose library takes one."""

from __future__ import annotations

import ssl

from penstock.connect.errors import ConnectError


def client_context(truststore: str, keystore: str, password: str, *, verify: bool = True) -> ssl.SSLContext:
    """Without a truststore, the system's authorities are trusted. The keystore has a certificate and its key.

    ConnectError names a file that cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=truststore or None)
    except (OSError, ssl.SSLError) as error:
        raise ConnectError(f"{truststore} is not a PEM file of certificates: {reason(error)}") from error
    if keystore:
        try:
            # A function, because OpenSSL would ask the terminal without a password.
            context.load_cert_chain(keystore, password=lambda: password)
        except (OSError, ssl.SSLError) as error:
            raise ConnectError(
                f"{keystore} is not a PEM file with a certificate and its key, or the password of the key is "
                f"wrong: {reason(error)}"
            ) from error
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def reason(error: BaseException) -> str:
    """The message of a network error, without the codes around it."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__
