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
    """None: there is no registry; topics have no schemas then, and `format='avro'` is refused."""
    storage: str
    """A directory, or a URL that Spark can write to: checkpoints of queries."""
    kafka: Mapping[str, str] = field(default_factory=dict)
    """Of clients, in Java's names without `kafka.`: security.protocol and the like."""
    registry: Mapping[str, str] = field(default_factory=dict)
    """More options of the source and sink for the registry: `schema.registry.basic.auth.user.info`, …"""
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    shuffle_partitions: int | None = None
    """Of new queries; None: as many as Spark has cores."""
    python_functions: bool = False
    """Whether statements may bring code: Python functions, and what `sender_code` names."""

    as_user: bool = True
    """Whether the cluster's ACLs for a user that has logged in here decide what its statements may do."""

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
    """Where the catalog is kept. `write` returns when `catalog` has the records; only the leader may."""

    @property
    def catalog(self) -> Catalog: ...

    def write(self, records: Sequence[Record]) -> None: ...
