"""Operations of statements on the cluster and the registry: topics, offsets, schemas.

Calls may come from any thread; they are executed one at a time. Raises `Unavailable` if a server does not
respond.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.client import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ClientError,
    ClientSettings,
    Cluster,
)
from penstock.errors import ApiError
from penstock.registry.client import RegisteredSchema, RegistryClient, RequestRefused, schema_body
from penstock.registry.errors import RegistryError
from penstock.sql.catalog.target_topic import Retention
from penstock.sql.errors import Clash, SqlError, Unavailable
from penstock.sql.settings import EngineSettings

log = logging.getLogger(__name__)

_TIMEOUT_MS = 20_000
VALUE, KEY = "-value", "-key"


class ClusterAdmin:
    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._lock = threading.RLock()
        self._cluster: Cluster | None = None
        self._registry: RegistryClient | None = None

    def close(self) -> None:
        with self._lock:
            if self._cluster is not None:
                self._cluster.close()
            if self._registry is not None:
                self._registry.close()
            self._cluster = self._registry = None

    # Topics

    @contextlib.contextmanager
    def _ask_cluster(self) -> Iterator[Cluster]:
        with self._lock:
            if self._cluster is None:
                known = {"default.api.timeout.ms": str(_TIMEOUT_MS), **self._settings.client()}
                self._cluster = Cluster(ClientSettings.from_kafka(known))
            try:
                yield self._cluster
            except ClientError as error:
                raise Unavailable(
                    f"the cluster at {self._settings.bootstrap} does not answer: {error}"
                ) from error
            except ApiError as error:
                raise SqlError(f"the cluster refuses it: {error}") from error

    def topics(self) -> frozenset[str]:
        with self._ask_cluster() as cluster:
            return cluster.topics()

    def partitions(self, topic: str) -> int | None:
        """The number of partitions; None if the topic does not exist."""
        with self._ask_cluster() as cluster:
            found = cluster.partitions([topic]).get(topic)
            return None if found is None else found.partition_count

    def offsets(self, topics: Iterable[str], *, first: bool = False) -> dict[tuple[str, int], int]:
        """The end offsets of all partitions of these topics for a `read_committed` consumer."""
        with self._ask_cluster() as cluster:
            there = cluster.partitions(topics)
            wanted = {
                (name, partition): EARLIEST if first else LATEST
                for name, info in there.items()
                for partition in range(info.partition_count)
            }
            found = cluster.list_offsets(wanted, READ_COMMITTED)
            return {place: offset or 0 for place, offset in found.items()}

    def has_records(self, topic: str) -> bool:
        """Whether the topic has records, including those of an open transaction. False if it does not
        exist.
        """
        with self._ask_cluster() as cluster:
            info = cluster.partitions([topic]).get(topic)
            if info is None:
                return False
            places = [(topic, partition) for partition in range(info.partition_count)]
            first = cluster.list_offsets(dict.fromkeys(places, EARLIEST), READ_UNCOMMITTED)
            return cluster.list_offsets(dict.fromkeys(places, LATEST), READ_UNCOMMITTED) != first

    def retentions(self, topics: Iterable[str]) -> list[Retention]:
        """The retention of these topics; topics that we may not describe are omitted."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ConfigSource  # type: ignore[attr-defined]

        wanted = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        admin = self._admin()
        found = []
        for future in admin.describe_configs(wanted).values() if wanted else ():
            with contextlib.suppress(KafkaException):
                configs = future.result(_TIMEOUT_MS / 1000)
                ms = configs["retention.ms"]
                if "delete" not in configs["cleanup.policy"].value:
                    found.append(Retention(-1, True))
                else:
                    found.append(
                        Retention(int(ms.value), ms.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
                    )
        return found

    def starting(self, topics: Iterable[str], reset: str) -> dict[str, str]:
        """The start offsets of readers of these topics: `latest` is replaced by the current end, in the
        source's format.
        """
        if reset == "earliest":
            return {}
        if reset != "latest":
            raise Clash(f"auto.offset.reset must be earliest or latest, not '{reset}'")
        found: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in self.offsets(topics).items():
            found.setdefault(topic, {})[str(partition)] = offset
        return {topic: json.dumps({topic: offsets}) for topic, offsets in found.items()}

    def create_topic(
        self, topic: str, partitions: int, config: Mapping[str, str] | None = None, replicas: int = -1
    ) -> bool:
        """Returns False if the topic existed."""
        with self._ask_cluster() as cluster:
            if topic in cluster.partitions([topic]):
                return False
            return cluster.create_topic(
                topic, partitions, config, if_absent=True, replication_factor=replicas
            )

    def delete_topic(self, topic: str) -> bool:
        """Returns when the topic's leader has processed it; False if the topic does not exist."""
        from confluent_kafka import KafkaError, KafkaException

        admin = self._admin()  # its futures fail when it is released
        try:
            for future in admin.delete_topics([topic], operation_timeout=_TIMEOUT_MS / 1000).values():
                future.result(_TIMEOUT_MS / 1000)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return False
            raise SqlError(f"topic {topic} is not deleted: {error.args[0].str()}") from error
        return True

    def delete_group(self, group: str) -> bool:
        """Returns False if the group does not exist. A group with members, or one that we may not delete,
        stays.
        """
        from confluent_kafka import KafkaError, KafkaException

        admin = self._admin()
        try:
            for future in admin.delete_consumer_groups([group]).values():
                future.result(_TIMEOUT_MS / 1000)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                log.warning("could not delete consumer group %s: %s", group, error.args[0].str())
            return False
        return True

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        from penstock.client.librdkafka import with_login
        from penstock.client.librdkafka_names import translate

        return AdminClient(with_login({"log_level": "0", **translate(self._settings.client())}))

    # Schemas

    @contextlib.contextmanager
    def _ask_registry(self) -> Iterator[RegistryClient]:
        settings = self._settings.registry_settings()
        if settings is None:
            raise Unavailable("no schema registry configured: start the server with --registry URL")
        with self._lock:
            if self._registry is None:
                self._registry = RegistryClient(settings)
            try:
                yield self._registry
            except RequestRefused as error:
                raise Clash(f"the registry refuses it: {error}") from error
            except RegistryError as error:
                raise Unavailable(str(error)) from error

    @property
    def has_registry(self) -> bool:
        return self._settings.registry_url is not None

    def subjects(self) -> list[str]:
        if not self.has_registry:
            return []
        with self._ask_registry() as registry:
            return registry.subjects()

    def schema(self, subject: str, version: int | str = "latest") -> RegisteredSchema | None:
        """None if there is no such subject or version."""
        if not self.has_registry:
            return None
        with self._ask_registry() as registry:
            try:
                return registry.version(subject, version)
            except RequestRefused as error:
                if error.status == 404:
                    return None
                raise

    def references(self, schema: RegisteredSchema) -> tuple[Any, ...]:
        with self._ask_registry() as registry:
            return registry.resolve(schema)

    def register(self, subject: str, schema_type: str, text: str) -> RegisteredSchema:
        """Register as the subject's rules allow. Raises Clash with the registry's reasons otherwise."""
        with self._ask_registry() as registry:
            body = schema_body(text, schema_type)
            try:
                registry.register(subject, body)
            except RequestRefused as error:
                if error.status == 409:
                    why = registry.compatibility(subject, body) or [error.message]
                    raise Clash(f"{subject} does not allow this schema: {'; '.join(why)}") from error
                raise
            return registry.look_up(subject, body)

    def delete_subject(self, subject: str) -> bool:
        with self._ask_registry() as registry:
            try:
                registry.request("DELETE", "subjects", subject)
            except RequestRefused as error:
                if error.status == 404:
                    return False
                raise
            return True
