"""From settings as text to what a partition works with, and back to what DescribeConfigs shows.

A topic's setting is its own override, or else the strongest of the broker settings that are its synonyms.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile
from typing import Any, NamedTuple

from penstock.config.broker import BROKER_CONFIGS, BrokerConfig
from penstock.config.dynamic import unused_row
from penstock.config.topic import TOPIC_CONFIGS, LogConfig
from penstock.config.types import ConfigDef, ConfigSource, ConfigType, did_you_mean
from penstock.errors import InvalidConfig


def validate_topic_override(name: str, value: str) -> None:
    """InvalidConfig, naming the setting, the value and what is allowed, unless a topic can have it."""
    _parse_override(name, value)


def resolve_topic(broker: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """The settings of a topic on this broker; InvalidConfig where an override alone is not allowed.

    Settings that contradict each other are not refused here but by `validate_topic`, when they are made: a
    topic must still open after the broker's defaults have changed. Topics without overrides share one object.
    """
    if not overrides:
        return _broker_defaults(broker)[1]
    typed = dict(_broker_defaults(broker)[0])
    for name, value in overrides.items():
        row, parsed = _parse_override(name, value)
        typed[row.attribute] = parsed
    return _log_config(typed)


def validate_topic(broker: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """As resolve_topic, and InvalidConfig also where the settings contradict each other."""
    config = resolve_topic(broker, overrides)
    low, high = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if low > high:
        raise InvalidConfig(f"min.compaction.lag.ms={low} must not be above max.compaction.lag.ms={high}")
    return config


def _parse_override(name: str, value: str) -> tuple[ConfigDef, Any]:
    row = TOPIC_CONFIGS.get(name)
    if row is None:
        raise InvalidConfig(f"Unknown topic config name: {name}.{did_you_mean(name, TOPIC_CONFIGS)}")
    try:
        return row, row.parse(value)
    except ValueError as error:
        raise InvalidConfig(str(error)) from None


@lru_cache(maxsize=8)
def _broker_defaults(broker: BrokerConfig) -> tuple[dict[str, Any], LogConfig]:
    typed = {row.attribute: _broker_default(broker, row) for row in TOPIC_CONFIGS.values()}
    return typed, _log_config(typed)


def _broker_default(broker: BrokerConfig, row: ConfigDef) -> Any:
    for synonym in row.synonyms:
        value = broker.get(synonym.name)
        if value is not None:
            # -1 hours is "no limit" as -1 milliseconds is.
            return value if synonym.factor == 1 or value == -1 else value * synonym.factor
    return row.default


def _log_config(typed: Mapping[str, Any]) -> LogConfig:
    return LogConfig(**{**typed, "cleanup_policy": frozenset(typed["cleanup_policy"])})


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting as DescribeConfigs shows it; the first synonym is where the value comes from."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ConfigType
    doc: str
    synonyms: tuple[ConfigSynonym, ...]


def describe_topic(
    broker: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The settings of a topic in force on this broker, by name; only `names` where given."""
    entries = []
    for row in chosen(TOPIC_CONFIGS, names):
        names_of_default = [synonym.name for synonym in row.synonyms]
        synonyms = _synonyms(broker, names_of_default[0], names_of_default) if names_of_default else []
        value = row.format(_broker_default(broker, row))
        if row.name in overrides:
            value = overrides[row.name]
            synonyms.insert(0, ConfigSynonym(row.name, value, ConfigSource.DYNAMIC_TOPIC))
        entries.append(entry(row, value, synonyms, read_only=False))
    return entries


def describe_broker(
    broker: BrokerConfig, names: Collection[str] | None = None, *, advertised: str | None = None
) -> list[ConfigEntry]:
    """The settings in force on this broker, by name; only `names` where given.

    Also those that were altered and have no effect. `advertised` is what the broker advertises: the value of
    `advertised.listeners`, whether it is set, is not, or asks for any free port.
    """
    entries = []
    for row in chosen(BROKER_CONFIGS, names):
        synonyms = _synonyms(broker, row.name, _SAME_DEFAULT.get(row.name, (row.name,)))
        value = synonyms[0].value if synonyms else None
        if row.name in ("node.id", "broker.id"):
            value = str(broker.node_id)
            if not broker.values.keys().isdisjoint(("node.id", "broker.id")):
                synonyms = [ConfigSynonym(row.name, value, ConfigSource.STATIC_BROKER)]
        if row.name == "advertised.listeners" and advertised is not None:
            value = advertised
        entries.append(entry(row, value, synonyms, read_only=not row.dynamic))
    for name in sorted(
        (broker.dynamic_default.keys() | broker.dynamic_broker.keys()) - BROKER_CONFIGS.keys()
    ):
        if names is None or name in names:
            layers = [ConfigSynonym(name, value, source) for source, value in broker.layers(name)]
            entries.append(_unused(name, layers))
    return entries


_SAME_DEFAULT = {
    synonym.name: tuple(one.name for one in row.synonyms)
    for row in TOPIC_CONFIGS.values()
    for synonym in row.synonyms
    if len(row.synonyms) > 1
}
"""The broker settings that give one topic setting its default, by each of their names."""


def _synonyms(broker: BrokerConfig, name: str, names: Sequence[str]) -> list[ConfigSynonym]:
    """Where `names` have values, the strongest first; what comes before the first one of `name` is left out.

    So Kafka answers: log.retention.ms shows log.retention.hours below it where it is set itself, and nothing
    where it is not.
    """
    found = [ConfigSynonym(one, value, source) for one in names for source, value in broker.layers(one)]
    found.sort(key=lambda synonym: synonym.source)
    return list(dropwhile(lambda synonym: synonym.name != name, found))


def describe_broker_defaults(
    altered: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The settings altered for all brokers: what Kafka answers for the broker resource without a name."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    entries = []
    for name in sorted(altered if names is None else altered.keys() & set(names)):
        synonyms = [ConfigSynonym(name, altered[name], source)]
        if name in BROKER_CONFIGS:
            entries.append(entry(BROKER_CONFIGS[name], altered[name], synonyms, read_only=False))
        else:
            entries.append(_unused(name, synonyms))
    return entries


def _unused(name: str, synonyms: list[ConfigSynonym]) -> ConfigEntry:
    row = unused_row(name)
    return entry(row, synonyms[0].value, synonyms, read_only=row.type is ConfigType.UNKNOWN)


def chosen(table: Mapping[str, ConfigDef], names: Collection[str] | None) -> list[ConfigDef]:
    wanted = table if names is None else set(names)
    return sorted((row for row in table.values() if row.name in wanted), key=lambda row: row.name)


def entry(
    row: ConfigDef, value: str | None, synonyms: list[ConfigSynonym], *, read_only: bool
) -> ConfigEntry:
    if row.sensitive:
        value, synonyms = None, [synonym._replace(value=None) for synonym in synonyms]
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return ConfigEntry(row.name, value, source, read_only, row.sensitive, row.type, row.doc, tuple(synonyms))
