"""Settings as text: Java-style .properties files and the `key=value` words of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from penstock.config.properties import parse_properties
from penstock.credentials.references import resolve_all
from penstock.errors import ConfigError

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def read_properties(path: str) -> dict[str, str]:
    """The settings in the file at `path`, with references resolved. An unreadable file is a usage error."""
    try:
        return resolved(parse_properties(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise click.BadParameter(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{path} is not a UTF-8 text file (byte {error.start})") from error


def resolved(settings: Mapping[str, str]) -> dict[str, str]:
    """Resolves `${env:NAME}` and `${file:PATH}`."""
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
    """Other values are passed to the broker unchanged, which validates them."""
    length = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|h|d|w)\s*", value, re.IGNORECASE)
    return value if length is None else str(int(length[1]) * _UNITS_MS[length[2].lower()])
