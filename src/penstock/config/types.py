"""What a configuration definition is made of: its type, what its values may be, and how text becomes a value.

The tables in `topic.py` and `broker.py` are rows of `ConfigDef`; nothing here knows any setting by name.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


class ConfigType(enum.IntEnum):
    """The types, with the numbers that DescribeConfigs uses for them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(enum.IntEnum):
    """Where a value comes from, with the numbers of DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Validator(Protocol):
    """Says whether a parsed value is allowed, and (as str) in words what is."""

    def allows(self, value: Any) -> bool: ...


@dataclass(frozen=True, slots=True)
class Range:
    low: float
    high: float = math.inf

    def allows(self, value: Any) -> bool:
        return bool(self.low <= value <= self.high)

    def __str__(self) -> str:
        return f"at least {self.low}" if self.high == math.inf else f"between {self.low} and {self.high}"


@dataclass(frozen=True, slots=True)
class UnlimitedOr:
    """-1 for "no limit", or else within the range."""

    range: Range

    def allows(self, value: Any) -> bool:
        return value == -1 or self.range.allows(value)

    def __str__(self) -> str:
        return f"-1 or {self.range}"


class OneOf:
    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def allows(self, value: Any) -> bool:
        return value in self.choices

    def __str__(self) -> str:
        return "one of " + ", ".join(self.choices)


class EachOneOf(OneOf):
    """For lists; the empty list is allowed."""

    def allows(self, value: Any) -> bool:
        return all(item in self.choices for item in value)

    def __str__(self) -> str:
        return "out of " + ", ".join(self.choices)


class AtLeastOneOf(EachOneOf):
    """For lists that may not be empty."""

    def allows(self, value: Any) -> bool:
        return bool(value) and super().allows(value)

    def __str__(self) -> str:
        return "one or more of " + ", ".join(self.choices)


class ThrottledReplicas:
    """For lists: each partition:broker, or * alone."""

    def allows(self, value: Any) -> bool:
        return tuple(value) == ("*",) or all(
            part.isdecimal() and colon and broker.isdecimal()
            for part, colon, broker in (item.partition(":") for item in value)
        )

    def __str__(self) -> str:
        return "a list of partition:broker, or * for all"


class NonEmpty:
    def allows(self, value: Any) -> bool:
        return bool(value)

    def __str__(self) -> str:
        return "not empty"


class Synonym(NamedTuple):
    """A broker setting that gives a topic setting its default, in units of `factor`."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """One row of a table.

    `default` is typed; None means "not set". `synonyms` (topic rows only) are the broker settings that hold
    the default, the strongest first. `dynamic` (broker rows only): can be altered while the broker runs.
    """

    name: str
    type: ConfigType
    default: Any
    doc: str
    validator: Validator | None = None
    synonyms: tuple[Synonym, ...] = ()
    dynamic: bool = False
    sensitive: bool = False

    @property
    def attribute(self) -> str:
        return self.name.removeprefix("penstock.").replace(".", "_").replace("-", "_")

    def parse(self, text: str) -> Any:
        """The typed value; ValueError with a sentence for the user where the text is not allowed."""
        value = self._convert(text.strip())
        if value is None or (self.validator is not None and not self.validator.allows(value)):
            shown = "" if self.sensitive else f" {text!r}"
            raise ValueError(f"Invalid value{shown} for configuration {self.name}: must be {self.allowed}")
        return value

    def format(self, value: Any) -> str | None:
        """The text of a typed value, as DescribeConfigs shows it."""
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(str(item) for item in value)
        return str(value)

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        words = _TYPE_WORDS[self.type]
        return words if self.validator is None else f"{words}, {self.validator}"

    def _convert(self, text: str) -> Any:
        match self.type:
            case ConfigType.BOOLEAN:
                return {"true": True, "false": False}.get(text.lower())
            case ConfigType.SHORT:
                return _integer(text, 16)
            case ConfigType.INT:
                return _integer(text, 32)
            case ConfigType.LONG:
                return _integer(text, 64)
            case ConfigType.DOUBLE:
                return float(text) if _DECIMAL.fullmatch(text) else None
            case ConfigType.LIST:
                return split_list(text)
            case _:
                return text


_TYPE_WORDS = {
    ConfigType.UNKNOWN: "a string",
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "a string",
    ConfigType.SHORT: "a 16-bit integer",
    ConfigType.INT: "a 32-bit integer",
    ConfigType.LONG: "a 64-bit integer",
    ConfigType.DOUBLE: "a number",
    ConfigType.LIST: "a comma-separated list",
    ConfigType.CLASS: "the name of a class",
    ConfigType.PASSWORD: "a password",
}


def _integer(text: str, bits: int) -> int | None:
    if not _INTEGER.fullmatch(text) or len(text) > 20:
        return None
    value = int(text)
    limit = 1 << (bits - 1)
    return value if -limit <= value < limit else None


def split_list(text: str) -> tuple[str, ...]:
    """The items of a list value, without blanks, empty items and repetitions."""
    return tuple(dict.fromkeys(item for part in text.split(",") if (item := part.strip())))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence to add to "unknown name", or nothing where no known name is near."""
    import difflib  # only for people who mistype; the broker starts without it

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f" Did you mean {near[0]}?" if near else ""
