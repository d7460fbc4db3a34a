"""Settings as text: Java-style .properties files and the `key=value` words of the command line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from penstock.config.properties import parse_properties


def read_properties(path: str) -> dict[str, str]:
    """The settings in the file at `path`; a file that cannot be read is a usage error."""
    try:
        return parse_properties(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise click.BadParameter(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{path} is not a UTF-8 text file (byte {error.start})") from error


def key_values(words: Iterable[str], option: str) -> dict[str, str]:
    """`k=v` words of a repeatable option as a mapping."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"'{word}' is not of the form key=value", param_hint=f"'{option}'")
        found[key.strip()] = value
    return found
