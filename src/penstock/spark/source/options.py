"""The options of the source: the names, defaults and rules of Spark's own Kafka source.

What Spark's source rejects is rejected here, with its reason. Names are case-insensitive. Options that start
with `kafka.` go to the client without that prefix.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.credentials.references import resolve_all
from penstock.errors import ConfigError
from penstock.spark.errors import BadOption
from penstock.spark.source.offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    TopicPartition,
    parse_assignment,
    parse_offsets,
    parse_timestamps,
)
from penstock.spark.typed.options import TYPED_OPTIONS, TypedOptions, parse_typed_options

SOURCE_OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "targetBatchDuration",
    "priorityTopics",
    "groupIdPrefix",
    "commitProgress",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "partition.metadata.cache.ttl.ms",
    *TYPED_OPTIONS,
)
_BATCH_IGNORES = (
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "targetBatchDuration", "priorityTopics",
)  # fmt: skip
_STREAM_REFUSES = {
    "endingOffsets": "ending offset not valid in streaming queries",
    "endingOffsetsByTimestamp": "ending timestamp not valid in streaming queries",
    "endingTimestamp": "ending timestamp not valid in streaming queries",
}
_KAFKA_REFUSES = {
    "auto.offset.reset": (
        "set the option startingOffsets to earliest or latest instead: it applies when a query starts for"
        " the first time; a restarted query continues from its checkpoint"
    ),
    "key.deserializer": "keys are binary columns: use DataFrame operations to deserialize them",
    "value.deserializer": "values are binary columns: use DataFrame operations to deserialize them",
    "enable.auto.commit": "progress is committed after each batch, and Spark's checkpoint is the truth",
    "interceptor.classes": "interceptors could change what is read",
}
_DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
_TIME_UNITS_MS = {
    "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


@dataclass(frozen=True)
class Subscription:
    """What is read: exactly one of the three."""

    topics: frozenset[str] | None = None
    pattern: str | None = None
    partitions: frozenset[TopicPartition] | None = None

    def __str__(self) -> str:
        if self.topics is not None:
            return f"subscribe={','.join(sorted(self.topics))}"
        if self.pattern is not None:
            return f"subscribePattern={self.pattern}"
        return f"assign={sorted(self.partitions or ())}"


@dataclass(frozen=True)
class Position:
    """Where to start or to end: at an end of the log, at given offsets, or at times."""

    kind: Literal["earliest", "latest", "offsets", "times", "time"]
    option: str
    per_partition: Mapping[TopicPartition, int] | None = None
    time_ms: int = 0


@dataclass(frozen=True)
class SourceOptions:
    """All options of a read, validated."""

    kafka: Mapping[str, str]
    subscription: Subscription
    starting: Position
    ending: Position
    without_match: Literal["error", "latest"]
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    target_batch_ms: int | None
    priority: tuple[str, ...]
    group_id: str | None
    group_id_prefix: str
    commit_progress: bool
    offset_retries: int
    offset_retry_interval_ms: int
    poll_timeout_ms: int | None
    metadata_ttl_ms: int
    typed: TypedOptions | None
    warnings: tuple[str, ...]

    @property
    def client_settings(self) -> dict[str, str]:
        """For `ClientSettings.from_kafka`. Unlike Spark's own source it does not read aborted transactions:
        after an exactly-once query they are not part of the result.
        """
        return {"client.id": "penstock-spark", "isolation.level": "read_committed", **self.kafka}


def resolved(settings: Mapping[str, str]) -> dict[str, str]:
    """Resolves `${env:NAME}` and `${file:PATH}`: Spark's plan contains only the references."""
    try:
        return resolve_all(settings)
    except ConfigError as error:
        raise BadOption(f"kafka.{error}") from error


def refuse_slip(name: str, known: Mapping[str, str]) -> None:
    """Raises BadOption if an unknown option resembles one of `known` (lower case to its name)."""
    if close := difflib.get_close_matches(name, known, 1, 0.85):
        raise BadOption(f"unknown option {name}: did you mean {known[close[0]]}?")


