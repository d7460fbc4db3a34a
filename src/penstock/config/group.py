"""The settings of single groups: one table with Kafka's names; each is the group's own, or else the broker's.

They are altered and described as resources of type GROUP (32), also of groups that do not exist yet.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from penstock.config.broker import BROKER_CONFIGS, BrokerConfig
from penstock.config.resolve import ConfigEntry, ConfigSynonym, chosen, entry
from penstock.config.topic import INT, STRING
from penstock.config.types import ConfigDef, ConfigSource, ConfigType, OneOf, Range, Synonym, did_you_mean
from penstock.errors import InvalidConfig

_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,9})D)?(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,9})(?:\.(?P<fraction>\d{1,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
BY_DURATION = "by_duration:"


def duration_ms(text: str) -> int | None:
    """The milliseconds of an ISO 8601 duration as Java reads it (PnDTnHnMn.nS); None where it is none."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groupdict().values()) or text[-1] in "Tt":
        return None
    days, hours, minutes, seconds = (
        int(match[part] or 0) for part in ("days", "hours", "minutes", "seconds")
    )
    fraction = (match["fraction"] or "").ljust(3, "0")[:3]
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + int(fraction)


class OffsetReset:
    """Where a share group begins in a partition that it has no state of."""

    def allows(self, value: Any) -> bool:
        if value.startswith(BY_DURATION):
            return duration_ms(value.removeprefix(BY_DURATION)) is not None
        return value in ("earliest", "latest")

    def __str__(self) -> str:
        return "earliest, latest or by_duration:PnDTnHnMn.nS"


def _row(
    name: str, type: ConfigType, default: Any, validator: Any, synonym: str | None, doc: str
) -> ConfigDef:
    return ConfigDef(name, type, default, doc, validator, (Synonym(synonym),) if synonym else ())


# name, type, default, what is allowed, the broker setting that gives the default, meaning
GROUP_CONFIGS: dict[str, ConfigDef] = {
    row.name: row
    for row in (
        _row("consumer.heartbeat.interval.ms", INT, 5000, Range(1), "group.consumer.heartbeat.interval.ms",
             "How often the members of a consumer group send a heartbeat."),
        _row("consumer.session.timeout.ms", INT, 45000, Range(1), "group.consumer.session.timeout.ms",
             "How long a member of a consumer group may be silent before it is removed from the group."),
        _row("penstock.share.dead.letter.topic", STRING, "", None, None,
             "Where records go that are rejected, or released once too often; empty for nowhere."),
        _row("share.auto.offset.reset", STRING, "latest", OffsetReset(), None,
             "Where a share group begins in a partition that is new to it."),
        _row("share.heartbeat.interval.ms", INT, 5000, Range(1), "group.share.heartbeat.interval.ms",
             "How often the members of a share group send a heartbeat."),
        _row("share.isolation.level", STRING, "read_uncommitted", OneOf("read_committed", "read_uncommitted"),
             None, "Whether records of transactions are delivered before they commit, and if they abort."),
        _row("share.record.lock.duration.ms", INT, 30000, Range(1000), "group.share.record.lock.duration.ms",
             "How long a record is locked for the member that it was delivered to."),
        _row("share.session.timeout.ms", INT, 45000, Range(1), "group.share.session.timeout.ms",
             "How long a member of a share group may be silent before it is removed from the group."),
    )
}  # fmt: skip

# Each of these lies within the broker's limits: (setting, least, most).
_WITHIN = tuple(
    (f"{kind}.{name}", f"group.{kind}.min.{name}", f"group.{kind}.max.{name}")
    for kind, name in (
        ("consumer", "heartbeat.interval.ms"),
        ("consumer", "session.timeout.ms"),
        ("share", "heartbeat.interval.ms"),
        ("share", "record.lock.duration.ms"),
        ("share", "session.timeout.ms"),
    )
)


def group_setting(broker: BrokerConfig, overrides: Mapping[str, str], name: str) -> Any:
    """The typed value that is in force for a group with these overrides.

    An override that the broker's limits no longer allow is brought back within them: the limits may have
    changed after it was made.
    """
    row = GROUP_CONFIGS[name]
    if name in overrides:
        value = row.parse(overrides[name])
        for within, least, most in _WITHIN:
            if name == within and least in BROKER_CONFIGS:
                value = min(max(value, broker.get(least)), broker.get(most))
        return value
    return _default(broker, row)


def _default(broker: BrokerConfig, row: ConfigDef) -> Any:
    for synonym in row.synonyms:
        if synonym.name in BROKER_CONFIGS:
            return broker.get(synonym.name)
    return row.default


def validate_group(broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """InvalidConfig, naming the setting and what is allowed, unless a group can have these settings."""
    for name, value in overrides.items():
        row = GROUP_CONFIGS.get(name)
        if row is None:
            raise InvalidConfig(f"Unknown group config name: {name}.{did_you_mean(name, GROUP_CONFIGS)}")
        try:
            row.parse(value)
        except ValueError as error:
            raise InvalidConfig(str(error)) from None
    for name, least, most in _WITHIN:
        if name in overrides and least in BROKER_CONFIGS:
            value = GROUP_CONFIGS[name].parse(overrides[name])
            if value < broker.get(least):
                raise InvalidConfig(f"{name} must be greater than or equal to {least}={broker.get(least)}")
            if value > broker.get(most):
                raise InvalidConfig(f"{name} must be less than or equal to {most}={broker.get(most)}")
    for kind in ("consumer", "share"):
        session = group_setting(broker, overrides, f"{kind}.session.timeout.ms")
        heartbeat = group_setting(broker, overrides, f"{kind}.heartbeat.interval.ms")
        if session <= heartbeat:
            raise InvalidConfig(
                f"{kind}.session.timeout.ms={session} must be greater than "
                f"{kind}.heartbeat.interval.ms={heartbeat}"
            )


def describe_group(
    broker: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The settings in force for a group, by name; only `names` where given."""
    entries = []
    for row in chosen(GROUP_CONFIGS, names):
        value, source = row.format(_default(broker, row)), ConfigSource.DEFAULT
        if row.name in overrides:
            value, source = overrides[row.name], ConfigSource.GROUP
        entries.append(entry(row, value, [ConfigSynonym(row.name, value, source)], read_only=False))
    return entries
