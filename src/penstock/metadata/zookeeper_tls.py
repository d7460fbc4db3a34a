"""TLS to ZooKeeper. kazoo trusts the system's authorities in addition to the given ones; here only those
count."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Opens the connections of a KazooClient. The files are read for each connection, so that new ones
    apply."""

    def __init__(self, keystore: str | None, truststore: str | None) -> None:
        """PEM files: our key and certificate, and the trusted authorities; None for the system's
        authorities."""
        super().__init__()
        self._keystore = keystore
        self._truststore = truststore

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> ssl.SSLSocket:
        context = self._context()
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return context.wrap_socket(plain, server_hostname=hostname)
        except BaseException:
            plain.close()
            raise

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and host name
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._truststore is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            context.load_verify_locations(self._truststore)
        if self._keystore is not None:
            context.load_cert_chain(self._keystore)
        return context
