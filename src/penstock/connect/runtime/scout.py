"""The process that answers the worker's questions about plugins: which exist, and which settings are valid.

Plugin code may block or crash: the worker stops waiting after a timeout, and starts another scout.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock import __version__
from penstock.client.librdkafka import with_login
from penstock.connect import plugins
from penstock.connect.api import SinkConnector, SourceConnector
from penstock.connect.concealment import conceal
from penstock.connect.converters import CONVERTERS, HEADER_CONVERTERS
from penstock.connect.errors import ConnectError
from penstock.connect.providers import resolve
from penstock.connect.runtime.channel import Channel
from penstock.connect.runtime.clients import WorkerSettings, make_producer
from penstock.connect.runtime.definitions import definitions, fields_for
from penstock.connect.runtime.offsets import key_text, read_offsets, value_text, write_files
from penstock.connect.runtime.sink import group_of
from penstock.connect.runtime.transactions import transactional_id
from penstock.connect.runtime.validation import validation
from penstock.connect.settings import ConfigType
from penstock.connect.transforms import PREDICATES, TRANSFORMS

_WAIT_SECONDS = 30


def serve(channel: Channel, worker: WorkerSettings) -> None:
    scout = Scout(worker)
    channel.send("ready")
    while True:
        message = channel.receive()
        # Each request in a thread: one that blocks does not delay the others.
        threading.Thread(target=_answer, args=(channel, scout, message), daemon=True).start()


def _answer(channel: Channel, scout: Scout, message: dict[str, Any]) -> None:
    number = message["id"]
    try:
        work: Callable[..., Any] = getattr(scout, message["do"])
        channel.send("answer", id=number, result=work(**message.get("with", {})))
    except plugins.UnknownPlugin as error:
        channel.send("answer", id=number, unknown_plugin=str(error))
    except ConnectError as error:
        channel.send("answer", id=number, refused=conceal(str(error)))
    except Exception as error:  # noqa: BLE001 - whatever a plugin raises
        failed, trace = conceal(f"{type(error).__name__}: {error}"), conceal(traceback.format_exc())
        channel.send("answer", id=number, failed=failed, trace=trace)


class Scout:
    """One method for each request."""

    def __init__(self, worker: WorkerSettings) -> None:
        self._worker = worker

    def plugins(self) -> list[dict[str, Any]]:
        return [
            {"class": name, "type": plugins.kind(found), "version": found.version}
            for name, found in sorted(plugins.connectors().items())
        ]

    def all_plugins(self) -> list[dict[str, Any]]:
        found = self.plugins()
        for kind, table in (
            ("converter", CONVERTERS),
            ("header_converter", HEADER_CONVERTERS),
            ("transformation", TRANSFORMS),
            ("predicate", PREDICATES),
        ):
            found += [
                {"class": name, "type": kind, "version": __version__} for name in sorted(table) if "." in name
            ]
        return found

    def config(self, name: str) -> list[dict[str, Any]]:
        """GET /connector-plugins/{name}/config."""
        found: Any = None
        try:
            fields = fields_for(plugins.connector(name))
        except plugins.UnknownPlugin:
            for table in (HEADER_CONVERTERS, TRANSFORMS, PREDICATES):
                found = found or table.get(name)
            if found is None:
                raise
            fields = found.fields
        return definitions(fields)

    def validate(self, name: str, config: dict[str, str]) -> dict[str, Any]:
        return validation(name, config, self._worker)

    def describe(self, name: str) -> dict[str, Any]:
        """What the worker needs to know about a connector's class."""
        found = plugins.connector(name)
        once = issubclass(found, SourceConnector) and found.exactly_once
        fields = fields_for(found)
        return {
            "type": plugins.kind(found),
            "version": found.version,
            "exactly_once": once,
            "settings": [each.name for each in fields],
            "passwords": [each.name for each in fields if each.type is ConfigType.PASSWORD],
        }

    # Offsets

    def read_offsets(self, connector: str, kind: str) -> list[dict[str, Any]]:
        if kind == "sink":
            return [
                {
                    "partition": {"kafka_topic": topic, "kafka_partition": partition},
                    "offset": {"kafka_offset": offset},
                }
                for (topic, partition), offset in sorted(self._group_offsets(connector).items())
            ]
        found = read_offsets(self._worker, connector).all()
        return [{"partition": partition, "offset": offset} for partition, offset in found]

    def _group_offsets(self, connector: str) -> dict[tuple[str, int], int]:
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

        group = group_of(connector)
        admin = self._admin()  # if nothing holds the client, it is closed before its response
        try:
            asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
            found = asked[group].result(30)
        except KafkaException as error:
            raise ConnectError(f"the offsets of {group} cannot be read: {error.args[0].str()}") from error
        return {
            (each.topic, each.partition): each.offset for each in found.topic_partitions if each.offset >= 0
        }

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient(with_login({**self._worker.client, "log_level": 0}))

    def alter_offsets(
        self, connector: str, config: dict[str, str], offsets: list[dict[str, Any]] | None, tasks: int = 0
    ) -> bool:
        """Set offsets; None deletes all. Returns whether the connector itself has validated them.

        `tasks` is the number of tasks that the connector had: with exactly once, all of them must be fenced.
        """
        plugin = plugins.connector(config["connector.class"])
        config = resolve(config)
        if issubclass(plugin, SinkConnector):
            return self._alter_group(connector, plugin, config, offsets)
        assert issubclass(plugin, SourceConnector)
        if self._worker.exactly_once:
            self._fence(connector, tasks, config)
        pairs: list[tuple[dict[str, Any], dict[str, Any] | None]]
        if offsets is None:
            pairs = [(partition, None) for partition, _ in read_offsets(self._worker, connector).all()]
        else:
            pairs = [(each["partition"], each.get("offset")) for each in offsets]
        checked = plugin.alter_offsets(config, pairs)
        if self._worker.offsets_directory is not None:
            from pathlib import Path

            write_files(Path(self._worker.offsets_directory), connector, pairs)
            return checked
        self._write_offsets(connector, config, pairs)
        return checked

    def _write_offsets(
        self,
        connector: str,
        config: dict[str, str],
        pairs: Sequence[tuple[dict[str, Any], dict[str, Any] | None]],
    ) -> None:
        """All of them or none if delivery is exactly once."""
        from confluent_kafka import KafkaException

        failures: list[Any] = []
        name = transactional_id(self._worker.group, connector, 0) if self._worker.exactly_once else None
        producer = make_producer(
            self._worker,
            config,
            f"connector-offsets-{connector}",
            lambda error, _: failures.append(error),
            transactional_id=name,
            message_timeout_ms=_WAIT_SECONDS * 1000,
        )
        topic = self._worker.offsets_topic
        assert topic is not None
        try:
            if name is not None:
                producer.init_transactions(_WAIT_SECONDS)
                producer.begin_transaction()
            for partition, offset in pairs:
                producer.produce(topic, value_text(offset), key_text(connector, partition))
            left = producer.flush(_WAIT_SECONDS)
            if left or failures:
                raise ConnectError(
                    f"the offsets were not written: {failures[:1] or f'no answer in {_WAIT_SECONDS} s'}"
                )
            if name is not None:
                producer.commit_transaction(_WAIT_SECONDS)
        except KafkaException as error:
            raise ConnectError(f"the offsets were not written: {error.args[0].str()}") from error

    def _alter_group(
        self,
        connector: str,
        plugin: type[SinkConnector],
        config: dict[str, str],
        offsets: list[dict[str, Any]] | None,
    ) -> bool:
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

        group, admin = group_of(connector), self._admin()
        try:
            if offsets is None:
                known = self._group_offsets(connector)
                checked = plugin.alter_offsets(config, dict.fromkeys(known))
                try:
                    admin.delete_consumer_groups([group])[group].result(30)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                        raise
                return checked
            wanted = {_place(each): _kafka_offset(each) for each in offsets}
            checked = plugin.alter_offsets(config, wanted)
            kept = [TopicPartition(*place, offset) for place, offset in wanted.items() if offset is not None]
            if kept:
                asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, kept)])
                for each in asked[group].result(30).topic_partitions:
                    if each.error is not None:
                        raise ConnectError(f"{each.topic}-{each.partition}: {each.error.str()}")
            gone = [place for place, offset in wanted.items() if offset is None]
            if gone:
                # A consumer without an offset starts at the beginning here, so the offset 0 is the same.
                beginnings = [TopicPartition(*place, 0) for place in gone]
                admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, beginnings)])[
                    group
                ].result(30)
            return checked
        except KafkaException as error:
            raise ConnectError(
                f"Failed to alter consumer group offsets for connector {connector}: {error.args[0].str()}"
            ) from error

    # Exactly once

    def fence(self, connector: str, tasks: int, config: dict[str, str]) -> None:
        """Fence the tasks of earlier sets (KIP-618)."""
        self._fence(connector, tasks, resolve(config))

    def _fence(self, connector: str, tasks: int, config: Mapping[str, str]) -> None:
        from confluent_kafka import KafkaException

        for task in range(tasks):
            producer = make_producer(
                self._worker,
                config,
                f"connector-fence-{connector}",
                transactional_id=transactional_id(self._worker.group, connector, task),
                message_timeout_ms=_WAIT_SECONDS * 1000,
            )
            try:
                producer.init_transactions(_WAIT_SECONDS)
            except KafkaException as error:
                raise ConnectError(f"earlier tasks cannot be fenced: {error.args[0].str()}") from error


def _place(entry: dict[str, Any]) -> tuple[str, int]:
    partition = entry.get("partition") or {}
    topic, number = partition.get("kafka_topic"), partition.get("kafka_partition")
    if topic is None or number is None:
        missing = "kafka_topic" if topic is None else "kafka_partition"
        raise ConnectError(
            "The partition for a sink connector offset must contain the keys 'kafka_topic' and "
            f"'kafka_partition': {missing} is missing"
        )
    try:
        return str(topic), int(number)
    except (TypeError, ValueError):
        raise ConnectError(f"Could not convert partition '{number}' to an integer") from None


def _kafka_offset(entry: dict[str, Any]) -> int | None:
    offset = entry.get("offset")
    if offset is None:
        return None
    value = offset.get("kafka_offset")
    try:
        found = int(value)
    except (TypeError, ValueError):
        raise ConnectError(
            "The offset for a sink connector should either be null or contain the key 'kafka_offset' with "
            "an integer"
        ) from None
    if found < 0:
        raise ConnectError(f"kafka_offset {found} is negative")
    return found
