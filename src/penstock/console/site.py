"""What all pages of a console share: the cluster, the registry, the Connect worker, samples."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from penstock.admin.cluster import Cluster
from penstock.admin.connect_worker import ConnectWorker
from penstock.admin.failure import CommandFailed
from penstock.console.reads.pipelines import Pipelines
from penstock.console.reads.samples import Sampler
from penstock.console.reads.sql import SqlServer
from penstock.console.reads.streaming import StreamSampler
from penstock.console.settings import Settings
from penstock.registry.client import RegistryClient
from penstock.web.sessions import Sessions


@dataclass(slots=True)
class Site:
    settings: Settings
    cluster: Cluster
    sampler: Sampler
    streams: StreamSampler
    sessions: Sessions | None = None
    """None if no login is required."""
    worker: ConnectWorker | None = None
    sql: SqlServer | None = None
    pipelines: Pipelines | None = None
    navigation: tuple[tuple[str, str, str], ...] = ()
    """Entries of pages that are not the console's own: name, path and icon."""
    urls: dict[str, str] = field(default_factory=dict)
    _clusters: dict[str, Cluster] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings, sessions: Sessions | None) -> Site:
        client = dict(settings.client)
        client.setdefault("client.id", "penstock-console")
        cluster = Cluster(client["bootstrap.servers"], client, timeout=settings.timeout)
        worker = None
        if settings.connect is not None:
            where = settings.connect
            worker = ConnectWorker(
                where.url, where.user, where.ca, hint="name another with --connect", timeout=30.0
            )
        sql = SqlServer(settings.sql) if settings.sql is not None else None
        pipelines = Pipelines(settings.pipelines) if settings.pipelines else None
        streams = StreamSampler(cluster, sql, pipelines)
        return cls(settings, cluster, Sampler(cluster), streams, sessions, worker, sql, pipelines)

    def close(self) -> None:
        self.sampler.close()
        self.streams.close()

    @property
    def name(self) -> str:
        return self.settings.name or self.cluster.bootstrap

    def cluster_as(self, user: str) -> Cluster:
        """The cluster for a user's actions: the client id, which the audit topic records, has the name."""
        if user not in self._clusters:
            settings = {**self.cluster.settings, "client.id": f"{self.cluster.settings['client.id']}/{user}"}
            self._clusters[user] = Cluster(self.cluster.bootstrap, settings, timeout=self.cluster.timeout)
        return self._clusters[user]

    def command(self, *words: str) -> str:
        """The equivalent command line, quoted for a shell, because names may contain anything."""
        return shlex.join(("penstock", *words, "--bootstrap", self.cluster.bootstrap))

    def sql_command(self, statement: str) -> str:
        """The equivalent command line of a SQL statement."""
        server = ("--server", self.sql.url) if self.sql is not None else ()
        return shlex.join(("penstock", "sql", *server, "-e", statement))

    @contextmanager
    def registry(self) -> Iterator[RegistryClient]:
        """A client of the registry. Raises CommandFailed if none is configured."""
        if self.settings.registry is None:
            raise CommandFailed("this console has no schema registry: start it with --registry URL.")
        with RegistryClient(self.settings.registry) as client:
            yield client
