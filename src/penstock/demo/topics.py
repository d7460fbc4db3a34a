"""The topics and files of the demo, and whether a replay starts or continues."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.demo.replay import FLIGHTS, PARTITIONS, WEATHER
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient

DEAD = "flights.dead"
DELAYS = "delays"
ALERTS = "alerts"
# Partitions, and settings. The weather is a table: the newest record of an airport and hour holds.
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    FLIGHTS: (PARTITIONS, {}),
    WEATHER: (PARTITIONS, {"cleanup.policy": "compact"}),
    DEAD: (1, {}),
    DELAYS: (1, {}),
    ALERTS: (1, {}),
}
# The groups in which the flows of the pipeline commit their progress: `penstock-` and the query's name.
GROUPS = tuple(
    f"penstock-flights.{flow}" for flow in ("dead_letters_and_alerts", "departures", "delays_by_airport")
)
_TIMEOUT_S = 30.0


class DemoConflict(PenstockError):
    """The data directory contains another replay."""


@dataclass(frozen=True)
class ReplaySettings:
    """The settings that determine the records: a replay only continues with the same ones."""

    start: str
    seed: int
    partitions: str = "by key"
    """How records are spread. Earlier versions, whose files do not say it, spread them by airport."""


@dataclass(frozen=True)
class Home:
    """The files of the demonstration: in the data directory, where the broker leaves them alone."""

    data: Path

    @property
    def directory(self) -> Path:
        return self.data / "demo"

    @property
    def table(self) -> Path:
        return self.directory / "tables" / "departures"

    @property
    def project(self) -> Path:
        return self.directory / "project"

    def begin(self, settings: ReplaySettings) -> bool:
        """True when a replay of these settings is there already and continues; DemoConflict for others."""
        file = self.directory / "replay.json"
        if file.exists():
            there = ReplaySettings(**{"partitions": "by airport", **json.loads(file.read_text())})
            if there.partitions != settings.partitions:
                raise DemoConflict(
                    f"{self.data} has a replay of an earlier version, with partitions {there.partitions}: "
                    f"use another --data, or --fresh to delete it"
                )
            if there != settings:
                raise DemoConflict(
                    f"{self.data} has a replay from {there.start} with seed {there.seed}: "
                    f"use the same, or another --data, or --fresh to forget it"
                )
            return True
        self.directory.mkdir(parents=True, exist_ok=True)
        # Written and renamed: the file is complete, even after a crash.
        beside = file.with_suffix(".new")
        beside.write_text(json.dumps(asdict(settings)) + "\n")
        os.replace(beside, file)
        return False

    def port(self, asked: int) -> int:
        """Where the broker has to listen: checkpoints are of one address, and 0 takes that again."""
        file = self.directory / "port"
        if not file.exists():
            return asked
        kept = int(file.read_text())
        if asked not in (0, kept):
            raise DemoConflict(
                f"the flows in {self.data} read a broker on port {kept}, not {asked}: "
                f"use --port {kept}, or another --data, or --fresh to start over"
            )
        return kept

    def keep_port(self, port: int) -> None:
        (self.directory / "port").write_text(f"{port}\n")

    def forget(self) -> None:
        """Removes checkpoints and tables; the topics belong to the broker."""
        shutil.rmtree(self.directory, ignore_errors=True)


class Topics:
    """The topics at `bootstrap`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @cached_property
    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        # Kept: its answers end with it.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})

    def create(self) -> None:
        """Those that are not there yet."""
        from confluent_kafka import KafkaError, KafkaException

        wanted = [
            _admin_types().NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
            for name, (partitions, settings) in TOPICS.items()
        ]
        for future in self._admin.create_topics(wanted, operation_timeout=_TIMEOUT_S).values():
            try:
                future.result(_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def delete(self) -> None:
        """All that are there."""
        admin = self._admin
        there = [name for name in TOPICS if name in admin.list_topics(timeout=_TIMEOUT_S).topics]
        if there:
            for future in admin.delete_topics(there, operation_timeout=_TIMEOUT_S).values():
                future.result(_TIMEOUT_S)

    def end_offsets(self, *names: str) -> dict[tuple[str, int], int]:
        """The number of records in each partition of these topics."""
        from confluent_kafka import TopicPartition

        latest = _admin_types().OffsetSpec.latest()
        wanted = {
            TopicPartition(name, partition): latest for name in names for partition in range(TOPICS[name][0])
        }
        answers: dict[Any, Future[Any]] = self._admin.list_offsets(wanted, request_timeout=_TIMEOUT_S)
        return {
            (place.topic, place.partition): future.result(_TIMEOUT_S).offset
            for place, future in answers.items()
        }

    def lags(self) -> dict[str, int]:
        """How many flights each of GROUPS is behind; those that have committed nothing yet are left out."""
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

        ends = self.end_offsets(FLIGHTS)
        found: dict[str, int] = {}
        for group in GROUPS:
            request = [ConsumerGroupTopicPartitions(group)]
            (future,) = self._admin.list_consumer_group_offsets(request, request_timeout=_TIMEOUT_S).values()
            try:
                places = future.result(_TIMEOUT_S).topic_partitions or []
            except KafkaException:
                continue  # there is no such group yet
            committed = {
                (place.topic, place.partition): place.offset for place in places if place.offset >= 0
            }
            if committed:
                found[group] = sum(max(end - committed.get(place, 0), 0) for place, end in ends.items())
        return found


def _admin_types() -> Any:
    import confluent_kafka.admin

    # Its types do not say that it exports what it imports.
    return confluent_kafka.admin
