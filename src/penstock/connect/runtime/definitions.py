"""The settings that every connector has, with Kafka's names, and the validation of a whole configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.config.types import ConfigType, NonEmpty, OneOf, Range, split_list
from penstock.connect import plugins
from penstock.connect.api import Connector, SinkConnector
from penstock.connect.concealment import conceal
from penstock.connect.errors import ConnectError
from penstock.connect.providers import Unresolved, resolve
from penstock.connect.runtime.clients import WorkerSettings
from penstock.connect.runtime.subscription import problems_of_topics
from penstock.connect.runtime.topic_creation import problems_of_groups
from penstock.connect.runtime.transactions import problems_of_interval
from penstock.connect.settings import BadConfig, Field, Importance, prefixed_problems, problems_of
from penstock.connect.transforms.chain import prefixed, steps

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
    ),
    Field(
        "errors.retry.delay.max.ms",
        ConfigType.LONG,
        60_000,
        "The maximum duration in milliseconds between consecutive retry attempts.",
        group=_ERRORS,
        display_name="Maximum Delay Between Retries for Errors",
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
        validator=OneOf("requested", "required"),
        group="Exactly Once Support",
        display_name="Exactly once support",
    ),
    Field(
        "transaction.boundary",
        default="poll",
        doc="When a transaction is committed: poll (each batch) or interval.",
        validator=OneOf("poll", "interval"),
        group="Exactly Once Support",
        display_name="Transaction Boundary",
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
    ),
    Field(
        "errors.deadletterqueue.topic.replication.factor",
        ConfigType.SHORT,
        3,
        "Replicas of the dead letter queue topic if it is created: at most as many as there are brokers.",
        group=_ERRORS,
        display_name="Dead Letter Queue Topic Replication Factor",
    ),
    Field(
        "errors.deadletterqueue.context.headers.enable",
        ConfigType.BOOLEAN,
        False,
        "Add headers with the error and the record's place to records of the dead letter queue.",
        group=_ERRORS,
        display_name="Enable Error Context Headers",
    ),
)


def fields_for(plugin: type[Connector]) -> tuple[Field, ...]:
    """The connector's fields after those that all connectors of its kind have."""
    kind = SINK if issubclass(plugin, SinkConnector) else SOURCE
    own = {each.name for each in plugin.fields}
    return tuple(each for each in COMMON + kind if each.name not in own) + plugin.fields


def find_problems(
    plugin: type[Connector], config: Mapping[str, str], worker: WorkerSettings
) -> dict[str, list[str]]:
    """All problems of a configuration, by field, without the secrets of references."""
    found = _problems(plugin, config, worker)
    return {conceal(name): [conceal(text) for text in texts] for name, texts in found.items()}


def _problems(
    plugin: type[Connector], config: Mapping[str, str], worker: WorkerSettings
) -> dict[str, list[str]]:
    problems: dict[str, list[str]] = {}
    try:
        config = resolve(config)
    except Unresolved as error:
        return {str(error).partition(":")[0]: [str(error)]}
    _add(problems, problems_of(fields_for(plugin), config))
    if not issubclass(plugin, SinkConnector):
        _add(
            problems,
            {name: texts for name, texts in problems_of_groups(config).items() if name not in problems},
        )
        _add(problems, problems_of_interval(worker, {**plugin.defaults, **config}))
    else:
        topics, regex = split_list(config.get("topics") or ""), config.get("topics.regex") or ""
        dead_letters = config.get("errors.deadletterqueue.topic.name") or ""
        _add(problems, problems_of_topics(topics, regex, dead_letters))
    for part in ("key.converter", "value.converter", "header.converter"):
        if config.get(part):
            try:
                found = plugins.converter_class(config[part], header=part == "header.converter")
                inner = problems_of(found.fields, prefixed(config, f"{part}."))
                _add(problems, prefixed_problems(f"{part}.", inner))
            except ConnectError as error:
                text = f"Invalid value {config[part]} for configuration {part}: {error}"
                _add(problems, {part: [text]})
    try:
        steps(config, plugins.transform_class, plugins.predicate_class)
    except BadConfig as error:
        _add(problems, error.problems)
    except ConnectError as error:
        _add(problems, {"transforms": [str(error)]})
    if not problems:
        _add(problems, {name: list(texts) for name, texts in plugin.validate(config).items() if texts})
    return problems


def _add(problems: dict[str, list[str]], more: Mapping[str, list[str]]) -> None:
    for name, texts in more.items():
        problems.setdefault(name, []).extend(texts)


def validation(name: str, config: Mapping[str, str], worker: WorkerSettings) -> dict[str, Any]:
    """The response of `PUT /connector-plugins/{name}/config/validate`."""
    plugin = plugins.connector(name)
    problems = find_problems(plugin, config, worker)
    fields = fields_for(plugin)
    configs = [
        {
            "definition": each_definition,
            "value": {
                "name": each.name,
                "value": _shown(each, config.get(each.name)),
                "recommended_values": each.choices(config) if each.choices else _recommended(each),
                "errors": problems.pop(each.name, []),
                "visible": True,
            },
        }
        for each, each_definition in zip(fields, definitions(fields), strict=True)
    ]
    # Settings of converters and transforms, which the fields do not list.
    configs += [
        {
            "definition": _definition(Field(other, default=None), -1),
            "value": {
                "name": other,
                "value": config.get(other),
                "recommended_values": [],
                "errors": texts,
                "visible": True,
            },
        }
        for other, texts in problems.items()
    ]
    groups = list(dict.fromkeys(each.group for each in fields if each.group))
    count = sum(len(each["value"]["errors"]) for each in configs)
    return {"name": name, "error_count": count, "groups": groups, "configs": configs}


def definitions(fields: Sequence[Field]) -> list[dict[str, Any]]:
    """As the REST API shows them; numbered within each group, as in Kafka."""
    counts: dict[str, int] = {}
    found = []
    for each in fields:
        order = -1
        if each.group is not None:
            order = counts[each.group] = counts.get(each.group, 0) + 1
        found.append(_definition(each, order))
    return found


def _definition(field: Field, order: int) -> dict[str, Any]:
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


def _shown(field: Field, text: str | None) -> str | None:
    if text is None:
        return field.default_text()
    return "[hidden]" if field.type is ConfigType.PASSWORD else text


def _recommended(field: Field) -> list[str]:
    return list(field.validator.choices) if isinstance(field.validator, OneOf) else []
