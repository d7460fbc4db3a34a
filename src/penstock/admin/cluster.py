"""The cluster for commands: a thin, typed wrapper of confluent-kafka.

confluent_kafka is imported only when a command first connects to a cluster. librdkafka's own log lines are
dropped unless `verbose` is set; its errors become `CommandFailed` with one line.
"""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from penstock.admin.failure import CommandFailed, UnknownTopic, Unreachable, reason

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
    from confluent_kafka.admin import AdminClient

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3
_CONNECT_TIMEOUT = 3.0
_LOOK_SECONDS = 0.25
"""How often to check whether the login has failed while waiting."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition in Metadata; `leader` is -1 if there is none."""

    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic in Metadata."""

    name: str
    partitions: tuple[PartitionInfo, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


@dataclass(frozen=True, slots=True)
class Offset:
    """One result of ListOffsets; offset -1 means that there is no such record."""

    offset: int
    timestamp: int


class Cluster:
    """A Kafka cluster, connected through `bootstrap` with librdkafka's `settings` (security and so on)."""

    def __init__(
        self, bootstrap: str, settings: Mapping[str, str], *, timeout: float = 10.0, verbose: bool = False
    ) -> None:
        self.bootstrap = settings.get("bootstrap.servers", bootstrap)
        self.settings = dict(settings)
        self.timeout = timeout
        self.verbose = verbose
        self.last_error: KafkaError | None = None

    # Reaching it

    def reach(self) -> None:
        """Fail at once, with a reason, if nothing listens at the bootstrap address.

        librdkafka itself would retry until the timeout, and not report the reason.
        """
        problems: list[str] = []
        for host, port in parse_bootstrap(self.bootstrap):
            try:
                socket.create_connection((host, port), min(self.timeout, _CONNECT_TIMEOUT)).close()
                return
            except OSError as error:
                problems.append((error.strerror or str(error) or "no answer").lower())
        raise Unreachable(
            f"cannot reach a broker at {self.bootstrap} ({', '.join(sorted(set(problems)))}). "
            "Start one with `penstock up`, or name another with --bootstrap."
        )

    @cached_property
    def admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        self.reach()
        admin: AdminClient = self._new(AdminClient, {})
        return admin

    def producer(self, settings: Mapping[str, object]) -> Producer:
        from confluent_kafka import Producer

        from penstock.client.partitioning import KEY_PARTITIONER

        self.reach()
        producer: Producer = self._new(Producer, {"partitioner": KEY_PARTITIONER, **settings})
        return producer

    def consumer(self, settings: Mapping[str, object]) -> Consumer:
        """A consumer for `assign`; it joins no group and commits nothing."""
        from confluent_kafka import Consumer

        from penstock.client.librdkafka import PROMPT_FETCH

        self.reach()
        by_assignment = {
            "group.id": "penstock-cli",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **PROMPT_FETCH,
        }
        consumer: Consumer = self._new(Consumer, {**by_assignment, **settings})
        return consumer

    def _new(self, kind: Any, settings: Mapping[str, object]) -> Any:
        from confluent_kafka import KafkaException

        from penstock.client.errors import BadClientSetting
        from penstock.client.librdkafka import with_login

        config = {
            "client.id": "penstock-cli",
            "socket.timeout.ms": max(1000, int(self.timeout * 1000)),
            "enable.metrics.push": False,  # of a command that has ended when the next push is due
            **settings,
            **_librdkafka_names(self.settings),
            "bootstrap.servers": self.bootstrap,
            "error_cb": self._on_error,
        }
        try:
            return kind(with_login(config), logger=_librdkafka_log(self.verbose))
        except KafkaException as error:
            raise click.UsageError(f"client settings: {reason(error.args[0])}") from error
        except BadClientSetting as error:
            raise click.UsageError(f"client settings: {error}") from error

    def _on_error(self, error: KafkaError) -> None:
        # "all brokers down" is less specific than the error before it, such as a failed handshake.
        if self.last_error is None or error.code() != error._ALL_BROKERS_DOWN:
            self.last_error = error

    # Asking it

    def topics(self) -> dict[str, TopicDescription]:
        """Every topic, sorted by name."""
        found = topic_infos(self._metadata())
        return {name: found[name] for name in sorted(found)}

    def broker_ids(self) -> list[int]:
        """The brokers that are up."""
        return sorted(self._metadata().brokers)

    def topic(self, name: str) -> TopicDescription:
        """The topic, which must exist."""
        topics = self.topics()
        if name not in topics:
            raise UnknownTopic(name, topics)
        return topics[name]

    def _metadata(self) -> Any:
        return self.metadata(self.admin, "cannot list topics")

    def metadata(self, client: AdminClient | Producer, doing: str, topic: str | None = None) -> Any:
        """librdkafka's metadata, of a topic or of all."""
        from confluent_kafka import KafkaException

        from penstock.client.errors import ClientError
        from penstock.client.librdkafka import first_metadata

        try:
            return first_metadata(client, self.timeout, lambda: self.last_error, self.bootstrap, topic)
        except ClientError as error:
            raise Unreachable(f"{doing}: {error} (--client-config).") from error
        except KafkaException as error:
            raise self.failure(error, doing) from error

    def offsets(
        self, topic: str, partitions: Iterable[int], at: int, *, read_committed: bool = False
    ) -> dict[int, Offset]:
        """ListOffsets at a time in ms or at EARLIEST, LATEST or MAX_TIMESTAMP, for each partition."""
        found = self.offsets_of([(topic, index) for index in partitions], at, read_committed=read_committed)
        return {index: offset for (_, index), offset in sorted(found.items())}

    def offsets_of(
        self, partitions: Iterable[tuple[str, int]], at: int, *, read_committed: bool = False
    ) -> dict[tuple[str, int], Offset]:
        """The same for partitions of several topics, in one request to each broker."""
        from confluent_kafka import IsolationLevel, TopicPartition

        make_spec = admin_types().OffsetSpec
        specs = {
            EARLIEST: make_spec.earliest,
            LATEST: make_spec.latest,
            MAX_TIMESTAMP: make_spec.max_timestamp,
        }
        spec = specs[at]() if at in specs else make_spec.for_timestamp(at)
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        request = {TopicPartition(topic, partition): spec for topic, partition in partitions}
        if not request:
            return {}
        futures = self.admin.list_offsets(request, isolation_level=level, request_timeout=self.timeout)
        found: dict[tuple[str, int], Offset] = {}
        for key, future in futures.items():
            answer = self.wait(future, f"cannot list the offsets of {key.topic}-{key.partition}")
            found[key.topic, key.partition] = Offset(answer.offset, answer.timestamp)
        return found

    def wait(self, future: Future[Any], doing: str) -> Any:
        """The result of an admin call; `doing` begins the message of a failure."""
        from concurrent.futures import wait

        from confluent_kafka import KafkaException

        from penstock.client.librdkafka import refused_for_good

        while not wait([future], _LOOK_SECONDS).done:
            self.admin.poll(0)  # error_cb is only called from poll
            refused = refused_for_good(self.last_error, self.bootstrap)
            if refused is not None:
                raise Unreachable(f"{doing}: {refused} (--client-config).")
        try:
            return future.result()
        except KafkaException as error:
            raise self.failure(error, doing) from error

    def failure(self, error: KafkaException | KafkaError, doing: str) -> CommandFailed:
        """`error` as one line that begins with `doing`."""
        from confluent_kafka import KafkaError

        from penstock.client.librdkafka import refusal

        detail: KafkaError = error if isinstance(error, KafkaError) else error.args[0]
        if detail.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT):
            if "admin" in self.__dict__:
                self.admin.poll(0)  # error_cb is only called from poll
            refused = refusal(self.last_error, self.bootstrap)
            if refused is not None:
                return Unreachable(f"{doing}: {refused} (--client-config).")
            cause = f" ({reason(self.last_error)})" if self.last_error is not None else ""
            return Unreachable(
                f"{doing}: no answer from {self.bootstrap} in {self.timeout:g} s{cause}. "
                "Is it a Kafka broker, and does it require TLS or SASL (--client-config)?"
            )
        return CommandFailed(f"{doing}: {reason(detail)} ({detail.name().lstrip('_')})")


