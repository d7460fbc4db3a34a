"""Config providers: `${file:/path:key}`, `${env:NAME}`, `${directory:/path:file}` in a connector's settings.

References are stored and shown unresolved; only the process that runs the connector sees the value.
`penstock.credentials.references` resolves them.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.connect.errors import ConnectError
from penstock.credentials.references import resolve_all
from penstock.errors import ConfigError


class Unresolved(ConnectError):
    """A reference to a value that does not exist."""


def resolve(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration with every reference replaced; Unresolved names the setting and the reference."""
    try:
        return resolve_all(config)
    except ConfigError as error:
        raise Unresolved(str(error)) from None
