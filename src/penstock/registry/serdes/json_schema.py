"""JSON values, validated with their JSON Schema when they are written."""

from __future__ import annotations

import json
from typing import Any

from penstock.registry.formats import ResolvedReference
from penstock.registry.serdes.framing import Undecodable
from penstock.registry.serdes.values import Unencodable


def read(data: bytes | memoryview) -> Any:
    """The value of a payload. As with Confluent's deserializers, it is not validated again."""
    try:
        return json.loads(bytes(data))
    except UnicodeDecodeError:
        raise Undecodable("it is not JSON: its bytes are not UTF-8") from None
    except RecursionError:
        raise Undecodable("it is JSON that is nested too deeply") from None
    except ValueError as error:
        raise Undecodable(f"it is not JSON: {error}") from None


class CheckedJson:
    """Values of one schema."""

    def __init__(self, text: str, references: tuple[ResolvedReference, ...]) -> None:
        from penstock.registry.formats.json_schema.parsed import validator

        self._validator = validator(text, references)

    def decode(self, data: bytes | memoryview) -> Any:
        return read(data)

    def encode(self, value: Any) -> bytes:
        from jsonschema.exceptions import ValidationError, best_match

        error: ValidationError | None = best_match(self._validator.iter_errors(value))
        if error is not None:
            path = [f"[{step}]" if isinstance(step, int) else str(step) for step in error.absolute_path]
            raise Unencodable(error.message[:300], *path)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
