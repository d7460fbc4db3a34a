"""Settings of brokers and topics: one table for each (`topic.py`, `broker.py`), read by everything else."""

from penstock.config.broker import BROKER_CONFIGS, BrokerConfig, Listener, check_dynamic
from penstock.config.resolve import (
    ConfigEntry,
    ConfigSynonym,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
    resolve_topic,
    validate_topic,
    validate_topic_override,
)
from penstock.config.topic import TOPIC_CONFIGS, LogConfig
from penstock.config.types import ConfigDef, ConfigSource, ConfigType

__all__ = [
    "BROKER_CONFIGS",
    "TOPIC_CONFIGS",
    "BrokerConfig",
    "ConfigDef",
    "ConfigEntry",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "Listener",
    "LogConfig",
    "check_dynamic",
    "describe_broker",
    "describe_broker_defaults",
    "describe_topic",
    "resolve_topic",
    "validate_topic",
    "validate_topic_override",
]
