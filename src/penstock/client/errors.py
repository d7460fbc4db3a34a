"""Errors of the client.

PenstockError
└── ClientError
    ├── BadClientSetting       a setting that is missing, malformed, or contradicts another
    ├── ConnectionFailed       one connection to one broker failed: the cluster tries again
    ├── TlsFailed              no TLS with the broker: certificates or protocol
    ├── AuthenticationFailed   the broker rejected the login, or did not prove its own identity
    └── ClusterTimeout         `default.api.timeout.ms` went by, with the last reason
"""

from __future__ import annotations

from penstock.errors import PenstockError


class ClientError(PenstockError):
    """The base class of the client's own errors."""


class BadClientSetting(ClientError):
    """A client setting is missing, malformed, not supported here, or contradicts another."""


class ConnectionFailed(ClientError):
    """A broker cannot be reached, or the connection broke. Retriable."""


class TlsFailed(ClientError):
    """The TLS handshake failed. Not retriable."""


class AuthenticationFailed(ClientError):
    """SASL failed: the broker rejected the user, the password or the mechanism."""


class ClusterTimeout(ClientError):
    """An operation did not succeed within `default.api.timeout.ms`."""
