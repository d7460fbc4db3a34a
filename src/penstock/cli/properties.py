"""Settings as text: Java-style .properties files and the `key=value` words of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click

from penstock.credentials.references import resolve_all
from penstock.errors import ConfigError

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values of a .properties text; the last of a repeated key wins, as in Java."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        found[_unescape(key)] = _unescape(value)
    return found


def read_properties(path: str) -> dict[str, str]:
    """The settings in the file at `path`, references resolved; what cannot be read is a usage error."""
    try:
        return resolved(parse_properties(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise click.BadParameter(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{path} is not a UTF-8 text file (byte {error.start})") from error


def resolved(settings: Mapping[str, str]) -> dict[str, str]:
    """With what `${env:NAME}` and `${file:PATH}` stand for."""
    try:
        return resolve_all(settings)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


def key_values(words: Iterable[str], option: str) -> dict[str, str]:
    """`k=v` words of a repeatable option as a mapping."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"'{word}' is not of the form key=value", param_hint=f"'{option}'")
        found[key.strip()] = value
    return found


def topic_settings(words: Iterable[str], option: str) -> dict[str, str]:
    """`k=v` words that are settings of topics or brokers: `retention.ms=7d` is 7 days in milliseconds."""
    found = key_values(words, option)
    return {key: _milliseconds(value) if key.endswith(".ms") else value for key, value in found.items()}


def _milliseconds(value: str) -> str:
    """Anything but a number with a unit is left to the broker, which says what is wrong with it."""
    length = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|h|d|w)\s*", value, re.IGNORECASE)
    return value if length is None else str(int(length[1]) * _UNITS_MS[length[2].lower()])


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blanks, with backslash-continued lines joined."""
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        line = pending + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = line[:-1]
            continue
        pending = ""
        yield line
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    """Key and value around the first unescaped `=`, `:` or blank."""
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return key, rest.rstrip()


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            out.append(char)
            continue
        char = text[position]
        position += 1
        digits = text[position : position + 4]
        if char == "u" and len(digits) == 4 and all(digit in "0123456789abcdefABCDEF" for digit in digits):
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(char, char))
    return "".join(out)
