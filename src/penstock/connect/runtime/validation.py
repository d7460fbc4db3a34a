"""The validation of a whole configuration: what is wrong with it, and which settings it can have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.config.types import ConfigType, OneOf, split_list
from penstock.connect import plugins
from penstock.connect.api import Connector, SinkConnector, SourceConnector
from penstock.connect.concealment import conceal
from penstock.connect.converters import CONVERTERS, HEADER_CONVERTERS
from penstock.connect.errors import ConnectError
from penstock.connect.providers import Unresolved, resolve
from penstock.connect.runtime.clients import WorkerSettings
from penstock.connect.runtime.conversion import DEFAULT_CONVERTERS
from penstock.connect.runtime.definitions import definition, definitions, fields_for
from penstock.connect.runtime.subscription import problems_of_topics
from penstock.connect.runtime.topic_creation import problems_of_groups
from penstock.connect.runtime.transactions import problems_of_interval
from penstock.connect.settings import (
    REQUIRED,
    AnyCase,
    BadConfig,
    Field,
    Importance,
    prefixed_problems,
    problems_of,
)
from penstock.connect.transforms import PREDICATES, TRANSFORMS
from penstock.connect.transforms.chain import prefixed, steps

_ONCE = "exactly.once.support"


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
        if not problems and config.get(_ONCE, "").lower() == "required":
            _add(problems, _problems_of_exactly_once(plugin, worker))
    else:
        topics, regex = split_list(config.get("topics") or ""), config.get("topics.regex") or ""
        dead_letters = config.get("errors.deadletterqueue.topic.name") or ""
        _add(problems, problems_of_topics(topics, regex, dead_letters))
    for part in DEFAULT_CONVERTERS:
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


def _problems_of_exactly_once(plugin: type[Connector], worker: WorkerSettings) -> dict[str, list[str]]:
    if not worker.exactly_once:
        return {_ONCE: ["This worker does not have exactly-once source support enabled."]}
    if not (issubclass(plugin, SourceConnector) and plugin.exactly_once):
        text = "The connector does not support exactly-once semantics with the provided configuration."
        return {_ONCE: [text]}
    return {}


def _add(problems: dict[str, list[str]], more: Mapping[str, list[str]]) -> None:
    for name, texts in more.items():
        problems.setdefault(name, []).extend(texts)


def validation(name: str, config: Mapping[str, str], worker: WorkerSettings) -> dict[str, Any]:
    """The response of `PUT /connector-plugins/{name}/config/validate`."""
    plugin = plugins.connector(name)
    problems = find_problems(plugin, config, worker)
    fields = [_with_worker_default(each, worker) for each in fields_for(plugin)]
    fields += [*_of_converters(config), *_of_steps(config)]
    configs = [
        _config(each_definition, config, each, problems.pop(each.name, []))
        for each, each_definition in zip(fields, definitions(fields), strict=True)
    ]
    # Settings that no field describes, such as those of topic creation groups.
    for other, texts in problems.items():
        field = Field(other, default=None)
        configs.append(_config(definition(field, -1), config, field, texts))
    groups = list(dict.fromkeys(each.group for each in fields if each.group))
    count = sum(len(each["value"]["errors"]) for each in configs)
    shown = config.get("connector.class") or name
    return {"name": shown, "error_count": count, "groups": groups, "configs": configs}


def _config(
    shown: dict[str, Any], config: Mapping[str, str], field: Field, errors: list[str]
) -> dict[str, Any]:
    value = {
        "name": field.name,
        "value": _shown(field, config.get(field.name), errors),
        "recommended_values": field.choices(config) if field.choices else _recommended(field),
        "errors": errors,
        "visible": True,
    }
    return {"definition": shown, "value": value}


def _shown(field: Field, text: str | None, errors: list[str]) -> str | None:
    """None for text that is not of the field's type, as in Kafka."""
    if text is None:
        return field.default_text()
    try:
        field.of_type(text)
    except ValueError:
        return None
    if errors and field.type is ConfigType.CLASS:
        return None
    return "[hidden]" if field.type is ConfigType.PASSWORD else text


def _recommended(field: Field) -> list[str]:
    if isinstance(field.validator, AnyCase):
        return [each.lower() for each in field.validator.choices]
    return list(field.validator.choices) if isinstance(field.validator, OneOf) else []


# Settings that depend on the configuration


def _with_worker_default(field: Field, worker: WorkerSettings) -> Field:
    """A converter is the worker's by default."""
    if field.name not in DEFAULT_CONVERTERS:
        return field
    table = HEADER_CONVERTERS if field.name == "header.converter" else CONVERTERS
    default, _ = worker.setting({}, field.name, DEFAULT_CONVERTERS[field.name])
    return replace(field, default=default, choices=_names(table))


def _names(table: Iterable[str]) -> Any:
    names = sorted(name for name in table if "." in name)
    return lambda config: names


def _of_converters(config: Mapping[str, str]) -> Iterator[Field]:
    """The settings of the connector's own converters."""
    for part in DEFAULT_CONVERTERS:
        try:
            found = plugins.converter_class(config[part], header=part == "header.converter")
        except (KeyError, ConnectError):
            continue
        for each in found.fields:
            yield _below(f"{part}.", each, each.group)


def _of_steps(config: Mapping[str, str]) -> Iterator[Field]:
    """The settings of each transform and predicate that has an alias."""
    kinds: tuple[tuple[str, str, Any, Any], ...] = (
        ("transforms", "Transformation", TRANSFORMS, plugins.transform_class),
        ("predicates", "Predicate", PREDICATES, plugins.predicate_class),
    )
    for kind, word, table, find in kinds:
        for alias in dict.fromkeys(split_list(config.get(kind) or "")):
            prefix, group = f"{kind}.{alias}.", f"{kind.title()}: {alias}"
            yield Field(
                f"{prefix}type",
                ConfigType.CLASS,
                REQUIRED,
                f"Class for the '{alias}' {word.lower()}.",
                importance=Importance.HIGH,
                group=group,
                display_name=f"{word} type for {alias}",
                width="LONG",
                choices=_names(table),
            )
            try:
                found = find(config.get(f"{prefix}type", ""))
            except ConnectError:
                continue
            own = (*getattr(found, "fields", ()), *(_CONDITION if kind == "transforms" else ()))
            yield from (_below(prefix, each, group) for each in own)


_CONDITION = (
    Field("negate", ConfigType.BOOLEAN, False, "Whether the configured predicate should be negated."),
    Field("predicate", default=None, doc="The alias of the predicate that decides whether to apply this."),
)


def _below(prefix: str, field: Field, group: str | None) -> Field:
    shown = field.display_name or field.name
    return replace(field, name=prefix + field.name, group=group, display_name=shown)
