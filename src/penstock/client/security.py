"""How a connection is protected: `security.protocol`, TLS and SASL settings under Kafka's Java names.

Certificates are PEM files or PEM text, as Kafka's clients take them since 2.7 (KIP-651). Java's own stores
(JKS, PKCS12) need a Java or a converter: the error says how to make PEM of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.errors import BadClientSetting

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Security:
    """What `security.protocol` and the settings that belong to it say."""

    protocol: str = "PLAINTEXT"

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    @classmethod
    def from_kafka(cls, settings: Mapping[str, str]) -> Security:
        protocol = settings.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise BadClientSetting(
                f"security.protocol={settings['security.protocol']}: must be one of {', '.join(PROTOCOLS)}"
            )
        return cls(protocol)
