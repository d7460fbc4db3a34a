"""What the client raises, as types; an answer with a Kafka error code is an `ApiError` of `penstock.errors`.

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
    """The root of what the client itself raises."""


class BadClientSetting(ClientError):
    """A client setting is missing, malformed, not supported here, or contradicts another."""


class ConnectionFailed(ClientError):
    """A broker cannot be reached, or the connection to it broke; another try may go better."""


class TlsFailed(ClientError):
    """The TLS handshake failed; trying again cannot help."""


class AuthenticationFailed(ClientError):
    """SASL failed: the name, the password or the mechanism is not what the broker knows."""


class ClusterTimeout(ClientError):
    """What was asked did not succeed within `default.api.timeout.ms`."""
