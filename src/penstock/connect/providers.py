"""Config providers: `${file:/path:key}`, `${env:NAME}` and `${directory:/path:file}` in a value.

What is stored and shown is the reference; only the process that runs the connector sees the value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.config.properties import parse_properties
from penstock.connect.errors import ConnectError

_REFERENCE = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}]*)\}")


class Unresolved(ConnectError):
    """A reference to a value that is not there."""


def resolve(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration with every reference replaced; Unresolved names the setting and the reference."""
    resolved = {}
    for name, text in config.items():
        try:
            resolved[name] = _REFERENCE.sub(_value, text) if text and "${" in text else text
        except Unresolved as error:
            raise Unresolved(f"{name}: {error}") from None
    return resolved


def _value(match: re.Match[str]) -> str:
    provider, path, key = match.group(1), match.group(2) or "", match.group(3)
    if provider not in _PROVIDERS:
        return match.group(0)  # as Kafka does: what is no provider's stays as it is
    return _PROVIDERS[provider](path, key)


def _from_file(path: str, key: str) -> str:
    try:
        values = parse_properties(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise Unresolved(f"${{file:{path}:{key}}}: {path} cannot be read: {error}") from error
    if key not in values:
        raise Unresolved(f"${{file:{path}:{key}}}: {path} has no {key}")
    return values[key]


def _from_environment(path: str, key: str) -> str:
    if key not in os.environ:
        raise Unresolved(f"${{env:{key}}}: the worker's environment has no {key}")
    return os.environ[key]


def _from_directory(path: str, key: str) -> str:
    try:
        return (Path(path) / Path(key).name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unresolved(f"${{directory:{path}:{key}}}: cannot be read: {error}") from error


_PROVIDERS: dict[str, Callable[[str, str], str]] = {
    "file": _from_file,
    "env": _from_environment,
    "directory": _from_directory,
}
