"""The client's settings: Kafka's Java names, validated, with defaults.

`ClientSettings.from_kafka` takes the settings of an application: names that only producers, consumer groups
or other clients use are ignored, because one set of settings often serves several of them. The defaults are
Kafka's, except `max.partition.fetch.bytes`: a reader of a single partition wants large responses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.client.errors import BadClientSetting
from penstock.client.security import Security

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}

_DEFAULT_PORT = 9092
_LARGEST_INT = 2**31 - 1
_KAFKA_NAMES = {"sasl.mechanisms": "sasl.mechanism"}


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How to connect to a cluster and read from it. Times in milliseconds, sizes in bytes."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "penstock"
    rack: str = ""
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    isolation: int = READ_UNCOMMITTED
    fetch_max_bytes: int = 50 << 20
    max_partition_fetch_bytes: int = 8 << 20
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    check_crcs: bool = True
    security: Security = field(default_factory=Security)

    @classmethod
    def from_kafka(cls, settings: Mapping[str, str]) -> ClientSettings:
        """From settings with Kafka's names, e.g. {"bootstrap.servers": "kafka-1:9092,kafka-2:9092"}."""
        return cls(
            bootstrap=parse_bootstrap(settings.get("bootstrap.servers", "")),
            client_id=settings.get("client.id") or "penstock",
            rack=settings.get("client.rack", ""),
            request_timeout_ms=_number(settings, "request.timeout.ms", 30_000),
            api_timeout_ms=_number(settings, "default.api.timeout.ms", 60_000),
            connect_timeout_ms=_number(settings, "socket.connection.setup.timeout.ms", 10_000, least=1),
            retry_backoff_ms=_number(settings, "retry.backoff.ms", 100),
            retry_backoff_max_ms=_number(settings, "retry.backoff.max.ms", 1_000),
            metadata_max_age_ms=_number(settings, "metadata.max.age.ms", 300_000),
            isolation=parse_isolation(settings.get("isolation.level", "read_uncommitted")),
            fetch_max_bytes=_number(settings, "fetch.max.bytes", 50 << 20, least=1),
            max_partition_fetch_bytes=_number(settings, "max.partition.fetch.bytes", 8 << 20, least=1),
            fetch_min_bytes=_number(settings, "fetch.min.bytes", 1),
            fetch_max_wait_ms=_number(settings, "fetch.max.wait.ms", 500),
            check_crcs=_boolean(settings, "check.crcs", True),
            security=Security.from_kafka(settings),
        )

    @property
    def fetch_bytes(self) -> int:
        """How much to request at once when one partition is read."""
        return min(self.max_partition_fetch_bytes, self.fetch_max_bytes)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses as one string, as in `bootstrap.servers`."""
        return ",".join(format_address(host, port) for host, port in self.bootstrap)


def kafka_names(client: Mapping[str, str]) -> dict[str, str]:
    """Settings with Kafka's names, from settings that may have librdkafka's names."""
    return {_KAFKA_NAMES.get(name, name): value for name, value in client.items()}


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_bootstrap(text: str) -> tuple[tuple[str, int], ...]:
    """The hosts and ports of a `bootstrap.servers` list. Default port: 9092."""
    found: list[tuple[str, int]] = []
    for word in text.split(","):
        address = word.strip().rpartition("://")[2]
        if not address:
            continue
        host, colon, port = address.rpartition(":")
        if not colon or address.endswith("]"):
            host, port = address, str(_DEFAULT_PORT)
        if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:
            raise BadClientSetting(f"bootstrap.servers: '{word.strip()}' is not host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise BadClientSetting("bootstrap.servers is missing: give at least one host:port")
    return tuple(found)


def parse_isolation(text: str) -> int:
    level = ISOLATION_LEVELS.get(text.strip().lower())
    if level is None:
        raise BadClientSetting(f"isolation.level={text}: must be {' or '.join(ISOLATION_LEVELS)}")
    return level


def _number(settings: Mapping[str, str], name: str, default: int, *, least: int = 0) -> int:
    text = settings.get(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        raise BadClientSetting(f"{name}={text}: must be a whole number") from None
    if not least <= number <= _LARGEST_INT:
        raise BadClientSetting(f"{name}={text}: must be from {least} to {_LARGEST_INT}")
    return number


def _boolean(settings: Mapping[str, str], name: str, default: bool) -> bool:
    text = settings.get(name)
    if text is None:
        return default
    lower = str(text).strip().lower()
    if lower not in ("true", "false"):
        raise BadClientSetting(f"{name}={text}: must be true or false")
    return lower == "true"