def parse_source_options(options: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """The options of a batch or a streaming read. BadOption names an invalid one.

    `streaming` is None if it is not known yet: then only the rules for both are checked.
    """
    given = _Given(options)
    warnings = given.check_names()
    subscription = _subscription(given)
    if streaming:
        for name, reason in _STREAM_REFUSES.items():
            if name in given:
                raise BadOption(f"{name}: {reason}")
    without_match = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    starting = _position(given, "starting", "latest" if streaming else "earliest")
    ending = _position(given, "ending", "latest")
    if streaming is False:
        _check_batch_positions(starting, ending)
        warnings += [f"{name} is ignored in batch queries" for name in _BATCH_IGNORES if name in given]
    least, most = given.number("minOffsetsPerTrigger"), given.number("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise BadOption(f"minOffsetsPerTrigger={least} is higher than maxOffsetsPerTrigger={most}")
    ttl = given.number("partition.metadata.cache.ttl.ms", least=-1)
    if ttl == 0:
        raise BadOption("partition.metadata.cache.ttl.ms must be positive, or -1 to ask every time")
    kafka = given.kafka()
    group_id = kafka.pop("group.id", None) or None
    if group_id is not None and "groupIdPrefix" in given:
        warnings.append("groupIdPrefix is ignored, because kafka.group.id is set")
    return SourceOptions(
        kafka=kafka,
        subscription=subscription,
        starting=starting,
        ending=ending,
        without_match="latest" if without_match == "latest" else "error",
        fail_on_data_loss=given.boolean("failOnDataLoss", True),
        include_headers=given.boolean("includeHeaders", False),
        min_partitions=given.number("minPartitions"),
        max_records_per_partition=given.number("maxRecordsPerPartition"),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_or(given.duration_ms("maxTriggerDelay", None), _DEFAULT_MAX_TRIGGER_DELAY_MS),
        target_batch_ms=given.duration_ms("targetBatchDuration", None, least=1),
        priority=_priority(given, subscription),
        group_id=group_id,
        group_id_prefix=(given.get("groupIdPrefix") or "penstock").strip() or "penstock",
        commit_progress=given.boolean("commitProgress", True),
        offset_retries=_or(given.number("fetchOffset.numRetries", least=0), 3),
        offset_retry_interval_ms=_or(given.number("fetchOffset.retryIntervalMs", least=0), 10),
        poll_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs"),
        metadata_ttl_ms=_or(ttl, -1),
        typed=parse_typed_options(given, _named_topics(subscription)),
        warnings=tuple(warnings),
    )


def _subscription(given: _Given) -> Subscription:
    names = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if not names:
        raise BadOption("one of the options subscribe, subscribePattern and assign must say what to read")
    if len(names) > 1:
        raise BadOption(
            "only one of the options subscribe, subscribePattern and assign can be given,"
            f" not {' and '.join(names)}"
        )
    (name,) = names
    text = given.get(name) or ""
    if name == "assign":
        return Subscription(partitions=parse_assignment(text))
    if name == "subscribe":
        topics = frozenset(word.strip() for word in text.split(",") if word.strip())
        if not topics:
            raise BadOption(f"subscribe: no topics to read in '{text}'")
        return Subscription(topics=topics)
    pattern = text.strip()
    if not pattern:
        raise BadOption("subscribePattern is empty")
    try:
        re.compile(pattern)
    except re.error as error:
        raise BadOption(f"subscribePattern={pattern} is not a regular expression: {error}") from None
    return Subscription(pattern=pattern)


def _named_topics(subscription: Subscription) -> frozenset[str] | None:
    if subscription.partitions is not None:
        return frozenset(topic for topic, _ in subscription.partitions)
    return subscription.topics


def _priority(given: _Given, subscription: Subscription) -> tuple[str, ...]:
    text = given.get("priorityTopics")
    if text is None:
        return ()
    topics = tuple(word.strip() for word in text.split(",") if word.strip())
    if not topics or len(set(topics)) != len(topics):
        raise BadOption(f"priorityTopics: topics, the most urgent first, each once, not '{text}'")
    read = subscription.topics or {topic for topic, _ in subscription.partitions or ()}
    if others := [topic for topic in topics if topic not in read] if read else []:
        raise BadOption(f"priorityTopics: {', '.join(others)} is not read by this query ({subscription})")
    return topics


def _position(given: _Given, side: str, default: Literal["earliest", "latest"]) -> Position:
    """One timestamp for all takes precedence over timestamps for each, and these over offsets, as in
    Spark.
    """
    if (text := given.get(f"{side}Timestamp")) is not None:
        option = f"{side}Timestamp"
        if not re.fullmatch(r"\s*\d{1,18}\s*", text):
            raise BadOption(f"{option}: expected one time in milliseconds, e.g. 1700000000000, got {text}")
        return Position("time", option, time_ms=int(text))
    if (text := given.get(f"{side}OffsetsByTimestamp")) is not None:
        option = f"{side}OffsetsByTimestamp"
        return Position("times", option, parse_timestamps(option, text))
    option = f"{side}Offsets"
    text = (given.get(option) or default).strip()
    lower = text.lower()
    if lower == "earliest":
        return Position("earliest", option)
    if lower == "latest":
        return Position("latest", option)
    return Position("offsets", option, parse_offsets(option, text))


def _check_batch_positions(starting: Position, ending: Position) -> None:
    for position, wrong, number in ((starting, "latest", LATEST), (ending, "earliest", EARLIEST)):
        if position.kind == wrong:
            raise BadOption(f"{position.option} cannot be {wrong} in a batch query: nothing would be read")
        if position.kind == "offsets" and number in (position.per_partition or {}).values():
            raise BadOption(
                f"{position.option} cannot be {number} ({wrong}) for a partition in a batch query:"
                " nothing would be read"
            )
    if starting.kind == ending.kind and starting.kind in ("offsets", "times"):
        first, last = starting.per_partition or {}, ending.per_partition or {}
        if first.keys() != last.keys():
            raise BadOption(
                f"{starting.option} and {ending.option} must name the same partitions,"
                f" not {sorted(first)} and {sorted(last)}"
            )
        for partition, start in first.items():
            if start > last[partition] >= 0:
                raise BadOption(
                    f"{starting.option} is after {ending.option} for {partition[0]}-{partition[1]}:"
                    f" {start} > {last[partition]}"
                )


def _or(number: int | None, default: int) -> int:
    return default if number is None else number


class _Given:
    """The given options, with case-insensitive names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): str(value) for name, value in options.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._options

    def get(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def check_names(self) -> list[str]:
        """Rejects what looks like a misspelled option; a shared dict may contain other options."""
        known = {name.lower(): name for name in SOURCE_OPTIONS}
        warnings = []
        for name in self._options:
            if name.startswith("kafka.") or name in known or name in _OTHERS:
                continue
            refuse_slip(name, known)
            if name == "bootstrap.servers":
                raise BadOption("unknown option bootstrap.servers: did you mean kafka.bootstrap.servers?")
            warnings.append(f"unknown option {name} has no effect")
        return warnings

    def kafka(self) -> dict[str, str]:
        settings = {
            name.removeprefix("kafka."): value
            for name, value in self._options.items()
            if name.startswith("kafka.")
        }
        for name, reason in _KAFKA_REFUSES.items():
            if name in settings:
                raise BadOption(f"kafka.{name} is not supported: {reason}")
        if not settings.get("bootstrap.servers", "").strip():
            raise BadOption("kafka.bootstrap.servers must be given, e.g. localhost:9092")
        return resolved(settings)

    def number(self, name: str, least: int = 1) -> int | None:
        text = self.get(name)
        if text is None:
            return None
        if not re.fullmatch(r"\s*-?\d{1,18}\s*", text) or int(text) < least:
            raise BadOption(f"{name} must be a whole number from {least} on, not '{text}'")
        return int(text)

    def boolean(self, name: str, default: bool) -> bool:
        text = self.get(name)
        if text is None:
            return default
        lower = text.strip().lower()
        if lower not in ("true", "false"):
            raise BadOption(f"{name} must be true or false, not '{text}'")
        return lower == "true"

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        text = (self.get(name) or default).strip().lower()
        if text not in allowed:
            raise BadOption(f"{name} must be {' or '.join(allowed)}, not '{text}'")
        return text

    def duration_ms(self, name: str, default: int | None, least: int = 0) -> int | None:
        """Spark's time strings: 500ms, 30s, 15m, 2h, 1d; a bare number is milliseconds."""
        text = self.get(name)
        if text is None:
            return default
        match = re.fullmatch(r"\s*(\d{1,15})\s*([a-z]*)\s*", text.lower())
        unit = match and (_TIME_UNITS_MS.get(match.group(2) or "ms"))
        if not match or unit is None:
            raise BadOption(f"{name} must be a time such as 500ms, 30s, 15m, 2h or 1d, not '{text}'")
        if (found := int(int(match.group(1)) * unit)) < least:
            raise BadOption(f"{name} must be {least} ms or more, not '{text}'")
        return found


# The sink's and Spark's own, which may be in a dict that is used for reading and writing.
_OTHERS = frozenset({"topic", "path", "delivery", "checkpointlocation", "includetimestamp"})

__all__ = [
    "SOURCE_OPTIONS",
    "Offsets",
    "Position",
    "SourceOptions",
    "Subscription",
    "parse_source_options",
]
