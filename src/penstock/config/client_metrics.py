"""The settings of client metrics subscriptions (KIP-714): which clients push which metrics, and how often.

They are altered and described as resources of type CLIENT_METRICS (16). A subscription exists as long as it
has settings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.config.resolve import ConfigEntry, ConfigSynonym, chosen, entry
from penstock.config.types import ConfigDef, ConfigSource, ConfigType, did_you_mean
from penstock.errors import InvalidConfig, InvalidRegularExpression, InvalidRequest
from penstock.regex.matching import Regex

ALL_METRICS = "*"
DEFAULT_INTERVAL_MS = 300_000
_INTERVALS = range(100, 3_600_001)

MATCH_KEYS = (
    "client_id", "client_instance_id", "client_software_name", "client_software_version",
    "client_source_address", "client_source_port",
)  # fmt: skip

CLIENT_METRICS_CONFIGS: dict[str, ConfigDef] = {
    row.name: row
    for row in (
        ConfigDef(
            "interval.ms", ConfigType.INT, DEFAULT_INTERVAL_MS,
            "How often the clients push their metrics: 100 ms to 1 hour.",
        ),
        ConfigDef(
            "match", ConfigType.LIST, (),
            "Which clients: KEY=PATTERN, where the pattern (RE2 syntax) matches the whole value. All must "
            f"match; an empty list matches every client. Keys: {', '.join(MATCH_KEYS)}.",
        ),
        ConfigDef(
            "metrics", ConfigType.LIST, (),
            "Prefixes of the names of metrics, for example `org.apache.kafka.producer.`; `*` for all.",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription whose settings are typed and whose patterns are compiled."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[str, Regex], ...]

    def matches(self, client: Mapping[str, str]) -> bool:
        """Whether it is for this client; `client` has a value for each of MATCH_KEYS."""
        return all(pattern.matches(client[key]) for key, pattern in self.match)


def parse_subscription(name: str, configs: Mapping[str, str]) -> Subscription:
    """Raises InvalidRequest or InvalidConfig, as Kafka does, if a subscription cannot have these settings."""
    if not name:
        raise InvalidRequest("Client metrics subscription name must not be empty.")
    typed = {row.name: row.default for row in CLIENT_METRICS_CONFIGS.values()}
    for key, value in configs.items():
        row = CLIENT_METRICS_CONFIGS.get(key)
        if row is None:
            hint = did_you_mean(key, CLIENT_METRICS_CONFIGS)
            raise InvalidRequest(f"Unknown client metrics configuration: {key}.{hint}")
        try:
            typed[key] = row.parse(value)
        except ValueError as error:
            raise InvalidConfig(str(error)) from None
    if typed["interval.ms"] not in _INTERVALS:
        raise InvalidRequest(
            f"Invalid value {typed['interval.ms']} for interval.ms: must be between 100 and 3600000 (1 hour)."
        )
    return Subscription(typed["metrics"], typed["interval.ms"], _patterns(typed["match"]))


def _patterns(items: Collection[str]) -> tuple[tuple[str, Regex], ...]:
    found = {}
    for item in items:
        key, _, pattern = (part.strip() for part in item.partition("="))
        if key not in MATCH_KEYS:
            raise InvalidConfig(f"Illegal client matching pattern: {item}. Keys are {', '.join(MATCH_KEYS)}.")
        if not pattern or "=" in pattern:
            raise InvalidConfig(f"Illegal client matching pattern: {item}. Write KEY=PATTERN.")
        try:
            found[key] = Regex(pattern)
        except InvalidRegularExpression as error:
            raise InvalidConfig(f"Illegal client matching pattern: {item}. {error}") from None
    return tuple(found.items())


def describe_subscription(
    configs: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The settings in effect of a subscription, by name; only `names` if given."""
    entries = []
    for row in chosen(CLIENT_METRICS_CONFIGS, names):
        value, synonyms = row.format(row.default), []
        if row.name in configs:
            value = configs[row.name]
            synonyms = [ConfigSynonym(row.name, value, ConfigSource.CLIENT_METRICS)]
        entries.append(entry(row, value, synonyms, read_only=False))
    return entries
