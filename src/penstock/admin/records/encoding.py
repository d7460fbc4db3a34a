"""Keys and values that are JSON, encoded with the schemas of a registry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.admin.failure import CommandFailed
from penstock.admin.records.outgoing import BadRecord

if TYPE_CHECKING:
    from penstock.registry.client import RegisteredSchema, RegistryClient
    from penstock.registry.serdes import Encoder


def latest_schema(client: RegistryClient, subject: str, part: str, hint: str) -> RegisteredSchema:
    """The newest schema of a subject. CommandFailed with the hint if there is none."""
    from penstock.registry.client import RequestRefused

    try:
        return client.version(subject)
    except RequestRefused as error:
        if error.status != 404:
            raise
        raise CommandFailed(
            f"the registry has no schema for {part}s: subject '{subject}' does not exist. {hint}"
        ) from error


def encoded(encoder: Encoder, part: str, data: bytes) -> bytes:
    """The JSON in `data` as its schema wants it; BadRecord names the wrong field."""
    from penstock.registry.serdes import Unencodable

    try:
        return encoder.encode(json.loads(data))
    except Unencodable as error:
        raise BadRecord(f"the {part}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"the {part} is not JSON: {error}") from error
