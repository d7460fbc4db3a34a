"""Config providers: `${file:/path:key}`, `${env:NAME}`, `${directory:/path:file}` in a connector's settings.

References are stored and shown unresolved; only the process that runs the connector sees the value.
`penstock.credentials.references` resolves them.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.connect.concealment import NAMES, remember
from penstock.connect.errors import ConnectError
from penstock.credentials.references import references_in, resolve_all
from penstock.credentials.references import resolve as resolve_one
from penstock.errors import ConfigError


class Unresolved(ConnectError):
    """A reference to a value that does not exist."""


def resolve(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration with every reference replaced; Unresolved names the setting and the reference."""
    try:
        resolved = resolve_all(config)
    except ConfigError as error:
        raise Unresolved(str(error)) from None
    for name, value in config.items():
        references = references_in(value)
        for reference in references:
            remember(resolve_one(name, reference), reference)
        if not references and NAMES.search(name):
            remember(value)
    return resolved