def _librdkafka_names(settings: Mapping[str, str]) -> dict[str, str]:
    """Converts settings of a file for Kafka's Java tools (sasl.jaas.config, ssl.truststore.location) or for
    librdkafka.
    """
    from penstock.client.librdkafka_names import translate
    from penstock.errors import PenstockError

    protection = {name: value for name, value in settings.items() if name.startswith(("sasl.", "ssl."))}
    try:
        translated = translate(protection)
    except PenstockError as error:
        raise click.UsageError(f"client settings: {str(error).removeprefix('kafka.')}") from error
    return {name: value for name, value in settings.items() if name not in protection} | translated


def admin_types() -> Any:
    """confluent_kafka.admin untyped: it does not export its names in a way that mypy accepts."""
    import confluent_kafka.admin

    return confluent_kafka.admin


def kafka_exception() -> type[KafkaException]:
    """For an except clause, which is evaluated only after an exception was raised: it avoids an early
    import.
    """
    from confluent_kafka import KafkaException

    return KafkaException


def parse_bootstrap(bootstrap: str) -> list[tuple[str, int]]:
    """The hosts and ports of a `bootstrap.servers` list. Default port: 9092."""
    found: list[tuple[str, int]] = []
    for word in bootstrap.split(","):
        address = word.strip().rpartition("://")[2]
        if not address:
            continue
        host, colon, port = address.rpartition(":")
        if not colon or address.endswith("]"):
            host, port = address, "9092"
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise click.UsageError(f"--bootstrap: '{word.strip()}' is not host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise click.UsageError("--bootstrap: give at least one host:port")
    return found


def topic_infos(metadata: Any) -> dict[str, TopicDescription]:
    """confluent-kafka's metadata as our own types, without the topics that have errors."""
    return {
        name: TopicDescription(
            name,
            tuple(
                PartitionInfo(index, entry.leader, tuple(entry.replicas), tuple(entry.isrs))
                for index, entry in sorted(topic.partitions.items())
            ),
        )
        for name, topic in metadata.topics.items()
        if topic.error is None
    }


def choose_partitions(info: TopicDescription, wanted: Sequence[int]) -> list[int]:
    """The given partitions, which must exist; all of them by default."""
    have = [partition.index for partition in info.partitions]
    for partition in wanted:
        if partition not in have:
            raise CommandFailed(
                f"topic '{info.name}' has no partition {partition}: it has 0 to {len(have) - 1}."
            )
    return sorted(set(wanted)) or have


def _librdkafka_log(verbose: bool) -> logging.Logger:
    log = logging.getLogger("penstock.cli.librdkafka")
    log.propagate = False
    if not log.handlers:
        log.addHandler(logging.StreamHandler(sys.stderr) if verbose else logging.NullHandler())
        log.setLevel(logging.DEBUG)
    return log
