"""Settings of brokers, topics, groups and client metrics subscriptions: one table for each."""

from penstock.config.broker import BROKER_CONFIGS, BrokerConfig
from penstock.config.client_metrics import (
    CLIENT_METRICS_CONFIGS,
    Subscription,
    describe_subscription,
    parse_subscription,
)
from penstock.config.dynamic import check_dynamic
from penstock.config.group import GROUP_CONFIGS, describe_group, group_setting, validate_group
from penstock.config.listeners import Listener
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
    "CLIENT_METRICS_CONFIGS",
    "GROUP_CONFIGS",
    "TOPIC_CONFIGS",
    "BrokerConfig",
    "ConfigDef",
    "ConfigEntry",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "Listener",
    "LogConfig",
    "Subscription",
    "check_dynamic",
    "describe_broker",
    "describe_broker_defaults",
    "describe_group",
    "describe_subscription",
    "describe_topic",
    "group_setting",
    "parse_subscription",
    "resolve_topic",
    "validate_group",
    "validate_topic",
    "validate_topic_override",
]
