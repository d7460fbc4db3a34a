"""Source offsets: the topic `connect-offsets` in Kafka Connect's format, or files for a standalone worker.

A key is the JSON `["CONNECTOR", {source partition}]`, a value the JSON of the offset; null deletes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from penstock.client import LATEST, READ_UNCOMMITTED, ClientSettings, Cluster
from penstock.client.settings import kafka_names
from penstock.connect.api import OffsetsReader, SourcePartition
from penstock.connect.errors import ConnectError
from penstock.connect.runtime.clients import WorkerSettings, make_consumer

Pair = tuple[dict[str, Any], dict[str, Any] | None]
_READ_SECONDS = 90.0  # longer than a transaction of a dead task stays open


def key_text(connector: str, partition: SourcePartition) -> str:
    """Keys are sorted by name: compaction goes by the bytes."""
    return json.dumps([connector, partition], separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def value_text(offset: Mapping[str, Any] | None) -> str | None:
    return None if offset is None else json.dumps(offset, separators=(",", ":"), ensure_ascii=False)


def read_key(data: bytes | None) -> tuple[str, dict[str, Any]] | None:
    """None for a key of another program."""
    try:
        found = json.loads(data or b"null")
    except ValueError:
        return None
    if (
        isinstance(found, list)
        and len(found) == 2
        and isinstance(found[0], str)
        and isinstance(found[1], dict)
    ):
        return found[0], found[1]
    return None


class StoredOffsets(OffsetsReader):
    """The offsets of one connector, as of the start of its task."""

    def __init__(self, connector: str, offsets: Mapping[str, Any]) -> None:
        self._connector = connector
        self._offsets = offsets

    def offsets(self, partitions: Iterable[SourcePartition]) -> list[dict[str, Any] | None]:
        return [self._offsets.get(key_text(self._connector, each)) for each in partitions]

    def all(self) -> list[Pair]:
        return [(json.loads(key)[1], offset) for key, offset in self._offsets.items()]


def read_offsets(worker: WorkerSettings, connector: str) -> StoredOffsets:
    """All offsets that are committed now."""
    if worker.offsets_directory is not None:
        return StoredOffsets(connector, _read_files(Path(worker.offsets_directory), connector))
    return StoredOffsets(connector, _read_topic(worker, connector))


def _read_topic(worker: WorkerSettings, connector: str) -> dict[str, Any]:
    from confluent_kafka import KafkaError, TopicPartition

    topic = worker.offsets_topic
    assert topic is not None
    consumer = make_consumer(
        worker,
        {},
        f"connector-offsets-{connector}",
        {
            "group.id": "penstock-connect-offsets",  # librdkafka wants one; nothing is joined or committed
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        },
    )
    found: dict[str, Any] = {}
    ends: dict[tuple[str, int], int | None] = {}
    try:
        metadata = consumer.list_topics(topic, timeout=_READ_SECONDS).topics[topic]
        if metadata.error is not None:
            raise ConnectError(f"the topic {topic} cannot be read: {metadata.error.str()}")
        unread = set(metadata.partitions)
        # Not only up to the first open transaction: it belongs to another task, and ours may have committed
        # after it.
        with Cluster(ClientSettings.from_kafka(kafka_names(worker.client))) as cluster:
            ends = cluster.list_offsets({(topic, each): LATEST for each in unread}, READ_UNCOMMITTED)
        consumer.assign([TopicPartition(topic, each, 0) for each in unread])
        deadline = time.monotonic() + _READ_SECONDS
        while unread:
            if time.monotonic() > deadline:
                raise ConnectError(f"the topic {topic} could not be read to its end in {_READ_SECONDS:g} s")
            for message in consumer.consume(1000, 0.1):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        place = (topic, message.partition() or 0)
                        if (message.offset() or 0) >= (ends.get(place) or 0):
                            unread.discard(place[1])
                    continue
                raw: Any = message.key()
                key = read_key(raw)
                if key is None or key[0] != connector:
                    continue
                value = message.value()
                text = key_text(*key)
                if value is None:
                    found.pop(text, None)
                else:
                    found[text] = json.loads(value)
    finally:
        consumer.close()
    return found


# Files of a standalone worker: one for each source partition, replaced atomically.


def _directory(root: Path, connector: str) -> Path:
    return root / quote(connector, safe="")


def _read_files(root: Path, connector: str) -> dict[str, Any]:
    found = {}
    for path in sorted(_directory(root, connector).glob("*.json")):
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
            found[key_text(connector, entry["partition"])] = entry["offset"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConnectError(f"the offsets file {path} cannot be read: {error}") from error
    return found


def write_files(root: Path, connector: str, pairs: Sequence[tuple[SourcePartition, Any]]) -> None:
    directory = _directory(root, connector)
    directory.mkdir(parents=True, exist_ok=True)
    for partition, offset in pairs:
        name = hashlib.sha256(key_text(connector, partition).encode()).hexdigest()[:32]
        path = directory / f"{name}.json"
        if offset is None:
            path.unlink(missing_ok=True)
            continue
        temporary = path.with_suffix(f".{os.getpid()}")
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump({"partition": dict(partition), "offset": dict(offset)}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
