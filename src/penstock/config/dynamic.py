"""Which broker settings can be altered while the broker runs: by Kafka's rules, with or without effect."""

from __future__ import annotations

from penstock.config.broker import BROKER_CONFIGS
from penstock.config.listeners import PREFIX
from penstock.config.security import JAAS, listener_setting
from penstock.config.types import ConfigDef, ConfigType, did_you_mean
from penstock.config.unused import ONE_BROKER_ONLY, ONE_LISTENER_ONLY, READ_AT_START, UNUSED
from penstock.errors import InvalidRequest

# Gone since Kafka 4.0, which accepts it as an unknown name: a bound on timestamps that does not hold.
_REMOVED = ("message.timestamp.difference.max.ms", "log.message.timestamp.difference.max.ms")


def check_dynamic(name: str, value: str, *, for_all: bool) -> str | None:
    """InvalidRequest, as Kafka answers, unless the setting can be altered and have this value.

    `for_all`: for all brokers, not for one. Returns what an operator should know of a setting that is
    accepted without effect, as Kafka accepts names that it does not know; None where it has an effect.
    """
    if name in _REMOVED:
        raise InvalidRequest(
            f"{name} was removed in Kafka 4.0: use {name.replace('difference', 'before')} and "
            f"{name.replace('difference', 'after')}"
        )
    for_listener = listener_setting(name) if name.startswith(PREFIX) else None
    row = BROKER_CONFIGS.get(name)
    if for_listener is not None:
        row = BROKER_CONFIGS.get(for_listener[1]) or BROKER_CONFIGS[JAAS]
    if name in ONE_LISTENER_ONLY:
        raise InvalidRequest(f"{name} can be altered only with a listener's prefix: {PREFIX}<name>.{name}")
    if (row is not None and not row.dynamic) or (row is None and name in READ_AT_START):
        raise InvalidRequest(f"Cannot update {name} dynamically: it is read when the broker starts")
    if for_all and (name in ONE_BROKER_ONLY or name.startswith(PREFIX)):
        raise InvalidRequest(f"{name} cannot be altered for all brokers: name a broker")
    if row is not None:
        _check_value(row, value)
        return None
    row = unused_row(name)
    if row.type is ConfigType.UNKNOWN:
        return f"{name} is not a broker setting and has no effect.{did_you_mean(name, BROKER_CONFIGS)}"
    _check_value(row, value)
    return f"{name} is not used by Penstock and has no effect."


def unused_row(name: str) -> ConfigDef:
    """The row of a setting that is not in the table of brokers. The value of an unknown one is not shown."""
    base = UNUSED.get(name)
    if name.startswith(PREFIX):
        setting = listener_setting(name)
        base = next((row for row in UNUSED.values() if name.endswith("." + row.name)), None)
        base = base if setting is None else BROKER_CONFIGS.get(setting[1]) or BROKER_CONFIGS[JAAS]
    if base is None:
        return ConfigDef(
            name, ConfigType.UNKNOWN, None, "Not a setting of Penstock or Kafka.", sensitive=True
        )
    return ConfigDef(
        name, base.type, base.default, base.doc, base.validator, dynamic=True, sensitive=base.sensitive
    )


def _check_value(row: ConfigDef, value: str) -> None:
    try:
        row.parse(value)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
