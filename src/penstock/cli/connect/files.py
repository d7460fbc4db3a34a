"""A connector's configuration in a file: .properties, or JSON as the REST API takes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from penstock.cli.options.properties import read_properties


def read_connector(path: str) -> dict[str, str]:
    """The settings, including `name`."""
    if not path.endswith(".json"):
        config = read_properties(path)
    else:
        try:
            found: Any = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise click.BadParameter(f"{path} cannot be read as JSON: {error}") from error
        if isinstance(found, dict) and isinstance(found.get("config"), dict):
            found = {"name": found.get("name"), **found["config"]}
        if not isinstance(found, dict):
            raise click.BadParameter(f"{path} must hold an object of settings")
        config = {str(name): _text(value) for name, value in found.items() if value is not None}
    if not config.get("name"):
        raise click.BadParameter(f"{path} has no name: a connector needs one")
    return config


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)
