"""The settings of a topic that a source connector creates (KIP-158). Pure.

`topic.creation.groups` names groups; each has patterns (`include`, `exclude`) and settings. A topic belongs
to the first group whose patterns match, else to `default`. Settings that no group sets have the broker's
default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from penstock.config.types import split_list
from penstock.connect.transforms.chain import prefixed

GROUPS = "topic.creation.groups"
_PREFIX = "topic.creation."
_DEFAULT = "default"
_INCLUDE, _EXCLUDE = "include", "exclude"
_PARTITIONS, _REPLICAS = "partitions", "replication.factor"


class NewTopicSettings(NamedTuple):
    """None: the broker's default."""

    partitions: int | None
    replication_factor: int | None
    config: dict[str, str]


def settings_for(topic: str, config: Mapping[str, str]) -> NewTopicSettings:
    """The settings of a topic to create; `config` was validated."""
    for group in split_list(config.get(GROUPS) or ""):
        own = prefixed(config, f"{_PREFIX}{group}.")
        if _matches(own.get(_INCLUDE), topic) and not _matches(own.get(_EXCLUDE), topic):
            # Settings that a group omits come from the default group, as in Kafka.
            return _settings(own, prefixed(config, f"{_PREFIX}{_DEFAULT}."))
    return _settings(prefixed(config, f"{_PREFIX}{_DEFAULT}."), {})


def problems_of_groups(config: Mapping[str, str]) -> dict[str, list[str]]:
    """The problems of the groups, by setting."""
    found: dict[str, list[str]] = {}
    groups = split_list(config.get(GROUPS) or "")
    if _DEFAULT in groups:
        found[GROUPS] = [
            f"Invalid value {config[GROUPS]} for configuration {GROUPS}: 'default' is always there"
        ]
    for group in [*groups, _DEFAULT]:
        own = prefixed(config, f"{_PREFIX}{group}.")
        for name, text in own.items():
            problem = _problem(name, text)
            if problem:
                full = f"{_PREFIX}{group}.{name}"
                found[full] = [f"Invalid value {text} for configuration {full}: {problem}"]
        if group != _DEFAULT and not own.get(_INCLUDE):
            full = f"{_PREFIX}{group}.{_INCLUDE}"
            found[full] = [f'Missing required configuration "{full}" which has no default value.']
    return found


def _problem(name: str, text: str) -> str | None:
    if name in (_INCLUDE, _EXCLUDE):
        for pattern in split_list(text):
            try:
                re.compile(pattern)
            except re.error as error:
                return f"{pattern} is not a regular expression: {error}"
    if name in (_PARTITIONS, _REPLICAS):
        try:
            number = int(text)
        except ValueError:
            return "Not a number of type INT"
        if number < 1 and number != -1:
            return "Value must be 1 or more, or -1 for the broker's default"
    return None


def _matches(patterns: str | None, topic: str) -> bool:
    return any(re.fullmatch(pattern, topic) for pattern in split_list(patterns or ""))


def _settings(own: Mapping[str, str], default: Mapping[str, str]) -> NewTopicSettings:
    def number(name: str) -> int | None:
        text = own.get(name) or default.get(name)
        return None if text is None or int(text) == -1 else int(text)

    other = {
        name: value for name, value in own.items() if name not in (_INCLUDE, _EXCLUDE, _PARTITIONS, _REPLICAS)
    }
    return NewTopicSettings(number(_PARTITIONS), number(_REPLICAS), other)
