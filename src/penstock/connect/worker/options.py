"""The worker's own settings, with Kafka Connect's names; other settings are for plugins and clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.config.types import ConfigType, NonEmpty, OneOf, Range
from penstock.connect.settings import Field, Importance, parse
from penstock.web.access import NOTHING_ASKED, AccessSettings

_HIGH, _LOW = Importance.HIGH, Importance.LOW
_JSON = "org.apache.kafka.connect.json.JsonConverter"

FIELDS = (
    Field(
        "group.id",
        default="connect-cluster",
        doc="The group of the workers that share the work.",
        validator=NonEmpty(),
        importance=_HIGH,
    ),
    Field(
        "config.storage.topic",
        default="connect-configs",
        doc="The topic of connectors and their settings.",
        validator=NonEmpty(),
        importance=_HIGH,
    ),
    Field(
        "offset.storage.topic",
        default="connect-offsets",
        doc="The topic of source offsets.",
        validator=NonEmpty(),
        importance=_HIGH,
    ),
    Field(
        "status.storage.topic",
        default="connect-status",
        doc="The topic of states and errors.",
        validator=NonEmpty(),
        importance=_HIGH,
    ),
    Field(
        "offset.storage.partitions", ConfigType.INT, 25, "Its partitions if it is created.", Range(1), _LOW
    ),
    Field("status.storage.partitions", ConfigType.INT, 5, "Its partitions if it is created.", Range(1), _LOW),
    Field(
        "key.converter",
        ConfigType.CLASS,
        _JSON,
        "Converter of keys, where a connector has none of its own.",
        importance=_HIGH,
    ),
    Field(
        "value.converter",
        ConfigType.CLASS,
        _JSON,
        "Converter of values, where a connector has none of its own.",
        importance=_HIGH,
    ),
    Field(
        "offset.flush.interval.ms",
        ConfigType.LONG,
        60_000,
        "How often offsets are committed.",
        Range(0),
        _LOW,
    ),
    Field(
        "task.shutdown.graceful.timeout.ms",
        ConfigType.LONG,
        5000,
        "How long a task may take to stop before its process is killed.",
        Range(0),
        _LOW,
    ),
    Field(
        "exactly.once.source.support",
        default="disabled",
        doc="enabled: records and offsets of sources are written in transactions.",
        validator=OneOf("disabled", "preparing", "enabled"),
        importance=_HIGH,
    ),
    Field(
        "plugin.path",
        ConfigType.LIST,
        (),
        "Directories with plugins, added to Python's path.",
        importance=_LOW,
    ),
    Field(
        "rest.request.timeout.ms",
        ConfigType.LONG,
        90_000,
        "How long plugin code may take for an answer.",
        Range(1000),
        _LOW,
    ),
    Field(
        "inter.worker.key.ttl.ms",
        ConfigType.LONG,
        3_600_000,
        "How often the leader replaces the key with which workers sign their requests to each other.",
        Range(1000),
        _LOW,
    ),
    Field(
        "offset.storage.file.filename",
        ConfigType.STRING,
        None,
        "Standalone: the directory in which source offsets are kept.",
        importance=_HIGH,
    ),
)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a worker; `client` are librdkafka's settings, including `bootstrap.servers`."""

    client: Mapping[str, str]
    properties: Mapping[str, str] = field(default_factory=dict)
    standalone: bool = False
    connectors: tuple[Mapping[str, str], ...] = ()
    """Standalone: the connectors to run from the start."""
    host: str = "127.0.0.1"
    port: int = 8083
    advertised_url: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    replication_factor: int = 3
    session_timeout_ms: int = 10_000
    max_body_bytes: int = 4 << 20
    access: AccessSettings = NOTHING_ASKED
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    """The certificates to trust for the leader, if the workers use TLS."""
    start_timeout: float = 60.0
    write_timeout: float = 10.0
    leader_wait: float = 30.0

    def parsed(self) -> dict[str, Any]:
        return parse(FIELDS, self.properties)
