"""Shared by the encoders of all formats: the error that names the field, and a value's text in it."""

from __future__ import annotations

import json
from typing import Any

from penstock.registry.errors import RegistryError


class Unencodable(RegistryError):
    """A value that the schema does not accept; `path` is the path of the invalid part."""

    def __init__(self, reason: str, *path: str) -> None:
        self.reason = reason
        self.path = path
        place = "".join(step if step.startswith("[") else f".{step}" for step in path).lstrip(".")
        super().__init__(f"field '{place}': {reason}" if place else reason)


def shown(value: Any) -> str:
    """A value in an error message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "…"
