"""Settings that a connector, converter or transform declares, and their validation.

Like Kafka Connect's ConfigDef, with its error messages, because consoles and people search for them. Types
and validators are those of `penstock.config`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.config.types import ConfigDef, ConfigType, NonEmpty, OneOf, Validator
from penstock.connect.errors import ConnectError

__all__ = [
    "AnyCase",
    "REPLACE_NULL",
    "REQUIRED",
    "BadConfig",
    "ConfigType",
    "Field",
    "Importance",
    "Validator",
    "parse",
    "prefixed_problems",
    "problems_of",
]


class BadConfig(ConnectError):
    """An invalid configuration: problems by field."""

    def __init__(self, problems: Mapping[str, list[str]]) -> None:
        self.problems = dict(problems)
        super().__init__("\n".join(text for texts in problems.values() for text in texts))


class Importance(enum.Enum):
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()
"""As a field's default: it has none, and must be set."""

_NUMBERS = (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE)


@dataclass(frozen=True, slots=True)
class Field:
    """One setting. `default` is typed; None means "not set", REQUIRED that it must be set.

    `validator` is one of `penstock.config.types` (Range, OneOf, NonEmpty, ...) or any object with `allows`
    and a text. `choices` returns the values that a console offers, given the configuration so far.
    """

    name: str
    type: ConfigType = ConfigType.STRING
    default: Any = REQUIRED
    doc: str = ""
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    group: str | None = None
    display_name: str | None = None
    width: str = "NONE"
    dependents: tuple[str, ...] = ()
    choices: Callable[[Mapping[str, str]], list[str]] | None = None

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def of_type(self, text: str) -> Any:
        """The typed value, allowed or not; ValueError if the text is not of the type."""
        plain = ConfigDef(self.name, self.type, None, self.doc, sensitive=self.type is ConfigType.PASSWORD)
        return plain.parse(text)

    def parse(self, text: str) -> Any:
        """The typed value. ValueError has Kafka's message if the text is not allowed."""
        try:
            value = self.of_type(text)
        except ValueError:
            raise ValueError(self._refusal(text, self._type_message())) from None
        if self.validator is not None and not self.validator.allows(value):
            raise ValueError(self._refusal(text, _rule(self.validator)))
        return value

    def _refusal(self, text: str, reason: str) -> str:
        shown = "[hidden]" if self.type is ConfigType.PASSWORD else text
        return f"Invalid value {shown} for configuration {self.name}: {reason}"

    def _type_message(self) -> str:
        if self.type in _NUMBERS:
            return f"Not a number of type {self.type.name}"
        if self.type is ConfigType.BOOLEAN:
            return "Expected value to be either true or false"
        return f"Expected value of type {self.type.name}"

    def default_text(self) -> str | None:
        """As Connect's REST API shows it."""
        if self.default is REQUIRED or self.default is None:
            return None
        return ConfigDef(self.name, self.type, None, "").format(
            tuple(self.default) if isinstance(self.default, list) else self.default
        )


def _rule(validator: Validator) -> str:
    """What a validator allows, in Kafka's words where it has such a validator."""
    if type(validator) is OneOf:
        return "String must be one of: " + ", ".join(validator.choices)
    if isinstance(validator, AnyCase):
        return "String must be one of (case insensitive): " + ", ".join(validator.choices)
    return "String may not be empty" if isinstance(validator, NonEmpty) else f"Value must be {validator}"


class AnyCase(OneOf):
    """One of these words, in capital or small letters."""

    def allows(self, value: Any) -> bool:
        return str(value).upper() in self.choices


REPLACE_NULL = Field(
    "replace.null.with.default",
    ConfigType.BOOLEAN,
    True,
    "Whether to replace fields that have a default value and that are null to the default value. When set to "
    "true, the default value is used, otherwise null is used.",
)
"""Of JSON converters and of transforms that copy fields (KIP-581, KIP-1040)."""


def parse(fields: Iterable[Field], given: Mapping[str, str | None]) -> dict[str, Any]:
    """Typed values of all fields, and other settings unchanged. BadConfig names what is wrong."""
    fields = tuple(fields)
    problems = problems_of(fields, given)
    if problems:
        raise BadConfig(problems)
    values: dict[str, Any] = dict(given)
    for each in fields:
        text = given.get(each.name)
        values[each.name] = each.default if text is None else each.parse(text)
    return values


def problems_of(fields: Iterable[Field], given: Mapping[str, str | None]) -> dict[str, list[str]]:
    """The problems of the given text, by setting."""
    problems: dict[str, list[str]] = {}
    for each in fields:
        text = given.get(each.name)
        if text is None:
            if each.required:
                problems[each.name] = [
                    f'Missing required configuration "{each.name}" which has no default value.'
                ]
            continue
        try:
            each.parse(text)
        except ValueError as error:
            problems[each.name] = [str(error)]
    return problems


def prefixed_problems(prefix: str, problems: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Problems of settings that the connector's configuration has under a prefix, with their full names."""
    return {
        prefix + name: [text.replace(name, prefix + name, 1) for text in texts]
        for name, texts in problems.items()
    }
