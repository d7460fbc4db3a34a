"""Secrets by reference: `${env:NAME}`, `${file:PATH}` and `${directory:PATH:FILE}` in values of settings.

They are Kafka's providers. `${file:PATH}` is the text of a file, without the line end after it;
`${file:PATH:KEY}` one value of a .properties file, Kafka's form; `${directory:PATH:FILE}` the text of a file
as it is. References to other providers stay as they are, as in Kafka. What a reference stands for is in no
error: only its name is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from penstock.config.properties import parse_properties
from penstock.errors import ConfigError

_REFERENCE = re.compile(r"\$\{(env|file|directory):([^}]+)\}")
_LARGEST = 1 << 20


def references_in(value: str) -> list[str]:
    return [match[0] for match in _REFERENCE.finditer(value)]


def only_references(value: str) -> bool:
    """Whether a value consists of references to secrets only."""
    return not _REFERENCE.sub("", value).strip()


def resolve_all(settings: Mapping[str, str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings with their references resolved. ConfigError names the setting and the reference."""
    return {name: resolve(name, value, environ) for name, value in settings.items()}


def resolve(name: str, value: str, environ: Mapping[str, str] | None = None) -> str:
    if not value or "${" not in value:
        return value
    known = os.environ if environ is None else environ

    def found(match: re.Match[str]) -> str:
        kind, where = match[1], match[2]
        if kind == "env":
            if where not in known:
                raise ConfigError(f"{name}: {match[0]}: the environment variable {where} is not set")
            return known[where]
        if kind == "directory":
            return _of_directory(name, match[0], where)
        return _of_file(name, match[0], where)

    return _REFERENCE.sub(found, value)


def _of_file(name: str, reference: str, where: str) -> str:
    path, colon, key = where.rpartition(":")
    if not colon or os.path.exists(where):
        return _text(name, reference, where).removesuffix("\n").removesuffix("\r")
    values = parse_properties(_text(name, reference, path))
    if key not in values:
        raise ConfigError(f"{name}: {reference}: {path} has no '{key}'")
    return values[key]


def _of_directory(name: str, reference: str, where: str) -> str:
    path, colon, file = where.rpartition(":")
    if not colon:
        raise ConfigError(f"{name}: {reference}: write it as ${{directory:PATH:FILE}}")
    return _text(name, reference, str(Path(path) / Path(file).name))


def _text(name: str, reference: str, path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"{name}: {reference}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: {reference}: the file is not text in UTF-8") from None
    if len(text) > _LARGEST:
        raise ConfigError(f"{name}: {reference}: the file is too large to be a secret")
    return text
