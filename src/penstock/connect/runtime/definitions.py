"""The settings that every connector has, with Kafka's names, and how the REST API shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.config.types import ConfigType, NonEmpty, OneOf, Range
from penstock.connect.api import Connector, SinkConnector
from penstock.connect.settings import AnyCase, Field, Importance

_ERRORS = "Error Handling"
_HIGH, _LOW = Importance.HIGH, Importance.LOW

COMMON = (
    Field(
        "name",
        doc="Globally unique name to use for this connector.",
        validator=NonEmpty(),
        importance=_HIGH,
        group="Common",
        display_name="Connector name",
        width="MEDIUM",
    ),
    Field(
        "connector.class",
        doc="The class of the connector: its full name, its class name, or the Java class that it replaces.",
        importance=_HIGH,
        group="Common",
        display_name="Connector class",
        width="LONG",
    ),
    Field(
        "tasks.max",
        ConfigType.INT,
        1,
        "Maximum number of tasks to use for this connector.",
        Range(1),
        _HIGH,
        group="Common",
        display_name="Tasks max",
        width="SHORT",
    ),
    Field(
        "tasks.max.enforce",
        ConfigType.BOOLEAN,
        True,
        "Whether a connector that makes more tasks than tasks.max fails; otherwise a warning is logged.",
        importance=_LOW,
        group="Common",
        display_name="Enforce tasks max",
        width="SHORT",
    ),
    Field(
        "key.converter",
        ConfigType.CLASS,
        None,
        "Converter of keys; the worker's by default.",
        importance=_LOW,
        group="Common",
        display_name="Key converter class",
        width="SHORT",
    ),
    Field(
        "value.converter",
        ConfigType.CLASS,
        None,
        "Converter of values; the worker's by default.",
        importance=_LOW,
        group="Common",
        display_name="Value converter class",
        width="SHORT",
    ),
    Field(
        "header.converter",
        ConfigType.CLASS,
        None,
        "Converter of headers; the worker's by default.",
        importance=_LOW,
        group="Common",
        display_name="Header converter class",
        width="SHORT",
    ),
    Field(
        "transforms",
        ConfigType.LIST,
        (),
        "Aliases for the transformations to be applied to records.",
        importance=_LOW,
        group="Transforms",
        display_name="Transforms",
        width="LONG",
    ),
    Field(
        "predicates",
        ConfigType.LIST,
        (),
        "Aliases for the predicates used by transformations.",
        importance=_LOW,
        group="Predicates",
        display_name="Predicates",
        width="LONG",
    ),
    Field(
        "config.action.reload",
        default="restart",
        doc="Accepted for compatibility: values of config providers are read when a task starts.",
        validator=OneOf("none", "restart"),
        importance=_LOW,
        group="Common",
        display_name="Reload Action",
        width="MEDIUM",
    ),
    Field(
        "errors.retry.timeout",
        ConfigType.LONG,
        0,
        "The maximum duration in milliseconds that a failed operation will be reattempted; -1 for no limit.",
        group=_ERRORS,
        display_name="Retry Timeout for Errors",
        width="MEDIUM",
    ),
    Field(
        "errors.retry.delay.max.ms",
        ConfigType.LONG,
        60_000,
        "The maximum duration in milliseconds between consecutive retry attempts.",
        group=_ERRORS,
        display_name="Maximum Delay Between Retries for Errors",
        width="MEDIUM",
    ),
    Field(
        "errors.tolerance",
        default="none",
        doc="none: a record that cannot be converted or transformed fails the task. all: it is skipped.",
        validator=OneOf("none", "all"),
        group=_ERRORS,
        display_name="Error Tolerance",
        width="SHORT",
    ),
    Field(
        "errors.log.enable",
        ConfigType.BOOLEAN,
        False,
        "Write each error and its record's place to the worker's log.",
        group=_ERRORS,
        display_name="Log Errors",
        width="SHORT",
    ),
    Field(
        "errors.log.include.messages",
        ConfigType.BOOLEAN,
        False,
        "Write the record itself, too.",
        group=_ERRORS,
        display_name="Log Error Details",
        width="SHORT",
    ),
    Field(
        "penstock.task.restart.attempts",
        ConfigType.INT,
        3,
        "How often a failed connector or task is started again, with a doubled pause each time; 0: never.",
        Range(0),
        _LOW,
        group=_ERRORS,
        display_name="Restarts",
    ),
    Field(
        "penstock.task.restart.backoff.ms",
        ConfigType.LONG,
        1000,
        "The first pause before a failed connector or task is started again.",
        Range(0),
        _LOW,
        group=_ERRORS,
        display_name="Restart backoff",
    ),
)

SOURCE = (
    Field(
        "topic.creation.groups",
        ConfigType.LIST,
        (),
        "Groups of topics that the connector creates, with settings topic.creation.GROUP.*: include and "
        "exclude (regular expressions), partitions, replication.factor and topic settings.",
        importance=_LOW,
        group="Topic Creation",
        display_name="Topic Creation Groups",
        width="LONG",
    ),
    Field(
        "topic.creation.default.partitions",
        ConfigType.INT,
        None,
        "Partitions of topics that the connector creates; the broker's default if not set.",
        group="Topic Creation",
        display_name="Partitions",
    ),
    Field(
        "topic.creation.default.replication.factor",
        ConfigType.INT,
        None,
        "Replicas of topics that the connector creates; the broker's default if not set.",
        group="Topic Creation",
        display_name="Replication factor",
    ),
    Field(
        "exactly.once.support",
        default="requested",
        doc="required: refuse the connector if it cannot deliver exactly once.",
        validator=AnyCase("REQUIRED", "REQUESTED"),
        group="Exactly Once Support",
        display_name="Exactly once support",
        width="SHORT",
    ),
    Field(
        "transaction.boundary",
        default="poll",
        doc="When a transaction is committed: poll (each batch) or interval.",
        validator=AnyCase("INTERVAL", "POLL"),
        group="Exactly Once Support",
        display_name="Transaction Boundary",
        width="SHORT",
    ),
    Field(
        "transaction.boundary.interval.ms",
        ConfigType.LONG,
        None,
        "With transaction.boundary=interval; the worker's offset.flush.interval.ms by default.",
        Range(1),
        _LOW,
        group="Exactly Once Support",
        display_name="Transaction boundary interval",
        width="SHORT",
    ),
)

SINK = (
    Field(
        "topics",
        ConfigType.LIST,
        (),
        "List of topics to consume, separated by commas.",
        importance=_HIGH,
        group="Common",
        display_name="Topics",
        width="LONG",
    ),
    Field(
        "topics.regex",
        default="",
        doc="Regular expression giving topics to consume.",
        importance=_HIGH,
        group="Common",
        display_name="Topics regex",
        width="LONG",
    ),
    Field(
        "errors.deadletterqueue.topic.name",
        default="",
        doc="The topic for records that fail in converting, transforming or writing; none by default.",
        group=_ERRORS,
        display_name="Dead Letter Queue Topic Name",
        width="MEDIUM",
    ),
    Field(
        "errors.deadletterqueue.topic.replication.factor",
        ConfigType.SHORT,
        3,
        "Replicas of the dead letter queue topic if it is created: at most as many as there are brokers.",
        group=_ERRORS,
        display_name="Dead Letter Queue Topic Replication Factor",
        width="MEDIUM",
    ),
    Field(
        "errors.deadletterqueue.context.headers.enable",
        ConfigType.BOOLEAN,
        False,
        "Add headers with the error and the record's place to records of the dead letter queue.",
        group=_ERRORS,
        display_name="Enable Error Context Headers",
        width="MEDIUM",
    ),
)


def fields_for(plugin: type[Connector]) -> tuple[Field, ...]:
    """The connector's fields after those that all connectors of its kind have."""
    kind = SINK if issubclass(plugin, SinkConnector) else SOURCE
    own = {each.name for each in plugin.fields}
    return tuple(each for each in COMMON + kind if each.name not in own) + plugin.fields


def definitions(fields: Sequence[Field]) -> list[dict[str, Any]]:
    """As the REST API shows them; numbered within each group, as in Kafka."""
    counts: dict[str, int] = {}
    found = []
    for each in fields:
        order = -1
        if each.group is not None:
            order = counts[each.group] = counts.get(each.group, 0) + 1
        found.append(definition(each, order))
    return found


def definition(field: Field, order: int) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": field.type.name,
        "required": field.required,
        "default_value": field.default_text(),
        "importance": field.importance.value,
        "documentation": field.doc,
        "group": field.group,
        "width": field.width,
        "display_name": field.display_name or field.name,
        "dependents": list(field.dependents),
        "order": order,
    }
