"""The settings of an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.registry.client import RegistrySettings
from penstock.sql.catalog.catalog import Catalog, Record


@dataclass(frozen=True, slots=True)
class EngineSettings:
    bootstrap: str
    registry_url: str | None
    """None: no registry; then topics have no schemas, and `format='avro'` is rejected."""
    storage: str
    """The directory of checkpoints, or a URL that Spark can write to."""
    kafka: Mapping[str, str] = field(default_factory=dict)
    """Client settings with Java's names, without `kafka.`: security.protocol and so on."""
    registry: Mapping[str, str] = field(default_factory=dict)
    """Further registry options of the source and sink: `schema.registry.basic.auth.user.info`, …"""
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    shuffle_partitions: int | None = None
    """Shuffle partitions of new queries; None: as many as Spark has cores."""
    python_functions: bool = False
    """Whether statements may contain code: Python functions, and what `sender_code` lists."""

    as_user: bool = True
    """Whether the cluster's ACLs of the logged-in user apply to its statements."""

    def client(self) -> dict[str, str]:
        """Settings of a Kafka client."""
        return {**self.kafka, "bootstrap.servers": self.bootstrap}

    def spark_options(self) -> dict[str, str]:
        """Options of the source and the sink that say where the cluster is."""
        return {f"kafka.{name}": value for name, value in self.client().items()}

    def registry_options(self) -> dict[str, str]:
        return {"schema.registry.url": self.registry_url or "", **self.registry}

    def registry_settings(self) -> RegistrySettings | None:
        if self.registry_url is None:
            return None
        given = self.registry
        return RegistrySettings(
            url=self.registry_url,
            user=given.get("schema.registry.basic.auth.user.info"),
            ca=given.get("schema.registry.ssl.ca.location"),
            certificate=given.get("schema.registry.ssl.certificate.location"),
            key=given.get("schema.registry.ssl.key.location"),
            patience=5.0,
        )


class WritableCatalog(Protocol):
    """The storage of the catalog. `write` returns when `catalog` has the records; only the leader may
    call it.
    """

    @property
    def catalog(self) -> Catalog: ...

    def write(self, records: Sequence[Record]) -> None: ...
